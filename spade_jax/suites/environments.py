"""Suites of environments: the seed environments, any directory, reasoning-gym and GEM.

A task is one environment with its instances; all are played plain, each once, from seeds that
training never uses. A question is solved where the return is 1, which is what reasoning-gym and
RLVE call right: a part of it, as some of their scorers give, is reward in training and not solved
here. Packages are never run here: what wraps them is a program of the sandbox.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from spade_jax import fingerprints, library, programs, records, rollout, seed_files, seeds
from spade_jax.suites import libraries, suite

_TOGETHER = 64  # plays sampled together


def of_seeds(
    name: str,
    folder: str,
    setting: str,
    split: str,
    instances: int,
    max_turns: int,
    role: Literal["validation", "test"],
) -> suite.Suite:
    """New instances of the seed environments of one split."""
    found = {
        seed.family: library.environment(seed, uid=-1 - n, max_turns=max_turns)
        for n, seed in enumerate(library.load(folder, (setting,), (split,)))
    }
    if not found:
        raise ValueError(
            f"{folder} has no {split} environments of setting {setting!r}; check "
            "seed_environments and setting."
        )
    return of(name, found, instances, role)


def of_directory(
    folder: str,
    instances: int,
    max_turns: int,
    role: Literal["validation", "test"] = "test",
) -> suite.Suite:
    """Any directory of environment programs; a program's base class says its setting."""
    paths = sorted(pathlib.Path(folder).rglob("*.py"))
    found = {}
    for path in paths:
        if path.name != "__init__.py":
            task = path.relative_to(folder).with_suffix("").as_posix()
            source = path.read_text(encoding="utf-8")
            found[task] = program(source, uid=-1 - len(found), max_turns=max_turns, family=task)
    if not found:
        raise ValueError(f"{folder} holds no environment programs (*.py).")
    return of(f"environments:{pathlib.Path(folder).name}", found, instances, role)


def reasoning_gym(path: str, instances: int, max_turns: int) -> suite.Suite:
    """Data sets of reasoning-gym.

    Args:
      path: JSON object, name of a data set -> its configuration; or the package's own form, a list
        `categories` of objects with `datasets`, each with `dataset` and `params`. The paper's hard
        split where it holds that configuration.
      max_turns: tries of each question; the paper's split has 2.
    Raises:
      ValueError: the file holds neither.
    """
    chosen = _configurations(path)
    found = {
        name: program(
            libraries.program("reasoning_gym", [name, config, None], max_turns),
            uid=-1 - n,
            max_turns=max_turns,
            family=name,
        )
        for n, (name, config) in enumerate(sorted(chosen.items()))
    }
    made = of("reasoning_gym", found, instances, "test")
    return dataclasses.replace(made, settings={**made.settings, "configuration": chosen})


def _configurations(path: str) -> dict[str, dict]:
    content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    if isinstance(content, dict) and isinstance(content.get("categories"), list):
        rows = [row for part in content["categories"] for row in part["datasets"]]
        content = {row["dataset"]: row.get("params") or {} for row in rows}
    plain = isinstance(content, dict) and all(isinstance(v, dict) for v in content.values())
    if not plain or not content:
        raise ValueError(
            f"{path} must hold an object, name of a data set -> its configuration (an object), or "
            "the list `categories` of reasoning-gym's evaluation files."
        )
    return {
        name: {k: v for k, v in config.items() if k not in ("size", "seed")}
        for name, config in content.items()
    }


def gem(names: Sequence[str], instances: int, max_turns: int) -> suite.Suite:
    """Environments of GEM by their identifiers."""
    found = {
        name: program(
            libraries.program("gem", [name, {}], max_turns),
            uid=-1 - n,
            max_turns=max_turns,
            family=name,
        )
        for n, name in enumerate(names)
    }
    return of("gem", found, instances, "test")


def of(
    name: str,
    found: Mapping[str, records.Environment],
    instances: int,
    role: Literal["validation", "test"],
) -> suite.Suite:
    """Make a suite of environments, each with `instances` questions."""
    rows = {task: row for row, task in enumerate(found)}

    def score(bench: suite.Bench, tasks: Sequence[str]) -> Iterator[suite.Result]:
        for block in suite.blocks(tasks, max(1, _TOGETHER // instances)):
            streams = [bench.stream(task) for task in block]
            groups = [
                rollout.Group(
                    environment=found[task],
                    row=rows[task],
                    seed_index=index,
                    seed=int(seed),
                    plays=(1, 0),
                )
                for task, rng in zip(block, streams, strict=True)
                for index, seed in enumerate(seeds.evaluation_seeds(rng, instances))
            ]
            drawn = [rng for rng in streams for _ in range(instances)]
            episodes = bench.play(groups, _InTurn(iter(drawn)))
            for task in block:
                yield _result(task, [e for e in episodes if e.environment == rows[task]])

    return suite.Suite(
        name=name,
        tasks=tuple(found),
        score=score,
        settings={"instances": instances, "programs": [e.digest for e in found.values()]},
        role=role,
    )


def program(source: str, *, uid: int, max_turns: int, family: str) -> records.Environment:
    """Make a program playable; only its text is read here.

    Raises:
      ValueError: it does not parse or has no environment class.
    """
    if seed_files.header(source) is not None:
        source = seed_files.without_header(source)
    tree = programs.parse(source)
    chosen = None if isinstance(tree, programs.Finding) else programs.environment_class(tree)
    if chosen is None:
        detail = getattr(tree, "detail", "no class whose name ends in Env")
        raise ValueError(f"environment {family}: {detail}. Mend the file, or take it away.")
    setting = programs.setting_of(source)
    return records.Environment(
        uid=uid,
        source=source,
        setting=setting,
        skill=records.SKILLS_OF[setting][0],
        difficulty="medium",
        generation=-1,
        class_name=chosen.name,
        digest=fingerprints.digest(tree),
        max_turns=max_turns,
        family=family,
    )


class _InTurn:
    """Stands for one random stream whose draws come from several, one each, in their order.

    A play draws its sampler seeds once, in the order of the groups: so they depend on the play's
    task and not on what else is played beside it.
    """

    def __init__(self, streams: Iterator[np.random.Generator]):
        self._streams = streams

    def integers(self, *arguments: Any, **options: Any) -> np.ndarray:
        return next(self._streams).integers(*arguments, **options)


def _result(task: str, episodes: Sequence[Any]) -> suite.Result:
    ordered = sorted(episodes, key=lambda e: e.seed_index)
    answers = "".join("x" if e.fault else "01"[e.value >= 1.0] for e in ordered)
    faults = sorted({f"{e.fault}: {e.detail}" for e in ordered if e.fault})
    return suite.Result(task=task, answers=answers, detail="; ".join(faults)[:500])
