"""Grounding corpus: JSON lines in, an endless seeded stream of passages out.

A line is an object with the text under "text" or "orig_doc" and, if it likes, a "source". A scan
at the start finds the usable lines; texts stay on disk and are read when drawn. The order comes
from a grain MapDataset (seeded shuffle, new in each epoch), and the only
state is how many passages were drawn, so a restored stream continues exactly.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import grain

from spade_jax import records

CUT_MARK = " [...]"  # stands where a passage was cut
_KEYS = ("text", "orig_doc")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """Which passages the designer is shown."""

    paths: tuple[str, ...] = ("experiments/corpus/python_docs.jsonl",)  # JSONL files
    max_words: int = 400  # longer passages are cut
    max_characters: int = 20_000  # and cut here, white space folded, if still longer

    def __post_init__(self):
        if self.max_words < 1 or self.max_characters < 1:
            raise ValueError(
                f"corpus.max_words={self.max_words}, corpus.max_characters="
                f"{self.max_characters}: a passage needs a word. Set both >= 1."
            )


class Corpus:
    """Owns the corpus files and the place in the stream; every process of a run draws the same."""

    def __init__(
        self,
        paths: str | os.PathLike | Iterable[str | os.PathLike],
        *,
        seed: int,
        max_words: int = 400,
        max_characters: int = 20_000,
    ):
        """Open the files and count their documents.

        Args:
          paths: one JSONL file or several; their order matters.
          seed: of the shuffle.
          max_words: longer passages are cut and end in CUT_MARK.
          max_characters: those that are still longer are cut to it, white space folded, no mark.
        Raises:
          FileNotFoundError: a path is missing.
          ValueError: no usable document, a format other than JSONL, or a bad argument.
        """
        self._documents = _Documents([paths] if isinstance(paths, (str, os.PathLike)) else paths)
        self._stream = grain.MapDataset.source(self._documents).shuffle(seed=seed % 2**32).repeat()
        self._seed = seed
        self._max_words = max_words
        self._max_characters = max_characters
        self._taken = 0

    def __len__(self) -> int:
        """Usable documents in all files."""
        return len(self._documents)

    @property
    def skipped(self) -> int:
        """Lines that were not blank and held no usable document."""
        return self._documents.skipped

    def next(self) -> records.Passage:
        """Draw the next passage; the stream has no end."""
        document = self._stream[self._taken]
        self._taken += 1
        text = _text(document)
        words = text.split()
        if len(words) > self._max_words:
            text = _cut(text, words, self._max_words)
        if len(text) > self._max_characters:
            text = " ".join(text.split())[: self._max_characters].rstrip()
        return records.Passage(text=text, source=str(document.get("source", "")))

    def state(self) -> dict[str, Any]:
        """Return the place in the stream as JSON values."""
        return {
            "taken": self._taken,
            "documents": self._documents.digest,
            "seed": self._seed,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken.

        Raises:
          ValueError: the state belongs to another corpus or seed.
        """
        for key, value in (("documents", self._documents.digest), ("seed", self._seed)):
            if state[key] != value:
                raise ValueError(
                    f"corpus state has {key}={state[key]!r}, this corpus has {value!r}: the stream "
                    "cannot continue. Use the corpus and seed the run began with, or start anew."
                )
        self._taken = state["taken"]

    def close(self) -> None:
        """Close the files."""
        self._documents.close()


class _Documents:
    """Random access to the usable lines of JSONL files, which it holds open."""

    def __init__(self, paths: Iterable[str | os.PathLike]):
        self.skipped = 0
        self._files = []
        self._spans = []  # (file descriptor, offset, length in bytes)
        hashed = hashlib.sha256()
        names = [pathlib.Path(path) for path in paths]
        for path in names:
            self._scan(path, hashed)
        if not self._spans:
            raise ValueError(
                f"the corpus {', '.join(map(str, names)) or '(no file)'} has no usable document "
                f"({self.skipped} lines skipped). Give JSON lines with a non-empty "
                f'"{_KEYS[0]}" or "{_KEYS[1]}"; python -m launch.build_corpus writes such a file.'
            )
        self.digest = hashed.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, index: int) -> dict[str, Any]:
        descriptor, offset, length = self._spans[index]
        return json.loads(os.pread(descriptor, length, offset))

    def __repr__(self) -> str:
        return f"_Documents({len(self._spans)})"

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _scan(self, path: pathlib.Path, hashed: Any) -> None:
        if path.suffix not in (".jsonl", ".json"):
            raise ValueError(
                f"corpus {path}: only JSON lines (.jsonl) can be read; convert ArrayRecord and "
                "other formats first."
            )
        if not path.is_file():
            raise FileNotFoundError(
                f"corpus {path} does not exist. python -m launch.build_corpus --output={path} "
                "writes one from Python's own documentation."
            )
        file = open(path, "rb")
        self._files.append(file)
        offset = 0
        for line in file:
            if _usable(line):
                self._spans.append((file.fileno(), offset, len(line)))
                hashed.update(line)
            elif line.strip():
                self.skipped += 1
            offset += len(line)


def _usable(line: bytes) -> bool:
    try:
        document = json.loads(line)
    except ValueError:
        return False
    return isinstance(document, dict) and bool(_text(document))


def _text(document: dict[str, Any]) -> str:
    for key in _KEYS:
        value = document.get(key)
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def _cut(text: str, words: list[str], max_words: int) -> str:
    """Keep the first words with the space between them as it was."""
    end = 0
    for word in words[:max_words]:
        end = text.index(word, end) + len(word)
    return text[:end] + CUT_MARK
