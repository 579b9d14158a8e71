"""Modular Inverse Challenge: a single-turn puzzle with retries, checked by math_verify."""
import math
import random
import re
from typing import Any, Dict, Optional, Tuple

from math_verify import parse, verify


class ModularInverseEnv:
    """Find x with a * x = 1 (mod m)."""

    def __init__(self, max_turns: int = 5, **kwargs):
        self.max_turns = max_turns
        self.turn_count = 0
        self.a = None
        self.m = None
        self.answer = None

    def _get_instructions(self) -> str:
        return (
            f"You are solving a modular arithmetic puzzle.\n"
            f"Find the smallest positive integer x such that {self.a} * x leaves remainder 1 "
            f"when divided by {self.m}.\n"
            f"Submit your answer using \\boxed{{your_number}}.\n"
        )

    def reset(self, seed: Optional[int] = None) -> Tuple[str, Dict[str, Any]]:
        if seed is not None:
            random.seed(seed)
        self.turn_count = 0
        while True:
            self.m = random.randint(20, 60)
            self.a = random.randint(3, self.m - 2)
            if math.gcd(self.a, self.m) == 1:
                break
        self.answer = pow(self.a, -1, self.m)
        return self._get_instructions(), {}

    def _parse_answer(self, action: str) -> Optional[str]:
        matches = re.findall(r"\\boxed\{([^}]*)\}", action)
        return matches[-1].strip() if matches else None

    def step(self, action: str) -> Tuple[str, float, bool, bool, Dict[str, Any]]:
        self.turn_count += 1
        parsed = self._parse_answer(action)
        if parsed is None:
            obs = f"No boxed answer found. Use \\boxed{{}}.\n{self._get_instructions()}"
            return obs, 0.0, False, self.turn_count >= self.max_turns, {}
        if verify(parse(str(self.answer)), parse(parsed)):
            return "Correct!", 1.0, True, False, {}
        if self.turn_count >= self.max_turns:
            return f"Incorrect. The answer was {self.answer}.", 0.0, False, True, {}
        return f"{parsed} is incorrect.\n{self._get_instructions()}", 0.0, False, False, {}

    def solution(self) -> str:
        return f"\\boxed{{{self.answer}}}"
