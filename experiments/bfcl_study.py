"""Do the reference calls of BFCL's multi-turn tasks win in the sandbox, and less than them lose?

    pip download --no-deps bfcl-eval && unzip bfcl_eval-*.whl -d BFCL
    python -m experiments.bfcl_study BFCL 25

Plays the first tasks of each category twice: with the reference calls, and without those of the
last turn that has any. Result: experiments/README.md.
"""

from __future__ import annotations

import ast
import collections
import json
import sys
import time

from sandbox import crew
from spade_jax import domains
from spade_jax.suites import bfcl


def calls_of(turn: list[str], parameters: dict[str, list[str]]) -> list[str]:
    """Write reference calls as tool calls; arguments without a name take the tool's, in order."""
    written = []
    for text in turn:
        call = ast.parse(text, mode="eval").body
        name = call.func.id
        given = {k: ast.literal_eval(v) for k, v in zip(parameters[name], call.args, strict=False)}
        given |= {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        written.append(f"<tool_call>{json.dumps({'name': name, 'arguments': given})}</tool_call>")
    return written


def play(boxes: crew.Crew, program: str, turns: list[list[str]]) -> float | str:
    """Play one task; returns the last reward, or what went wrong."""
    setting = domains.get("tool_use")
    with boxes.open(program, modules=dict(setting.modules), prelude=setting.prelude) as session:
        first = [{"op": "load", "seed": 1, "max_turns": None}, {"op": "reset", "seed": 1}]
        for outcome in session.step([{"play": 0, **request} for request in first]):
            if outcome.status != "ok":
                return f"{outcome.status}: {outcome.detail}"
        for turn in turns:
            for said in [*turn, "That is all."]:
                (step,) = session.step([{"op": "step", "play": 0, "action": said}])
                if step.status != "ok":
                    return f"{step.status}: {step.detail}"
                if step.value["terminated"]:
                    return step.value["reward"]
    return "it did not end"


def main(folder: str, count: int) -> None:
    """Study a folder of the unpacked package."""
    begun, told = time.monotonic(), collections.Counter()
    tasks = bfcl.programs_of(folder)
    print(f"{len(tasks)} tasks read in {time.monotonic() - begun:.1f} s")
    seen: collections.Counter = collections.Counter()
    with crew.Crew() as boxes:
        for task in tasks:
            category = task.environment.family.rsplit("_", 1)[0]
            seen[category] += 1
            if seen[category] > count:
                continue
            turns = [calls_of(turn, task.parameters) for turn in task.answers]
            won = play(boxes, task.environment.source, turns)
            last = max(i for i, turn in enumerate(turns) if turn)
            less = [turn if i != last else [] for i, turn in enumerate(turns)]
            lost = play(boxes, task.environment.source, less)
            told[f"{category}: played"] += 1
            told[f"{category}: the reference wins"] += won == 1.0
            told[f"{category}: less than it loses"] += lost == 0.0
            if (won, lost) != (1.0, 0.0):
                print(f"{task.environment.family}: reference {won}, less {lost}")
    for key, number in sorted(told.items()):
        print(f"{number:5}  {key}")
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
