"""Find answers that a text gives away.

A short answer stands in an honest question by accident ("the largest of 3, 7, 5"), so its presence
proves nothing. What proves a leak is a place: if, over many seeds, the answer can be read off
behind or before the same words ("(debug: 42)"), or at the very end, then no thinking is needed.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator, Sequence

SHARE = 0.9  # of the seeds at which one place must hold the answer
LEAST = 4  # seeds below which nothing is concluded
CONTEXT = 3  # words that may name a place
MAX_READ = 20_000  # characters of an observation that are searched

_TOKEN = re.compile(r"\n|(?<![\w.])-\d+(?:\.\d+)?|\d+(?:\.\d+)?|[^\W\d_]+|[^\w\s]|_")


def place_of_answer(observations: Sequence[str], answers: Sequence[str]) -> str | None:
    """Name the place where the answer stands at nearly every seed, None where there is none.

    Args:
      observations: what the player sees before answering, one text a seed.
      answers: the right answer of the same seed.
    """
    if len(answers) < LEAST:
        return None
    counts: collections.Counter = collections.Counter()
    for observation, answer in zip(observations, answers, strict=True):
        counts.update(_all_places(tokens(observation[:MAX_READ]), tokens(answer)))
    if not counts:
        return None
    place, hits = max(counts.items(), key=lambda item: (item[1], item[0]))
    commonest = max(collections.Counter(answers).values())  # what a constant would find as well
    if hits >= SHARE * len(answers) and hits > (commonest if commonest < len(answers) else 0):
        return place
    return None


def tokens(text: str) -> list[str]:
    """Cut a text into numbers, words, signs and ends of lines, case folded."""
    return [token.lower() for token in _TOKEN.findall(text)]


def without_common(answers: Sequence[str]) -> list[str]:
    """Cut off the words that all answers begin and end with: of "blame 7", "blame 9" numbers stay.

    Answers that are all alike stay as they are.
    """
    words = [answer.split() for answer in answers]
    if len(set(map(tuple, words))) < 2:
        return list(answers)
    least, first, last = min(map(len, words)), 0, 0
    while first < least and len({answer[first] for answer in words}) == 1:
        first += 1
    while last < least - first and len({answer[-1 - last] for answer in words}) == 1:
        last += 1
    return [" ".join(answer[first : len(answer) - last] or answer) for answer in words]


def _all_places(text: list[str], answer: list[str]) -> set[str]:
    """Collect places; an answer of several words is also sought without the signs between them."""
    found = set(_places(text, answer))
    words = [token for token in answer if token[-1].isalnum()]
    if len(words) > 1:
        found |= set(_places([token for token in text if token[-1].isalnum()], words))
    return found


def _places(text: list[str], answer: list[str]) -> Iterator[str]:
    """Yield the names of the places at which the answer stands in a text."""
    size = len(answer)
    if size == 0 or size > len(text):
        return
    shape = ["#" if _is_number(token) else token for token in text]
    for i in range(len(text) - size + 1):
        if text[i : i + size] != answer or _in_sequence(text, i, size):
            continue
        after = i + size
        if i == 0 or after == len(text):
            yield "at the start" if i == 0 else "at the end"
        for width in range(1, CONTEXT + 1):
            near = (("behind", shape[max(0, i - width) : i]), ("before", shape[after:][:width]))
            for side, words in near:
                if len(words) == width and _occurrences(shape, words) == 1:
                    yield f"{side} {' '.join(words)!r}"


def _in_sequence(text: list[str], start: int, size: int) -> bool:
    """Tell whether an occurrence is an item of a list: brackets or commas, or three in a row."""
    before = text[start - 1] if start else ""
    after = text[start + size] if start + size < len(text) else ""
    if before in ("[", ",") or after == ",":
        return True
    kind = _kind(text[start])
    if size > 1 or not kind:
        return False
    first = last = start
    while first > 0 and _kind(text[first - 1]) == kind:
        first -= 1
    while last + 1 < len(text) and _kind(text[last + 1]) == kind:
        last += 1
    return last - first >= 2


def _kind(token: str) -> str:
    if _is_number(token):
        return "number"
    return "letter" if len(token) == 1 and token.isalpha() else ""


def _is_number(token: str) -> bool:
    return token.lstrip("-")[:1].isdigit()


def _occurrences(shape: list[str], part: list[str]) -> int:
    width = len(part)
    return sum(shape[i : i + width] == part for i in range(len(shape) - width + 1))
