"""LiveCodeBench: how its files are read and what counts as right, run in the sandbox."""

import base64
import json
import pickle
import shutil
import zlib

import pytest

from launch import suite_names
from sandbox import crew
from spade_jax import settings
from spade_jax.suites import livecode, suite

SUM = [("1 2\n", "3\n"), ("5 -7\n", "-2")]
HALF = [("1\n", "0.5"), ("4\n", "2")]


def case(pairs, kind="stdin"):
    return [{"input": a, "output": b, "testtype": kind} for a, b in pairs]


def packed(tests):
    """Hidden tests as the data set has them."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def problem(shown=SUM[:1], hidden=SUM[1:], name="", **changes):
    kind = "functional" if name else "stdin"
    fields = {
        "question_id": "q", "question_content": "Add {two}.", "starter_code": "",
        "public_test_cases": json.dumps(case(shown, kind)),
        "private_test_cases": packed(case(hidden, kind)),
        "metadata": json.dumps({"func_name": name} if name else {}),
    }  # fmt: skip
    return fields | changes


PAIRS = problem(
    [("[3, 1]\n4", "[5, 7]")], [("[]\n9", "[]")], name="shift",
    starter_code="class Solution:\n    def shift(self, xs, by):",
)  # fmt: skip


@pytest.fixture(scope="module")
def boxes():
    tier = "gvisor" if shutil.which("runsc") else "subprocess"
    with crew.Crew(crew.CrewConfig(tier=tier, boxes=2)) as made:
        yield made


def marks(boxes, given, texts):
    replies = [text and f"So:\n```python\n{text}\n```" for text in texts]
    (result,) = livecode.judge(boxes, ["t"], [given], [replies])
    return result.answers


def test_hidden_tests_are_read_in_both_forms_and_no_pickle_is_loaded():
    given = problem()
    assert [t["output"] for t in livecode.tests(given)] == ["3\n", "-2"]
    assert livecode.tests(given | {"private_test_cases": json.dumps(case(SUM[1:]))}) == (
        livecode.tests(given)
    )
    long = packed(case([("x" * 70_000, "y")]))  # another operation holds texts of this length
    assert len(livecode.hidden(long)[0]["input"]) == 70_000

    class Evil:
        def __reduce__(self):
            return print, ("[]", "loaded")

    hostile = base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode()
    with pytest.raises(ValueError, match="too many values"):
        livecode.hidden(hostile)


def test_programs_that_read_stdin_are_run_on_every_test(boxes):
    texts = [
        "a, b = map(int, input().split())\nprint(a + b)",
        "if __name__ == '__main__':\n    print(sum(map(int, sys.stdin.read().split())))",
        "print(sum(map(int, input().split())))\nsys.exit()",  # sys need not be imported
        "print(3)",  # right on the test that is shown
        "a, b = map(int, input().split())\nprint(a + b)\nraise ValueError",
        "while True: pass",
        "x = (",
        None,
    ]
    assert marks(boxes, problem(), texts) == "11100000"


# [3, 1] and 4 give [5, 7], [] gives []. A tuple counts as a list; what is no JSON equals nothing.
def test_functions_are_called_by_name_in_the_class_or_in_the_module(boxes):
    right = "return sorted(x + by for x in xs)"
    texts = [
        f"class Solution:\n    def shift(self, xs: List[int], by):\n        {right}",
        f"def shift(xs, by):\n    {right}",
        "def shift(xs, by):\n    return tuple(sorted(x + by for x in xs))",
        "def shift(xs, by):\n    return [5, 7]",
        "def other(xs, by):\n    return xs",
        "def shift(xs, by):\n    return {4}",
        "class A:\n    __eq__ = lambda a, b: True\ndef shift(xs, by):\n    return A()",
    ]
    assert marks(boxes, PAIRS, texts) == "1110000"


@pytest.mark.parametrize(
    ("said", "wanted", "same"),
    [
        (" a b \n\n", "a b", True),
        ("a  b", "a b", False),  # white space counts between words
        ("1   2.50", "1 2.5", True),  # but not between numbers, which count by value
        ("50000000000000000", "50000000000000001", False),
        ("1\n2", "1 2", False),
        ("1\n\n2", "1\n2", False),
        ("nan", "NaN", False),
        ("1.0000001", "1", False),
        ("", "", True),
    ],
)
def test_outputs_are_compared_by_line_and_numbers_by_value(said, wanted, same):
    assert livecode.same_text(said, wanted) == same


def test_a_file_is_a_suite_with_several_tries_of_each_task(boxes, tmp_path):
    path = tmp_path / "test.jsonl"
    rows = [problem(), PAIRS | {"question_id": "r"}, problem(HALF[:1], HALF[1:], question_id="s")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sizes = suite_names.Sizes(samples=2, k=(1, 2))
    (made,) = suite_names.read([f"livecodebench:{path}"], settings.RunConfig(), sizes)
    asked = []

    def ask(talks, seeds):
        asked.extend(talk[0]["content"] for talk in talks)
        adds = "```python\nprint(sum(map(int, input().split())))\n```"
        return [adds, "print(int(input()) / 2)"] * 3  # a reply without a fence is a program

    bench = suite.Bench(ask=ask, crew=boxes, play=None, seed=1)
    found = {result.task: result.answers for result in made.score(bench, made.tasks)}
    assert found == {"livecodebench/q": "10", "livecodebench/r": "00", "livecodebench/s": "01"}
    assert asked[0].startswith("Add {two}.\n\nRead the input from stdin")
    assert "def shift(self, xs, by):\n```" in asked[2] and made.k == (1, 2)


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps(problem(private_test_cases="")) + "\n")
    with pytest.raises(ValueError, match="livecodebench/q lacks private_test_cases"):
        livecode.livecodebench(str(path))
    path.write_text(json.dumps(problem(name="f(x); print")) + "\n")
    with pytest.raises(ValueError, match="no name of Python"):
        livecode.livecodebench(str(path))
