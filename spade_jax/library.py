"""Seed environments as playable records: choose by setting and split, turn knobs, make variants.

In: a directory of seed files, or a pool (`pool_files.py`). Out: `SeedFile` and
`records.Environment` records. Nothing is run.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np

from spade_jax import fingerprints, pool_files, programs, records, seed_files


def load(
    folder: str | pathlib.Path, settings: Sequence[str], splits: Sequence[str]
) -> list[seed_files.SeedFile]:
    """Read the seed files of some settings and splits, in order of their families.

    Files of a pool are checked, and bring their hint, difficulty and turn limit from its manifest.

    Raises:
      FileNotFoundError: the directory does not exist.
      ValueError: two files claim one family, or a pool's file is damaged or missing.
    """
    if not pathlib.Path(folder).is_dir():
        raise FileNotFoundError(
            f"seed environments: {folder} is no directory. Set config.seed_environments."
        )
    is_pool = (pathlib.Path(folder) / pool_files.MANIFEST).exists()
    rows = pool_files.read(folder) if is_pool else {}
    chosen = [
        _with_row(seed, rows.get(pathlib.Path(seed.path)))
        for seed in seed_files.read_all(folder)
        if seed.setting in settings and seed.split in splits
    ]
    families = [seed.family for seed in chosen]
    twice = {family for family in families if families.count(family) > 1}
    if twice:
        raise ValueError(f"{folder}: families {sorted(twice)} stand in two files; rename one.")
    return sorted(chosen, key=lambda seed: seed.family)


def environment(
    seed: seed_files.SeedFile, *, uid: int, max_turns: int, difficulty: str = "medium"
) -> records.Environment:
    """Make a seed file playable as it stands, with its turn limit capped."""
    if seed.max_turns is not None:
        max_turns = min(seed.max_turns, max_turns)
    code = seed.code if difficulty == "medium" else seed_files.at_difficulty(seed, difficulty)
    tree = programs.parse(code)
    if isinstance(tree, programs.Finding):
        raise ValueError(f"{seed.path}: {tree.reason}: {tree.detail}. Mend the seed file.")
    chosen = programs.environment_class(tree)
    return records.Environment(
        uid=uid,
        source=code,
        setting=seed.setting,
        skill=seed.skill,
        difficulty=seed.difficulty if difficulty == "medium" else difficulty,
        generation=-1,
        class_name=chosen.name if chosen else "",
        digest=fingerprints.digest(tree),
        signature=fingerprints.to_text(fingerprints.signature(tree)),
        max_turns=max_turns,
        family=seed.family,
        hint=seed.hint,
    )


def variant(seed: seed_files.SeedFile, rng: np.random.Generator) -> tuple[str, str]:
    """Turn every knob to a value between its easy and its hard one.

    Returns:
      the program and its difficulty word: that of the third of the range in which the knobs stand
      on average. A program without knobs is "medium".
    """
    values, places = {}, []
    for literal, (easy, _, hard) in seed.knobs.items():
        low, high = min(easy, hard), max(easy, hard)
        value = int(rng.integers(low, high + 1))
        values[literal] = value
        if high > low:
            place = (value - low) / (high - low)
            places.append(place if hard >= easy else 1.0 - place)
    if not places:
        return seed.code, "medium"
    third = min(int(float(np.mean(places)) * 3), 2)
    return seed_files.turn_knobs(seed.code, values), records.DIFFICULTIES[third]


def _with_row(seed: seed_files.SeedFile, row: dict | None) -> seed_files.SeedFile:
    """Add what a pool's manifest says of a file."""
    if row is None:
        return seed
    known = {name: row[name] for name in ("hint", "difficulty", "max_turns")}
    return dataclasses.replace(seed, **known)
