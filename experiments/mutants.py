"""Mutants: are broken environments refused, each for what is broken, and sound ones accepted?

Shows:     mutants of the seed environments, each broken in one property by `mutations.py`, and how
           many of them every check refuses; the sound programs that are refused; hints that tell
           the answer, and whether the gate keeps them.
Source:    the checks of `spade_jax/validate.py` and the gate of `spade_jax/hint.py`.
Command:   python -m experiments.mutants [--draw=1] [--only=NAMES] [--unsafe_subprocess]
Hardware:  2 CPU cores with gVisor, about 4 minutes.
Result:    the tables in experiments/README.md.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments import mutations
from sandbox import crew as crew_lib
from spade_jax import domains, fingerprints, neighbours, programs, records, seed_files, validate

FOLDER = pathlib.Path(__file__).parent / "seed_environments"
COPIES = 3  # programs that a mutation is applied to
CONFIG = validate.ValidateConfig()


class Mutant(NamedTuple):
    """A program broken on purpose."""

    mutation: mutations.Mutation
    family: str  # of the seed environment
    setting: str
    source: str


class Judged(NamedTuple):
    """What came of one mutant."""

    mutant: Mutant
    reason: str  # "accepted" where it was not refused
    detail: str


def generate(copies: int = COPIES, draw: int = 0) -> list[Mutant]:
    """Make all mutants: of each mutation up to `copies`, over settings in turn.

    The programs are drawn by a seed of the mutation's name and `draw`.
    """
    seeds = seed_files.read_all(FOLDER)
    made = []
    for mutation in mutations.mutations():
        rng = np.random.default_rng([zlib.crc32(mutation.name.encode()), draw])
        by_setting = [
            [s for s in seeds if s.setting == name and _fits(mutation, s)]
            for name in mutation.settings
        ]
        for members in by_setting:
            rng.shuffle(members)
        for i in range(copies):
            members = by_setting[i % len(by_setting)]
            if i // len(by_setting) < len(members):
                seed = members[i // len(by_setting)]
                source = mutation.mutate(seed.code)
                made.append(Mutant(mutation, seed.family, seed.setting, source))
    return made


def judge(mutants: Sequence[Mutant], crew, config: validate.ValidateConfig) -> list[Judged]:
    """Examine every mutant as a draft of its own; copies are compared with the sound programs."""
    known = _sound_ones()
    judged: dict[int, Judged] = {}
    for setting in mutations.ALL:
        for copied in (False, True):
            chosen = [
                i
                for i, m in enumerate(mutants)
                if m.setting == setting and (m.mutation.reason == "duplicate") == copied
            ]
            drafts = [draft(mutants[i].source, i) for i in chosen]
            against = known if copied else None
            verdicts = validate.examine(drafts, crew, domains.get(setting), config, against)
            for i, verdict in zip(chosen, verdicts, strict=True):
                finding = verdict.finding or programs.Finding(reason="accepted", detail="")
                judged[i] = Judged(mutants[i], finding.reason, finding.detail)
    return [judged[i] for i in range(len(mutants))]


def refused_sound(crew, config: validate.ValidateConfig) -> tuple[int, list[str]]:
    """Examine the sound programs; gives how many there are, and a line for each that is refused."""
    seeds, lines = seed_files.read_all(FOLDER), []
    for setting in mutations.ALL:
        chosen = [seed for seed in seeds if seed.setting == setting]
        drafts = [draft(seed.code, uid) for uid, seed in enumerate(chosen)]
        verdicts = validate.examine(drafts, crew, domains.get(setting), config)
        lines += [
            f"{seed.family}: {verdict.finding.reason}: {verdict.finding.detail}"
            for seed, verdict in zip(chosen, verdicts, strict=True)
            if verdict.finding is not None
        ]
    return len(seeds), lines


def draft(source: str, uid: int) -> records.Draft:
    """Write a program as a draft."""
    return records.Draft(
        uid=uid, generation=0, skill="", difficulty="medium", prompt_ids=(),
        reply=records.Reply(ids=(), logps=(), stopped=True), text=source, source=source, version=0,
    )  # fmt: skip


def table(judged: Sequence[Judged]) -> str:
    """Write one row per check: mutants, refused, refused for the right reason."""
    lines = [f"{'check':<24}{'mutants':>8}{'refused':>9}{'rightly':>9}"]
    counts = collections.Counter(j.mutant.mutation.reason for j in judged)
    for reason in [name for name in validate.CHECKS if name in counts] + ["all"]:
        row = [j for j in judged if reason in ("all", j.mutant.mutation.reason)]
        refused = sum(j.reason != "accepted" for j in row)
        rightly = sum(j.reason == j.mutant.mutation.reason for j in row)
        lines.append(f"{reason:<24}{len(row):>8}{refused:>9}{rightly:>9}")
    return "\n".join(lines)


def misses(judged: Sequence[Judged]) -> list[str]:
    """List the mutants that were not refused for what is broken."""
    return [
        f"{m.mutation.name} of {m.setting}/{m.family}: {reason}, not {m.mutation.reason}: {detail}"
        for m, reason, detail in judged
        if reason != m.mutation.reason
    ]


def _fits(mutation: mutations.Mutation, seed: seed_files.SeedFile) -> bool:
    return not mutation.families or seed.family in mutation.families


def _sound_ones() -> neighbours.Neighbours:
    known = neighbours.Neighbours()
    for uid, seed in enumerate(seed_files.read_all(FOLDER)):
        tree = programs.parse(seed.code)
        neighbours.add(known, uid, fingerprints.digest(tree), fingerprints.signature(tree))
    return known


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names of mutations, with commas")
    parser.add_argument("--unsafe_subprocess", action="store_true", help="run without gVisor")
    parser.add_argument("--draw", type=int, default=0, help="other programs for each mutation")
    given = parser.parse_args()
    tier = "subprocess" if given.unsafe_subprocess else "gvisor"
    mutants = generate(draw=given.draw)
    if given.only:
        mutants = [m for m in mutants if m.mutation.name in given.only.split(",")]
    with crew_lib.Crew(crew_lib.CrewConfig(tier=tier)) as crew:
        judged = judge(mutants, crew, CONFIG)
        print(table(judged))
        print("\nnot refused for what is broken:", *misses(judged), sep="\n  ")
        if not given.only:
            count, lines = refused_sound(crew, CONFIG)
            print(f"\nsound environments refused: {len(lines)} of {count}", *lines, sep="\n  ")


if __name__ == "__main__":
    main()
