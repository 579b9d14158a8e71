"""Text to token ids and back: byte-level pairs, learned from given texts.

Any text round-trips, because every byte has a token. Digits are never merged: numbers are spelled
the same wherever they stand. Control tokens such as <|end|> have ids of their own, which no text
encodes to: a program or a model that writes "<|end|>" gets the bytes of it.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterable, Sequence

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

CONTROL = (
    "<|pad|>",
    "<|end|>",
    "<|designer|>",
    "<|agent|>",
    "<|user|>",
    "<|assistant|>",
    "<|tool|>",
)


class Tokenizer:
    """A trained vocabulary. Control tokens come first, in the order of CONTROL."""

    def __init__(self, inner: tokenizers.Tokenizer):
        """Wrap a vocabulary; see `train` and `load`.

        Raises:
            ValueError: a control token is missing.
        """
        for name in CONTROL:
            if inner.token_to_id(name) is None:
                raise ValueError(f"the tokenizer has no control token {name}; train it anew.")
        self._inner = inner
        # Text is never read as control tokens. The flag is not part of the saved file.
        self._inner.encode_special_tokens = True

    @classmethod
    def train(
        cls, texts: Iterable[str], *, vocab_size: int, extra_tokens: Sequence[str] = ()
    ) -> Tokenizer:
        """Learn a vocabulary.

        Args:
            texts: what to learn from; a text of many samples of the same kind weighs more.
            vocab_size: most tokens: control tokens, extra tokens, 256 bytes, then learned pairs.
                Fewer come out where the texts hold fewer pairs.
            extra_tokens: words that become one token each wherever they stand alone.
        Raises:
            ValueError: `vocab_size` leaves no room for the bytes, or an extra token is empty,
                repeated or looks like a control token.
        """
        least = len(CONTROL) + len(extra_tokens) + 256
        if vocab_size < least:
            raise ValueError(
                f"vocab_size={vocab_size} is less than the {len(CONTROL)} control tokens, "
                f"{len(extra_tokens)} extra tokens and 256 bytes; use at least {least}."
            )
        if len(set(extra_tokens)) < len(extra_tokens) or not all(map(_plain, extra_tokens)):
            raise ValueError(
                f"extra_tokens={tuple(extra_tokens)} must be distinct, not empty, without spaces "
                f"at the ends and without '<|'."
            )
        inner = tokenizers.Tokenizer(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        inner.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size - len(extra_tokens),
            special_tokens=list(CONTROL),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        inner.train_from_iterator(map(_encodable, texts), trainer)
        inner.add_tokens(
            [tokenizers.AddedToken(t, single_word=True, normalized=False) for t in extra_tokens]
        )
        return cls(inner)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Tokenizer:
        """Read a file that `save` wrote.

        Raises:
            FileNotFoundError: no such file.
            ValueError: not such a file.
        """
        text = pathlib.Path(path).read_text(encoding="utf-8")
        try:
            json.loads(text)
            return cls(tokenizers.Tokenizer.from_str(text))
        except Exception as error:  # the library raises bare Exception on bad content
            raise ValueError(f"{path} is not a readable tokenizer file: {error}") from error

    def save(self, path: str | os.PathLike):
        """Write one JSON file; a reader sees the old file or the whole new one."""
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        partial.write_text(self._inner.to_str(pretty=True), encoding="utf-8")
        partial.replace(path)

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return self._inner.get_vocab_size(with_added_tokens=True)

    @property
    def end_id(self) -> int:
        """Id of <|end|>, which ends every reply."""
        return self.id("<|end|>")

    def id(self, token: str) -> int:
        """Give the id of one token by its exact name.

        Raises:
            KeyError: there is no such token.
        """
        found = self._inner.token_to_id(token)
        if found is None:
            raise KeyError(f"no token {token!r}; extra tokens are given when training.")
        return found

    def encode(self, text: str) -> list[int]:
        """Encode text of any origin; it never yields a control token.

        A lone surrogate, which has no bytes in UTF-8, is read as "?".
        """
        return self._inner.encode(_encodable(text), add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Turn ids into text; control tokens by name, invalid UTF-8 as replacement characters."""
        return self._inner.decode(list(ids), skip_special_tokens=False)


def _plain(token: str) -> bool:
    return bool(token) and token == token.strip() and "<|" not in token


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
