"""Hidden Sequence: ends with a demonstration under __main__, which never runs here."""
import random
import re


class HiddenSequenceEnv:
    def __init__(self, max_turns="ten"):
        self.max_turns = max_turns
        self.terms = []

    def reset(self, seed=None):
        if seed is not None:
            random.seed(seed)
        start, factor, shift = random.randint(1, 5), random.randint(2, 3), random.randint(1, 9)
        self.terms = [start]
        for _ in range(5):
            self.terms.append(self.terms[-1] * factor + shift)
        shown = ", ".join(map(str, self.terms[:5]))
        return f"Each term is the one before times p plus q: {shown}, ? Use \\boxed{{term}}.", {}

    def step(self, action):
        match = re.search(r"\\boxed\{(.*?)\}", action)
        if match is None:
            return "Box your answer: \\boxed{term}.", 0.0, False, False, {"boxed": False}
        try:
            value = int(match.group(1))
        except ValueError:
            return "That is no integer. Use \\boxed{term}.", 0.0, False, False, {"note": "text"}
        if value == self.terms[5]:
            return "Yes.", 1.0, True, False, {"turns": 1}
        return "No. Use \\boxed{term}.", 0.0, False, False, {}

    def solution(self):
        return str(self.terms[5])


if __name__ == "__main__":
    env = HiddenSequenceEnv()
    print(env.reset(seed=0))
    print(env.step(input("> ")))
