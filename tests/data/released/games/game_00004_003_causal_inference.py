"""The Lighthouse Log: a grounded interactive world with hidden state and partial reward."""
import random
import re
from typing import Any, Dict, Tuple


class LighthouseEnv:
    """Restore the light. Commands are read from the first \\boxed{...}."""

    def __init__(self, max_turns: int = 12):
        self.max_turns = max_turns
        self.reset()

    def reset(self, seed=None) -> Tuple[str, Dict[str, Any]]:
        self.rng = random.Random(seed)
        self.valve = self.rng.choice(["red", "green", "blue"])
        self.fuel = False
        self.open = False
        self.lit = False
        self.turns = 0
        return self._obs("The lamp of the lighthouse is dark."), {}

    def _progress(self) -> float:
        return 0.25 * self.fuel + 0.25 * self.open

    def _obs(self, text: str) -> str:
        return (
            f"{text}\nProgress {self._progress():.2f}. Turn {self.turns}/{self.max_turns}.\n"
            f"Commands: \\boxed{{read log}}, \\boxed{{fill tank}}, \\boxed{{open COLOUR}}, "
            f"\\boxed{{light lamp}}. Colours: red, green, blue."
        )

    def step(self, action: str):
        self.turns += 1
        match = re.search(r"\\boxed\{(.*?)\}", action)
        command = match.group(1).strip().lower() if match else ""
        if command == "read log":
            text = f"The log says: after the storm only the {self.valve} valve held."
        elif command == "fill tank":
            self.fuel = True
            text = "The tank is full."
        elif command.startswith("open "):
            right = command[5:] == self.valve
            self.open = self.open or right
            text = "The valve turns." if right else "The valve leaks; you close it again."
        elif command == "light lamp":
            if self.fuel and self.open:
                self.lit = True
                return "Light!", 1.0, True, False, {}
            text = "The wick stays cold."
        else:
            text = "Nothing happens. Remember to box a command."
        if self.turns >= self.max_turns:
            return self._obs(text), self._progress(), False, True, {}
        return self._obs(text), self._progress(), False, False, {}

    def solution(self):
        return f"fill tank\nopen {self.valve}\nlight lamp"
