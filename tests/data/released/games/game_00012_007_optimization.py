"""Heap Race: raises on what it does not expect, as generated programs do."""
import random
import re


class HeapRaceEnv:
    def __init__(self, max_turns: int = 6):
        self.max_turns = max_turns

    def reset(self, seed: Optional[int] = None) -> Tuple[str, Dict]:
        rng = random.Random(seed)
        self.heap = []
        for _ in range(5):
            heappush(self.heap, rng.randint(10, 99))
        self.start = deepcopy(self.heap)
        self.goal = sum(sorted(self.start)[:2])
        return f"Numbers {self.start}. Which sum have the two smallest? \\boxed{{sum}}.", {}

    def step(self, action: str) -> Tuple[str, float, bool, bool, Dict]:
        number = int(re.search(r"\\boxed\{(.*?)\}", action).group(1))
        if number == heappop(self.heap) + heappop(self.heap):
            return "Right.", 1.0, True, False, {}
        self.heap = deepcopy(self.start)
        return "Wrong, again. Use \\boxed{sum}.", 0.0, False, False, {}

    def solution(self):
        return str(self.goal)
