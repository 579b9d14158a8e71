"""Take the last stone from heaps against a perfect player.

family: nim_duel
skill: Mathematical Reasoning
setting: games
kind: multi_turn
split: train
size: small
"""

import random
import re


class NimDuelEnv:
    def __init__(self, max_turns=8):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        while True:
            self.heaps = [rng.randint(3, 9) for _ in range(3)]
            self.turns, self.over = 0, False
            if self._best(self.heaps) and 4 <= self._length(self.heaps) <= 6:
                return self._view(), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "Game over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip().lower()
        match = re.fullmatch(r"([abc])-([1-9])", text)
        if not match:
            return self._end("Bad move.")
        heap, stones = "abc".index(match.group(1)), int(match.group(2))
        if stones > self.heaps[heap]:
            return self._end("Too many.")
        self.heaps[heap] -= stones
        if not any(self.heaps):
            self.over = True
            return "You took the last stone: won.", 1.0, True, False, {}
        heap, stones = self._reply(self.heaps)
        self.heaps[heap] -= stones
        if not any(self.heaps):
            self.over = True
            return "I took the last stone: lost.", 0.0, True, False, {}
        return self._end("")

    def solution(self):
        heap, stones = self._reply(self.heaps)
        return f"{'abc'[heap]}-{stones}"

    def hint(self):
        total = self.heaps[0] ^ self.heaps[1] ^ self.heaps[2]
        return f"The xor of the heaps is {total:04b} in binary; leave me heaps whose xor is zero."

    def close(self):
        pass

    def _best(self, heaps):
        total = heaps[0] ^ heaps[1] ^ heaps[2]
        for heap, stones in enumerate(heaps):
            if stones ^ total < stones:
                return heap, stones - (stones ^ total)
        return None

    def _reply(self, heaps):
        """The perfect move, or one stone of the largest heap in a lost position."""
        return self._best(heaps) or (heaps.index(max(heaps)), 1)

    def _length(self, heaps):
        heaps, moves = list(heaps), 0
        while any(heaps):
            heap, stones = self._reply(heaps)
            heaps[heap] -= stones
            moves += 1
        return (moves + 1) // 2

    def _end(self, text):
        if self.turns >= self.max_turns:
            self.over = True
            return f"{text} No turns left.".strip(), 0.0, False, True, {}
        return f"{text} {self._view()}".strip(), 0.0, False, False, {}

    def _view(self):
        a, b, c = self.heaps
        return f"Nim a={a} b={b} c={c}. Last stone wins. heap-count"
