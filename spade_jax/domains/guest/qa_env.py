"""Base class of compact questions, run in the sandbox: a program writes `task`, this does the rest.

A subclass defines `task(self, rng)` and returns (question, answer) or (question, answer, hint).
Each is text, a number, or a list or tuple of such, which reads as its items with single spaces.
"""

import random
import re

BOXED = "\\boxed"


class QAEnv:
    """A question with a few tries; the reward is 1.0 for the right answer and 0.0 otherwise."""

    max_turns = 2
    _question = _answer = _hint = None
    _turns = 0

    def __init__(self, max_turns=None):
        if max_turns is not None:
            self.max_turns = max_turns

    def task(self, rng):
        """Draw (question, answer) or (question, answer, hint) with rng, a `random.Random`."""
        raise NotImplementedError(f"{type(self).__name__} has no task. Define task(self, rng).")

    def reset(self, seed=None):
        """Draw a task. Without a seed one is taken from the process's own generator."""
        if seed is None:
            seed = random.getrandbits(32)
        parts = self.task(random.Random(seed))
        if len(parts) not in (2, 3):
            raise ValueError(f"task gave {len(parts)} values. Return question, answer and hint.")
        self._question = plain_text(parts[0])
        self._answer = plain_text(parts[1])
        self._hint = plain_text(parts[2]) if len(parts) == 3 and parts[2] is not None else None
        self._turns = 0
        return self._question, {}

    def step(self, action):
        """Judge an action. Wrong replies never tell the answer."""
        if self._question is None:
            raise RuntimeError("step came before reset. Call reset(seed) first.")
        self._turns += 1
        if same_answer(final_answer(str(action)), self._answer):
            return "Correct.", 1.0, True, False, {}
        if self._turns < self.max_turns:
            return f"Wrong. Try again: {self._question}", 0.0, False, False, {}
        return "Wrong.", 0.0, False, True, {}

    def solution(self):
        """Return the answer of the task in play as text, None before reset."""
        return self._answer

    def hint(self):
        """Return the task's hint as text, None where it has none."""
        return self._hint

    def close(self):
        """Free nothing: there is nothing to free."""


def plain_text(value):
    """Write a value as one line: list and tuple items joined by spaces, whitespace collapsed."""
    if isinstance(value, (list, tuple)):
        return " ".join(filter(None, map(plain_text, value)))
    return " ".join(str(value).split())


def final_answer(action):
    r"""Cut out the last \boxed{...} with matching braces; without one, the stripped action."""
    opened, last = [], None
    for i, letter in enumerate(action):
        if letter == "{":
            opened.append(i)
        elif letter == "}" and opened:
            start = opened.pop()
            if action.endswith(BOXED, 0, start) and (last is None or start > last[0]):
                last = start, i
    return action[last[0] + 1 : last[1]].strip() if last else action.strip()


def same_answer(given, answer):
    """Compare as text with whitespace collapsed, case kept; whole numbers also by value."""
    given, answer = " ".join(given.split()), " ".join(answer.split())
    number = re.compile(r"[+-]?[0-9]{1,1000}")
    if number.fullmatch(given) and number.fullmatch(answer):
        return int(given) == int(answer)
    return given == answer
