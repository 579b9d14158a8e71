"""Questions with one short answer in a box: files in the formats of AIME and of GPQA."""

from __future__ import annotations

import csv
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from spade_jax.domains import games
from spade_jax.suites import code, suite

LETTERS = "ABCDEFGHIJ"
BLOCK = 64  # questions sampled together
_ANSWER = "{question}\n\nPut your final answer within \\boxed{{}}."
_CHOOSE = "{question}\n\n{choices}\n\nPut the letter of the right choice within \\boxed{{}}."
_WRONG = re.compile(r"incorrect answer \d+", re.IGNORECASE)


def aime(path: str, samples: int = 1, k: Sequence[int] = (1,)) -> suite.Suite:
    """Read questions with `problem` (or `question`) and `answer`; JSON lines, JSON or CSV.

    Raises:
      ValueError: a question lacks its text or its answer, or two have one name.
    """
    asked = {}
    for number, row in enumerate(_rows(path)):
        question = row.get("problem") or row.get("question")
        answer = plain(str(row.get("answer", "")))
        if not question or not answer:
            raise ValueError(
                f"{path}: question {number} has the keys {sorted(row)}; it needs `problem` (or "
                "`question`) and `answer`, neither of them empty."
            )
        _add(asked, f"aime/{row.get('id', number)}", _ANSWER.format(question=question), answer)
    return _suite("aime", asked, plain, samples, k)


def gpqa(path: str, samples: int = 1, k: Sequence[int] = (1,)) -> suite.Suite:
    """Read multiple-choice questions; the order of the choices is drawn once per question.

    Rows have `question`, `correct answer` and `incorrect answer 1`, 2, 3 (any capitals), or
    `question`, `choices` and `answer` (a letter or an index from 0).

    Raises:
      ValueError: the right choice is not there, or two questions have one name.
    """
    asked = {}
    for number, row in enumerate(_rows(path)):
        row = {key.lower(): value for key, value in row.items()}
        right, wrong = _choices(row)
        rng = np.random.default_rng([number, len(wrong)])
        order = rng.permutation(len(wrong) + 1)
        shown = [[right, *wrong][i] for i in order]
        listed = "\n".join(f"{LETTERS[i]}) {text}" for i, text in enumerate(shown))
        letter = LETTERS[int(np.flatnonzero(order == 0)[0])]
        text = _CHOOSE.format(question=row["question"], choices=listed)
        _add(asked, f"gpqa/{row.get('record id', number)}", text, letter)
    return _suite("gpqa", asked, _letter, samples, k)


def plain(answer: str) -> str:
    """Write an answer so that spellings of one value are equal: 073, 73.0 and $73$ are 73."""
    text = answer.strip().strip("$").replace("\\,", "").replace(",", "").replace(" ", "")
    if re.fullmatch(r"[+-]?\d+(\.0*)?", text):
        return str(int(text.split(".")[0]))
    return text.rstrip(".")


def _suite(name, asked: Mapping[str, tuple[str, str]], read, samples: int, k) -> suite.Suite:
    def score(bench: suite.Bench, tasks: Sequence[str]) -> Iterator[suite.Result]:
        for block in suite.blocks(tasks, BLOCK):
            replies = suite.ask_each(bench, block, [asked[task][0] for task in block], samples)
            for task, tries in zip(block, replies, strict=True):
                right = [
                    r is not None and read(games.boxed(r) or "") == asked[task][1] for r in tries
                ]
                yield suite.Result(task=task, answers="".join("01"[r] for r in right))

    return suite.Suite(
        name=name,
        tasks=tuple(asked),
        score=score,
        settings={"samples": samples},
        repeated=True,
        k=tuple(k),
    )


def _add(asked: dict, name: str, question: str, answer: str) -> None:
    if name in asked:
        raise ValueError(f"{name} stands there twice; give each question a name of its own.")
    asked[name] = (question, answer)


def _letter(answer: str) -> str:
    found = re.match(r"\(?([A-Ja-j])\b", answer.strip())
    return found[1].upper() if found else ""


def _choices(row: Mapping) -> tuple[str, list[str]]:
    """Give the right choice and the wrong ones."""
    if "choices" in row:
        choices, answer = list(row["choices"]), row["answer"]
        places = {name: i for i in range(len(choices)) for name in (LETTERS[i], str(i))}
        index = places.get(str(answer).strip())
        if index is None:
            raise ValueError(
                f"question {row.get('question')!r}: answer={answer!r} is none of its "
                f"{len(choices)} choices; give a letter from A or an index from 0."
            )
        return choices[index], choices[:index] + choices[index + 1 :]
    wrong = [str(row[key]).strip() for key in row if _WRONG.fullmatch(key)]
    if "correct answer" not in row or not wrong:
        raise ValueError(
            f"a question has the keys {sorted(row)}; it needs `correct answer` and `incorrect "
            "answer 1`, or `choices` and `answer`."
        )
    return str(row["correct answer"]).strip(), wrong


def _rows(path: str) -> list[Mapping]:
    if path.endswith(".csv"):
        with pathlib.Path(path).open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    return code.read_lines(path)
