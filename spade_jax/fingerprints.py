"""Fingerprints of programs: an exact digest and a MinHash signature of the normalised syntax tree.

Normalised away: class, argument and variable names, annotations, docstrings and the wording of
strings. Kept: structure, operators, called functions, attributes, keywords and numbers. Two
programs with one digest pose the same task in other words.
Source: MinHash after Broder, "On the resemblance and containment of documents" (1997); hashes are
CRC-32 and multiply-shift, so that they are equal in every process and on every machine.
"""

from __future__ import annotations

import ast
import hashlib
import zlib
from collections.abc import Sequence

import numpy as np

PERMUTATIONS = 128  # K, entries of a signature; the error of a similarity is about 1 / sqrt(K)
SHINGLE = 5  # consecutive labels of the flattened tree that make one element of the set
_DROPPED = ("ctx", "type_comment", "kind", "annotation", "returns", "type_params", "type_ignores")
_MULTIPLIERS_K, _OFFSETS_K = np.random.default_rng(20260819).integers(
    0, 2**63, size=(2, PERMUTATIONS), dtype=np.uint64
)
_MULTIPLIERS_K = _MULTIPLIERS_K * np.uint64(2) + np.uint64(1)  # odd, as multiply-shift asks


def digest(tree: ast.Module) -> str:
    """Hash the normalised tree; 32 hexadecimal digits."""
    return hashlib.sha256("\n".join(labels(tree)).encode()).hexdigest()[:32]


def signature(tree: ast.Module) -> np.ndarray:
    """Compute the MinHash signature of the normalised tree: signature_K, uint32."""
    flat = labels(tree)
    count = max(1, len(flat) - SHINGLE + 1)
    shingles = {"\n".join(flat[i : i + SHINGLE]) for i in range(count)}
    hashes_S = np.array([zlib.crc32(text.encode()) for text in sorted(shingles)], np.uint64)
    mixed_SK = hashes_S[:, None] * _MULTIPLIERS_K[None, :] + _OFFSETS_K[None, :]  # wraps at 2^64
    return (mixed_SK.min(0) >> np.uint64(32)).astype(np.uint32)


def similarity(signature_K: np.ndarray, members_PK: np.ndarray) -> np.ndarray:
    """Estimate the share of shingles that a program has in common with each of P others.

    Returns:
      similarity_P in [0, 1]; empty where there are no members.
    """
    if len(members_PK) == 0:
        return np.zeros(0)
    return (members_PK == signature_K[None, :]).mean(1)


def bands(signature_K: np.ndarray, rows: int = 4) -> np.ndarray:
    """Cut a signature into K / rows keys for locality-sensitive hashing, uint64.

    Two programs of similarity s share at least one key with probability 1 - (1 - s^rows)^(K/rows).
    """
    cut = signature_K.reshape(-1, rows).astype(np.uint64)
    key = np.arange(len(cut), dtype=np.uint64)  # bands are told apart
    for i in range(rows):
        key = (key ^ cut[:, i]) * _MULTIPLIERS_K[i]  # wraps at 2^64
        key ^= key >> np.uint64(29)
    return key


def to_text(signature_K: np.ndarray) -> str:
    """Spell a signature in hexadecimal digits."""
    return signature_K.astype("<u4").tobytes().hex()


def from_text(text: str) -> np.ndarray | None:
    """Read what `to_text` spelt; None for an empty text."""
    return np.frombuffer(bytes.fromhex(text), "<u4").astype(np.uint32) if text else None


def labels(tree: ast.Module) -> list[str]:
    """Flatten the normalised tree in pre-order, one label per node and a closing mark."""
    found: list[str] = []
    _flatten(tree, [{}], {}, found)
    return found


def _flatten(node: ast.AST, scopes: list[dict], numbers: dict, out: list[str]) -> None:
    """Append the labels of one node and of all below it.

    Args:
      scopes: one table name -> label for every enclosing scope, innermost last.
      numbers: holds the count of labels given so far.
    """
    if isinstance(node, ast.Constant):
        wording = isinstance(node.value, str | bytes)
        out.append("text" if wording else f"{type(node.value).__name__} {node.value!r}")
        return
    if isinstance(node, ast.Name):
        out.append(_label(node.id, scopes))
        return
    opens_scope = isinstance(
        node,
        ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp,
    )  # fmt: skip
    out.append(_head(node, scopes))
    if opens_scope:
        scopes = [*scopes, _bind(node, numbers)]
    for field in _fields(node):
        value = getattr(node, field, None)
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_wording(child, node):
                _flatten(child, scopes, numbers, out)
            elif isinstance(child, str) and field in ("attr", "module"):
                out.append(child)
    out.append(")")


def _fields(node: ast.AST) -> Sequence[str]:
    if isinstance(node, ast.DictComp):
        return ("generators", "key", "value")
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return ("generators", "elt")  # the loop binds the names that the element uses
    return [field for field in node._fields if field not in _DROPPED]


def _head(node: ast.AST, scopes: list[dict]) -> str:
    kind = type(node).__name__
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return f"{kind} {node.name}"
    if isinstance(node, ast.alias):
        return f"{kind} {node.name}"
    if isinstance(node, ast.arg):
        return f"{kind} {_label(node.arg, scopes)}"
    if isinstance(node, ast.keyword):
        return f"{kind} {node.arg}"
    return kind


def _is_wording(child: ast.AST, parent: ast.AST) -> bool:
    """Tell whether a child is text that people read: a docstring, or words in an f-string."""
    if isinstance(parent, ast.JoinedStr):
        return isinstance(child, ast.Constant)
    if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
        return isinstance(child.value.value, str)
    return False


def _label(name: str, scopes: list[dict]) -> str:
    for scope in reversed(scopes):
        if name in scope:
            return scope[name]
    return f"name {name}"


def _bind(node: ast.AST, numbers: dict) -> dict:
    """Label the names that a scope binds, numbered in order of appearance over the program."""
    table: dict[str, str] = {}
    waiting = list(reversed(list(ast.iter_child_nodes(node))))
    while waiting:
        child = waiting.pop()
        name = None
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            name = child.id
        elif isinstance(child, ast.arg):
            name = child.arg
        elif isinstance(child, ast.ClassDef):
            name = child.name
        elif isinstance(child, ast.ExceptHandler):
            name = child.name
        if name is not None and name not in table:
            numbers["count"] = numbers.get("count", 0) + 1
            table[name] = f"v{numbers['count']}"
        if not _starts_scope(child):
            waiting += reversed(list(ast.iter_child_nodes(child)))
    return table


def _starts_scope(node: ast.AST) -> bool:
    return isinstance(
        node,
        ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp,
    )  # fmt: skip
