"""Door: write a grounding corpus from the documentation that every Python carries.

    python -m launch.build_corpus --output=experiments/corpus/python_docs.jsonl

Documents are the language reference topics of pydoc and the docstrings of the standard library,
read from its source files without importing them. The same interpreter writes the same bytes.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import pathlib
import sys
import sysconfig
from collections.abc import Iterator
from pydoc_data import topics

from absl import app, flags

# Packages whose docstrings say little about the world: tests, GUIs, jokes, build machinery.
_LEFT_OUT = {
    "antigravity",
    "dist-packages",
    "distutils",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "this",
    "tkinter",
    "turtledemo",
    "venv",
}


def collect(min_words: int, max_words: int, max_bytes: int) -> list[dict[str, str]]:
    """Gather distinct documents of the asked length.

    Args:
      min_words: least words of a document.
      max_words: most words of a document.
      max_bytes: size of all documents as JSON lines; past it, a sample by hash is kept.
    Returns:
      Objects with "text" and "source" ("topic:NAME" or "docstring:MODULE.NAME"), topics first,
      each kind sorted by name.
    """
    documents = {}
    for source, text in [*_topic_parts(max_words), *_docstrings()]:
        if min_words <= len(text.split()) <= max_words:
            documents.setdefault(text, source)
    kept, size = set(), 0
    for text in sorted(documents, key=lambda text: hashlib.sha256(text.encode()).digest()):
        size += len(_line(text, documents[text]))
        if size > max_bytes:
            break
        kept.add(text)
    return [{"text": text, "source": documents[text]} for text in documents if text in kept]


def _topic_parts(max_words: int) -> Iterator[tuple[str, str]]:
    """Yield pydoc's topics, long ones in parts that end between paragraphs."""
    for name in sorted(topics.topics):
        part = ""
        for paragraph in topics.topics[name].strip().split("\n\n"):
            joined = f"{part}\n\n{paragraph}" if part else paragraph
            if part and len(joined.split()) > max_words:
                yield f"topic:{name}", part.strip()
                joined = paragraph
            part = joined
        yield f"topic:{name}", part.strip()


def _docstrings() -> Iterator[tuple[str, str]]:
    """Yield the docstrings of modules, public classes and public functions, by module name."""
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if any(part in _LEFT_OUT or part.startswith("_") and part != "__init__" for part in parts):
            continue
        module = ".".join(part for part in parts if part != "__init__")
        if parts[0] in sys.stdlib_module_names:
            tree = ast.parse(path.read_bytes())
            yield from _docstrings_below(tree, module)


def _docstrings_below(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    text = ast.get_docstring(node)
    if text:
        yield f"docstring:{name}", inspect.cleandoc(text)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if not child.name.startswith("_"):
                yield from _docstrings_below(child, f"{name}.{child.name}")


def _line(text: str, source: str) -> bytes:
    return (json.dumps({"text": text, "source": source}, ensure_ascii=False) + "\n").encode()


def main(argv: list[str]) -> None:
    """Write the corpus and say what is in it."""
    if len(argv) > 1:
        raise app.UsageError(f"unknown argument {argv[1]!r}; flags look like --output=FILE.")
    documents = collect(flags.FLAGS.min_words, flags.FLAGS.max_words, flags.FLAGS.max_bytes)
    output = pathlib.Path(flags.FLAGS.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    rows = b"".join(_line(document["text"], document["source"]) for document in documents)
    output.write_bytes(rows)
    words = sum(len(document["text"].split()) for document in documents)
    version = ".".join(map(str, sys.version_info[:3]))
    print(
        f"{output}: {len(documents)} documents, {words} words, {len(rows)} bytes, from Python "
        f"{version}, sha256 {hashlib.sha256(rows).hexdigest()[:16]}"
    )


def define_flags() -> None:
    """Declare the flags of this door."""
    flags.DEFINE_string("output", None, "JSONL file to write.", required=True)
    flags.DEFINE_integer("min_words", 40, "Shorter documents are left out.")
    flags.DEFINE_integer("max_words", 400, "Longer ones are split or left out.")
    flags.DEFINE_integer("max_bytes", 1_500_000, "Size of the file; past it, a sample is kept.")


if __name__ == "__main__":
    define_flags()
    app.run(main)
