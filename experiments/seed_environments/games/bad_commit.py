"""Find the commit that broke a build.

family: bad_commit
skill: Causal Inference
setting: games
kind: hidden_state
split: train
"""

import random
import re


class BadCommitEnv:
    def __init__(self, max_turns=10):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.first = rng.randint(100, 400)
        self.last = self.first + rng.randint(40, 60)
        while True:
            self.turns, self.over = 0, False
            self.culprit = rng.randint(self.first + 2, self.last - 2)
            inner = [k for k in range(self.first + 1, self.last)]
            self.unbuilt = set(rng.sample(inner, 5)) - {self.culprit, self.culprit - 1}
            self.good, self.bad, self.skipped = self.first, self.last, set()
            if 5 <= self._length() <= 7:
                return self._view("No test was run yet."), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip().lower()
        match = re.fullmatch(r"(test|blame) ([0-9]{1,6})", text)
        if not match or not self.first <= int(match.group(2)) <= self.last:
            return self._end("That is not a command on one of the commits.")
        commit = int(match.group(2))
        if match.group(1) == "blame":
            self.over = True
            if commit == self.culprit:
                return "That commit broke it.", 1.0, True, False, {}
            return "That commit is innocent. You lost.", 0.0, True, False, {}
        return self._end(self._test(commit))

    def solution(self):
        commit = self._middle()
        return f"blame {self.bad}" if commit is None else f"test {commit}"

    def hint(self):
        third = self.first + (self.last - self.first) // 3
        side = "after" if self.culprit > third else "not after"
        return (
            f"Halve the stretch between a passing and a failing commit each time. The fault came "
            f"{side} the first third of the commits, so start there."
        )

    def close(self):
        pass

    def _test(self, commit):
        if commit in self.unbuilt:
            self.skipped.add(commit)
            return "That commit does not build, so it tells nothing."
        if commit < self.culprit:
            self.good = max(self.good, commit)
            return "The test passed."
        self.bad = min(self.bad, commit)
        return "The test failed."

    def _middle(self):
        """The commit nearest to the middle of what is unknown, None if all is known."""
        open_ = [k for k in range(self.good + 1, self.bad) if k not in self.skipped]
        centre = (self.good + self.bad) / 2
        return min(open_, key=lambda k: (abs(k - centre), k)) if open_ else None

    def _length(self):
        good, bad, count = self.good, self.bad, 1
        while self._middle() is not None:
            self._test(self._middle())
            count += 1
        self.good, self.bad, self.skipped = good, bad, set()
        return count

    def _end(self, text):
        if self.turns >= self.max_turns:
            self.over = True
            return f"{text} No turns left.", 0.0, False, True, {}
        return self._view(text), 0.0, False, False, {}

    def _view(self, last):
        skipped = ", ".join(map(str, sorted(self.skipped))) or "none"
        return (
            f"One commit from {self.first} to {self.last} broke a test; all before it pass, all "
            "from it on fail, and a few do not build.\n"
            f"Latest known to pass: {self.good}. Earliest known to fail: {self.bad}. "
            f"Found not to build: {skipped}.\n{last} Turn {self.turns + 1} of "
            f"{self.max_turns}.\n"
            "Act with \\boxed{test N}, or end the game with \\boxed{blame N}."
        )
