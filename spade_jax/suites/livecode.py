"""LiveCodeBench, code generation: programs that read stdin or define one function, in the sandbox.

In: JSON lines of `livecodebench/code_generation_lite` (fields question_id, question_content,
starter_code, public_test_cases, private_test_cases, metadata). Out: a suite. A try is right where
every test is. Answers are compared here: what is expected never enters a box.
Source: testing_util.py of LiveCodeBench (arXiv:2403.07974) for what counts as right. Differs: each
test has a process of its own; a program may end with a `__main__` block anywhere, but leaving with
an exit code other than 0 is wrong; nested tuples count as lists; the wording of the prompt is ours.
"""

from __future__ import annotations

import base64
import concurrent.futures
import decimal
import json
import pickletools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sandbox import records as sandbox_records
from spade_jax import programs
from spade_jax.suites import code, suite

LIMITS = sandbox_records.Limits(
    wall_seconds=20.0, cpu_seconds=6.0, memory_bytes=1 << 30, output_bytes=16 << 20
)
ANSWER = "answer_of_this_test"
TOGETHER = 8  # tests of one try at once; after the first that fails no more begin
TRIES = 16  # that are judged at once
_STARRED = (  # whose names programs may use without importing them; later ones win
    "string re datetime collections heapq bisect copy math random statistics itertools functools "
    "operator io sys json builtins typing"
).split()
_PLAIN = [name for name in _STARRED if name not in ("builtins", "typing")]
PRELUDE = "\n".join(
    [*(f"from {name} import *" for name in _STARRED), f"import {', '.join(_PLAIN)}"]
    + ["sys.setrecursionlimit(50000)", ""]
)
_READ = (
    "{question}\n\nRead the input from stdin and write the answer to stdout; do not test it on the "
    "samples yourself. Answer with the whole program in one ```python block."
)
_COMPLETE = (
    "{question}\n\nComplete this code and answer with all of it in one ```python block.\n\n"
    "```python\n{starter}\n```"
)


def livecodebench(path: str, samples: int = 1, k: Sequence[int] = (1,)) -> suite.Suite:
    """Read a file of problems; a release is all of its files, one after the other.

    Raises:
      ValueError: a problem lacks its text, its tests or the name of its function.
    """
    problems = {f"livecodebench/{p['question_id']}": p for p in code.read_lines(path)}
    for task, problem in problems.items():
        _check(task, problem)

    def score(bench: suite.Bench, tasks: Sequence[str]) -> Iterator[suite.Result]:
        for block in suite.blocks(tasks, code.BLOCK):
            prompts = [prompt(problems[task]) for task in block]
            replies = suite.ask_each(bench, block, prompts, samples)
            yield from judge(bench.crew, block, [problems[task] for task in block], replies)

    return suite.Suite(
        name="livecodebench",
        tasks=tuple(problems),
        score=score,
        settings={"samples": samples},
        repeated=True,
        k=tuple(k),
    )


def prompt(problem: code.Problem) -> str:
    """Ask for a program, or for the function that the starter code begins."""
    template = _COMPLETE if problem.get("starter_code") else _READ
    filled = template.replace("{starter}", problem.get("starter_code") or "")
    return filled.replace("{question}", problem["question_content"])


def tests(problem: code.Problem) -> list[Mapping[str, str]]:
    """List all tests: those that the question shows and the hidden ones."""
    return [*json.loads(problem["public_test_cases"]), *hidden(problem["private_test_cases"])]


def hidden(text: str) -> list[Mapping[str, str]]:
    """Read hidden tests: JSON, or base64 of a compressed pickle of JSON text.

    The pickle is not loaded: its one text is picked out of the listing of its operations.
    """
    if text.lstrip().startswith("["):
        return json.loads(text)
    listed = pickletools.genops(zlib.decompress(base64.b64decode(text)))
    (held,) = [argument for _, argument, _ in listed if isinstance(argument, str)]
    return json.loads(held)


def judge(
    crew: Any,
    tasks: Sequence[str],
    problems: Sequence[code.Problem],
    replies: Sequence[Sequence[str | None]],
) -> Iterator[suite.Result]:
    """Run the tries of each task against its tests; None is one that had no room, and is wrong."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=TRIES) as pool:
        for task, problem, tries in zip(tasks, problems, replies, strict=True):
            wanted, name = tests(problem), function(problem)
            asked = [pool.submit(_verdict, crew, reply, wanted, name) for reply in tries]
            found = [future.result() for future in asked]
            details = dict.fromkeys(detail for _, detail in found if detail)
            yield suite.Result(
                task=task, answers="".join(mark for mark, _ in found), detail="; ".join(details)
            )


def function(problem: code.Problem) -> str:
    """Name the function that the tests call; empty where programs read stdin."""
    return json.loads(problem.get("metadata") or "{}").get("func_name") or ""


def same_text(said: str, wanted: str) -> bool:
    """Compare outputs line by line, without white space around them; numbers by their value."""
    ours, theirs = ([line.strip() for line in text.strip().split("\n")] for text in (said, wanted))
    return len(ours) == len(theirs) and all(map(_same_line, ours, theirs))


def _same_line(said: str, wanted: str) -> bool:
    if said == wanted:
        return True
    try:
        ours, theirs = ([decimal.Decimal(word) for word in x.split()] for x in (said, wanted))
    except decimal.InvalidOperation:
        return False
    return ours == theirs


def _verdict(crew: Any, reply: str | None, wanted, name: str) -> tuple[str, str]:
    """Judge one try: its mark, and what went wrong."""
    if reply is None:
        return "0", "the prompt leaves no room"
    fenced = programs.extract_code(reply)
    source = PRELUDE + (programs.without_thinking(reply) if fenced is None else fenced)
    if name:
        owner = "Solution()." if "class Solution" in source else ""
        source += f"\n\ndef {ANSWER}(arguments):\n    return {owner}{name}(*arguments)\n"
    for part in suite.blocks(wanted, TOGETHER):
        futures = [_start(crew, source, name, test) for test in part]
        for test, future in zip(part, futures, strict=True):
            outcome = future.result()
            if outcome.status == "timeout" and (
                outcome.cpu_seconds < code.STARVED * outcome.wall_seconds
            ):
                outcome = _start(crew, source, name, test).result()
            if outcome.status == sandbox_records.INFRA:
                return "x", outcome.detail[:200]
            if outcome.status != sandbox_records.OK:
                return "0", f"{outcome.status}: {outcome.detail}"[:200]
            if not _right(outcome, name, test):
                return "0", "a wrong answer"
    return "1", ""


def _start(crew: Any, source: str, name: str, test: Mapping[str, str]):
    if not name:
        return crew.start_run(source, test["input"], LIMITS)
    arguments = [json.loads(line) for line in test["input"].split("\n")]
    return crew.start_call(source, ANSWER, [arguments], LIMITS)


def _right(outcome: sandbox_records.Outcome, name: str, test: Mapping[str, str]) -> bool:
    if name:
        return outcome.value == [json.loads(test["output"])]
    return same_text(outcome.stdout, test["output"])


def _check(task: str, problem: code.Problem) -> None:
    needed = ("question_content", "public_test_cases", "private_test_cases")
    missing = [name for name in needed if not problem.get(name)]
    if missing:
        raise ValueError(f"{task} lacks {', '.join(missing)}; name a file of LiveCodeBench.")
    if function(problem) and not function(problem).isidentifier():
        raise ValueError(f"{task}: its function {function(problem)!r} is no name of Python.")
