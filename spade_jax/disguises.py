"""Other ways to write an answer down: numbers in words, backwards, base64, hexadecimal digits.

In: an answer. Out: what a text would hold that tells it in disguise. Pure functions.
"""

from __future__ import annotations

import base64
import decimal
import re
from collections.abc import Sequence

LEAST_BACKWARDS = 4  # signs of a word that is sought backwards; shorter ones are met by accident
LEAST_ENCODED = 4  # signs of an encoding that is sought
MAX_IN_WORDS = 999_999  # the largest number that is sought in words
_WHOLE = re.compile(r"\d{1,7}|\d(?:\.\d{1,6})?E\+\d{1,2}", re.ASCII)
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
_TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(words: Sequence[str]) -> list[list[str]]:
    """Write the whole numbers among words out, without and with "and"; nothing without a number."""
    numbers = [_number(word) for word in words]
    if all(number is None for number in numbers):
        return []
    forms = []
    for joined in ((), ("and",)):
        form = []
        for word, number in zip(words, numbers, strict=True):
            form += [word] if number is None else _spelt(number, joined)
        forms.append(form)
    return forms


def backwards(words: Sequence[str]) -> list[list[str]]:
    """Write one word from its end; nothing for short words and those that read alike."""
    whole = "".join(words)
    if len(whole) < LEAST_BACKWARDS or whole == whole[::-1]:
        return []
    return [[whole[::-1]], [word[::-1] for word in reversed(words)]]


def encoded(secret: str) -> set[str]:
    """Encode an answer, and the word in its box, in base64 and in hexadecimal digits."""
    bare = re.sub(r"^\\boxed\{(.*)\}$|^<answer>(.*)</answer>$", r"\1\2", secret.strip())
    found = set()
    for text in {secret.strip(), bare.strip()} - {""}:
        plain = text.encode("utf-8", "replace")
        whole = base64.b64encode(plain).decode()
        found |= {whole, whole.rstrip("="), plain.hex(), plain.hex().upper(), "0x" + plain.hex()}
    return {text for text in found if len(text) >= LEAST_ENCODED}


def _number(word: str) -> int | None:
    """Read a whole number, "1.2E+3" included; None for another word and for a larger number."""
    if not _WHOLE.fullmatch(word):
        return None
    value = decimal.Decimal(word)
    return int(value) if value <= MAX_IN_WORDS else None


def _spelt(number: int, joined: Sequence[str]) -> list[str]:
    """Spell a number; `joined` stands between hundreds and the rest."""
    if number < 20:
        return [_SMALL[number]]
    if number < 100:
        return [_TENS[number // 10], *([_SMALL[number % 10]] if number % 10 else [])]
    size, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    rest = number % size
    tail = [*(joined if rest and rest < 100 else ()), *_spelt(rest, joined)] if rest else []
    return [*_spelt(number // size, joined), name, *tail]
