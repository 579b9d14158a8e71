"""Find out by experiment which switch drives which lamp.

family: switch_lamps
skill: Causal Inference
setting: games
kind: hidden_state
split: train
"""

import random
import re

SIZE = 6


class SwitchLampsEnv:
    def __init__(self, max_turns=8):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        self.lamp_of = rng.sample(range(SIZE), SIZE)  # switch -> the lamp it drives
        self.inverted = [rng.randint(0, 1) for _ in range(SIZE)]
        self.names = rng.sample(["red", "blue", "green", "white", "amber", "pink", "violet"], SIZE)
        self.tried = []
        return self._view("All is dark until you set the switches."), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip().lower()
        wire = re.fullmatch(r"wire ([1-6]{6})", text)
        if wire:
            self.over = True
            if wire.group(1) == self._wiring():
                return "The wiring is right.", 1.0, True, False, {}
            return "The wiring is wrong. You lost.", 0.0, True, False, {}
        match = re.fullmatch(r"set ([01]{6})", text)
        if not match:
            return self._end("That is not a setting of six switches.")
        self.tried.append((match.group(1), self._lamps(match.group(1))))
        return self._end("The lamps answered.")

    def solution(self):
        done = [setting for setting, _ in self.tried]
        for setting in (
            "000000",
            *("".join(str((s + 1) >> bit & 1) for s in range(SIZE)) for bit in range(3)),
        ):
            if setting not in done:
                return f"set {setting}"
        return f"wire {self._wiring()}"

    def hint(self):
        switch = self.lamp_of.index(0)
        inverted = sum(self.inverted)
        return (
            f"Switch {'ABCDEF'[switch]} drives lamp 1, and {inverted} lamps are inverted. Flip "
            "half of the switches at a time: each lamp's answers spell the number of its switch."
        )

    def close(self):
        pass

    def _wiring(self):
        return "".join(str(lamp + 1) for lamp in self.lamp_of)

    def _lamps(self, setting):
        shown = [""] * SIZE
        for switch, lamp in enumerate(self.lamp_of):
            shown[lamp] = str(int(setting[switch]) ^ self.inverted[lamp])
        return "".join(shown)

    def _end(self, text):
        if self.turns >= self.max_turns:
            self.over = True
            return f"{text} No turns left.", 0.0, False, True, {}
        return self._view(text), 0.0, False, False, {}

    def _view(self, last):
        lines = [f"switches {setting} gave lamps {lamps}" for setting, lamps in self.tried] or [
            "none"
        ]
        lamps = ", ".join(f"{i + 1} {name}" for i, name in enumerate(self.names))
        return (
            f"Six switches A to F each drive one of six lamps ({lamps}). An inverted lamp shines "
            "while its switch is 0.\nTrials so far:\n" + "\n".join(lines) + f"\n{last} "
            f"Turn {self.turns + 1} of {self.max_turns}.\n"
            "Act with \\boxed{set BBBBBB} (0 or 1 for A to F), or end the "
            "game with \\boxed{wire NNNNNN}, the lamp of each switch A to F."
        )
