"""The corpus stream is seeded, shared out among hosts, and continues exactly."""

import ast
import json
import pathlib

import pytest

from launch import build_corpus
from spade_jax import corpus

ROOT = pathlib.Path(__file__).resolve().parent.parent


def write(path, lines):
    rows = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def ten(tmp_path):
    return write(
        tmp_path / "ten.jsonl", [{"text": f"doc {i}", "source": f"s{i}"} for i in range(10)]
    )


def draw(stream, count):
    return [stream.next().text for _ in range(count)]


def test_each_epoch_is_another_order_of_all_documents(ten):
    stream = corpus.Corpus(ten, seed=1)
    first, second = draw(stream, 10), draw(stream, 10)
    assert sorted(first) == sorted(second) == [f"doc {i}" for i in range(10)]
    assert first != second


def test_order_is_a_function_of_the_seed(ten):
    one, same, other = (draw(corpus.Corpus(ten, seed=seed), 10) for seed in (1, 1, 2**40 + 2))
    assert one == same != other


@pytest.mark.parametrize("taken", [0, 1, 9, 10, 23])
def test_restored_stream_continues_exactly(ten, taken):
    stream = corpus.Corpus(ten, seed=5)
    draw(stream, taken)
    state = json.loads(json.dumps(stream.state()))
    again = corpus.Corpus(ten, seed=5)
    again.restore(state)
    assert draw(again, 15) == draw(stream, 15)


def test_state_of_another_corpus_is_refused(ten, tmp_path):
    state = corpus.Corpus(ten, seed=1).state()
    other = write(tmp_path / "other.jsonl", [{"text": "else"}])
    with pytest.raises(ValueError, match="cannot continue"):
        corpus.Corpus(other, seed=1).restore(state)
    with pytest.raises(ValueError, match="seed"):
        corpus.Corpus(ten, seed=2).restore(state)


def test_unusable_lines_are_counted_and_skipped(tmp_path):
    lines = ["", "  ", "rubbish", "[1]", {"text": ""}, {"text": 3}, {"other": "x"}]
    lines += [{"text": "", "orig_doc": "kept"}, {"text": "ünïcode"}]
    stream = corpus.Corpus(write(tmp_path / "mixed.jsonl", lines), seed=0)
    assert (len(stream), stream.skipped) == (2, 5)
    assert sorted(draw(stream, 2)) == ["kept", "ünïcode"]


def test_empty_corpus_says_what_to_do(tmp_path):
    empty = write(tmp_path / "empty.jsonl", ["", "rubbish"])
    with pytest.raises(ValueError, match="no usable document .1 lines skipped.*build_corpus"):
        corpus.Corpus(empty, seed=0)
    with pytest.raises(ValueError, match="no usable document"):
        corpus.Corpus([], seed=0)


def test_missing_file_and_other_formats_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="build_corpus"):
        corpus.Corpus(tmp_path / "none.jsonl", seed=0)
    with pytest.raises(ValueError, match="ArrayRecord"):
        corpus.Corpus(tmp_path / "x.array_record", seed=0)


def test_long_passage_is_cut_at_a_word_with_a_mark(tmp_path):
    path = write(tmp_path / "long.jsonl", [{"text": "a  b\n c a b c"}])
    assert corpus.Corpus(path, seed=0, max_words=4).next().text == "a  b\n c a [...]"
    assert corpus.Corpus(path, seed=0, max_words=6).next().text == "a  b\n c a b c"


def test_several_files_are_one_corpus(ten, tmp_path):
    more = write(tmp_path / "more.jsonl", [{"text": "more"}])
    assert len(corpus.Corpus([ten, more], seed=0)) == 11


def test_committed_corpus_is_usable():
    path = ROOT / "experiments/corpus/python_docs.jsonl"
    stream = corpus.Corpus(path, seed=0)
    assert len(stream) > 500 and stream.skipped == 0
    assert path.stat().st_size < 1_600_000
    passage = stream.next()
    assert passage.source and len(passage.text.split()) >= 40


def test_built_documents_are_distinct_and_of_the_asked_length(tmp_path):
    documents = build_corpus.collect(40, 400, 200_000)
    assert documents == build_corpus.collect(40, 400, 200_000)
    texts = [document["text"] for document in documents]
    assert len(set(texts)) == len(texts) > 100
    assert all(40 <= len(text.split()) <= 400 for text in texts)
    assert {document["source"].split(":")[0] for document in documents} == {"topic", "docstring"}


def test_building_a_corpus_imports_no_documented_module():
    tree = ast.parse(pathlib.Path(build_corpus.__file__).read_text())
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert "import_module" not in names and "exec_module" not in names
