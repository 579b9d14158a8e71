"""The tokenizer of a published checkpoint, with its chat template and its end tokens.

Comes in: a Hugging Face directory or a GGUF file. Goes out: a `Published`, with the methods of
`tokenizer.Tokenizer`. Text of any origin never becomes one of its special tokens; a chat template
may write them.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import gguf
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from spade_jax.policy import gguf_file, tensors

CheckpointError = tensors.CheckpointError

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {"llama-bpe": _LLAMA3, "qwen2": _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")}


class Published:
    """A vocabulary with its chat template."""

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        *,
        template: str = "",
        end_ids: Sequence[int] = (),
        names: dict[str, str] | None = None,
    ):
        """Wrap a vocabulary; see `load`.

        Args:
            inner: the vocabulary.
            template: Jinja source of the chat template; empty where the checkpoint has none.
            end_ids: each ends a reply: of tokenizer and generation configuration together.
            names: what a template may call tokens, such as bos_token.
        """
        self._inner = inner
        # Text is never read as special tokens. The flag is not part of the saved file.
        self._inner.encode_special_tokens = True
        self.template = template
        self.end_ids = tuple(end_ids)
        self.names = dict(names or {})
        special = [t.content for t in inner.get_added_tokens_decoder().values() if t.special]
        self._special = re.compile("|".join(map(re.escape, sorted(special, key=len)[::-1])) or "$^")

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return self._inner.get_vocab_size(with_added_tokens=True)

    def id(self, token: str) -> int:
        """Give the id of one token by its exact name; KeyError where there is none."""
        found = self._inner.token_to_id(token)
        if found is None:
            raise KeyError(f"no token {token!r} in this vocabulary.")
        return found

    def is_special(self, token_id: int) -> bool:
        """Whether no text encodes to this id."""
        token = self._inner.get_added_tokens_decoder().get(token_id)
        return token is not None and token.special

    def encode(self, text: str) -> list[int]:
        """Encode text of any origin; it never yields a special token."""
        text = text.encode("utf-8", "replace").decode("utf-8")
        return self._inner.encode(text, add_special_tokens=False).ids

    def encode_pieces(self, pieces: Sequence[tuple[str, bool]]) -> list[int]:
        """Encode a rendered conversation: (text, whether the template wrote it) in order.

        Only what the template wrote may be special tokens. Text between two of them is encoded
        as a whole, so that ids equal those of the whole text wherever texts hold no special token.
        """
        ids, run = [], ""
        for text, trusted in pieces:
            for part, special in self._cut(text) if trusted else [(text, False)]:
                if not special:
                    run += part
                    continue
                ids += self.encode(run) if run else []
                ids.append(self.id(part))
                run = ""
        return ids + (self.encode(run) if run else [])

    def without_special(self, text: str) -> str:
        """Take out what would be read as special tokens, and what that leaves behind."""
        while (shorter := self._special.sub("", text)) != text:
            text = shorter
        return text

    def decode(self, ids: Sequence[int]) -> str:
        """Turn ids into text; special tokens by name."""
        return self._inner.decode(list(ids), skip_special_tokens=False)

    def save(self, path: str | os.PathLike) -> None:
        """Write one JSON file for `read`; a reader sees the old file or the whole new one."""
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        content = {
            "tokenizer": json.loads(self._inner.to_str()),
            "template": self.template,
            "end_ids": list(self.end_ids),
            "names": self.names,
        }
        partial.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        partial.replace(path)

    def _cut(self, text: str) -> list[tuple[str, bool]]:
        parts, place = [], 0
        for found in self._special.finditer(text):
            parts += [(text[place : found.start()], False), (found.group(), True)]
            place = found.end()
        return [part for part in (*parts, (text[place:], False)) if part[0]]


def read(path: str | os.PathLike) -> Published | None:
    """Read a file that `Published.save` wrote; None where it is another kind of file."""
    try:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
    if not isinstance(content, dict) or "template" not in content:
        return None
    inner = tokenizers.Tokenizer.from_str(json.dumps(content["tokenizer"]))
    rest = {name: content[name] for name in ("template", "end_ids", "names")}
    return Published(inner, **rest)


def load(path: str | os.PathLike) -> Published:
    """Read the tokenizer of a checkpoint.

    Args:
        path: a Hugging Face directory or a `.gguf` file.
    Raises:
        CheckpointError: it is missing, unreadable or of a kind that is not supported.
    """
    path = pathlib.Path(path)
    return _from_gguf(path) if path.is_file() else _from_directory(path)


def _from_directory(folder: pathlib.Path) -> Published:
    file = folder / "tokenizer.json"
    try:
        inner = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception on bad content
        raise CheckpointError(f"{file} is missing or not readable ({error}).") from error
    settings = _json(folder / "tokenizer_config.json")
    names = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        token = settings.get(name)
        names[name] = token.get("content", "") if isinstance(token, dict) else token or ""
    ends = [inner.token_to_id(names["eos_token"])] if names["eos_token"] else []
    for part in ("generation_config.json", "config.json"):
        stated = _json(folder / part).get("eos_token_id")
        ends += stated if isinstance(stated, list) else [stated]
    ends = tuple(dict.fromkeys(end for end in ends if end is not None))
    return Published(inner, template=_template(folder, settings), end_ids=ends, names=names)


def _template(folder: pathlib.Path, settings: dict[str, Any]) -> str:
    alone = folder / "chat_template.jinja"
    if alone.is_file():
        return alone.read_text(encoding="utf-8")
    found = settings.get("chat_template") or _json(folder / "chat_template.json").get(
        "chat_template", ""
    )
    if isinstance(found, list):  # several templates by name
        found = {entry["name"]: entry["template"] for entry in found}.get("default", "")
    return found


def _json(path: pathlib.Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not readable JSON ({error}).") from error


def _from_gguf(path: pathlib.Path) -> Published:
    fields = gguf_file.open_file(path).fields

    def get(name: str, default: Any = None) -> Any:
        return fields[f"tokenizer.{name}"].contents() if f"tokenizer.{name}" in fields else default

    kind, split = get("ggml.model"), get("ggml.pre", "gpt-2")
    if kind != "gpt2" or split not in ("gpt-2", "default", "smollm", *_SPLITS):
        raise CheckpointError(
            f"{path}: its tokenizer ({kind}, {split}) cannot be rebuilt; name a Hugging Face "
            f"directory with tokenizer.json as policy.tokenizer."
        )
    tokens, kinds = get("ggml.tokens"), get("ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in get("ggml.merges")]
    inner = tokenizers.Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=merges,
            ignore_merges=split == "llama-bpe",
        )
    )
    inner.pre_tokenizer = _pre_tokenizer(split)
    if split == "qwen2":
        inner.normalizer = normalizers.NFC()
    inner.decoder = decoders.ByteLevel()
    control, user = int(gguf.TokenType.CONTROL), int(gguf.TokenType.USER_DEFINED)
    for token, sort in zip(tokens, kinds, strict=True):
        if sort in (control, user):
            added = tokenizers.AddedToken(token, special=sort == control, normalized=False)
            (inner.add_special_tokens if sort == control else inner.add_tokens)([added])
    ends = [get("ggml.eos_token_id"), get("ggml.eot_token_id"), get("ggml.eom_token_id")]
    ends = tuple(dict.fromkeys(int(end) for end in ends if end is not None))
    ids = {"bos_token": get("ggml.bos_token_id"), "eos_token": get("ggml.eos_token_id")}
    names = {name: tokens[index] if index is not None else "" for name, index in ids.items()}
    return Published(inner, template=get("chat_template", ""), end_ids=ends, names=names)


def _pre_tokenizer(split: str) -> pre_tokenizers.PreTokenizer:
    if split in _SPLITS:
        pattern = tokenizers.Regex(_SPLITS[split])
        cut = pre_tokenizers.Split(pattern, behavior="isolated")
        whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([cut, whole])
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if split == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, words])
    return words
