"""The corridor: an iteration is a walk through the rooms, and only here do they meet.

  design -> validate -> hint -> pool(draw) -> rollout -> batch -> learn -> pool(settle)

In: a `Machine` (policy, sandbox, corpus) and the `Progress` of a run. Out: the next `Progress`, the
iteration's metrics and a readable sample. Source: SPADE (arXiv:2608.19197), algorithm 1.
"""

from __future__ import annotations

import collections
import dataclasses
import os
from typing import Any

import jax
import numpy as np

from spade_jax import (
    answering,
    archive,
    batch,
    design,
    figures,
    generation,
    learn,
    ledger,
    library,
    machine,
    pool,
    pool_files,
    records,
    reviewing,
    rollout,
    safeguards,
    seed_files,
    seeds,
    settings,
    story,
    window,
)


@dataclasses.dataclass
class Progress:
    """Everything that evolves; a checkpoint holds `train` as arrays and the rest as JSON."""

    train: learn.TrainState
    pool: pool.Pool
    iteration: int = 0  # iterations done
    generation: int = 0  # generations written
    next_uid: int = 0
    corpus: dict | None = None  # state of the passage stream
    quota_Z: list[float] = dataclasses.field(default_factory=list)
    win_rate_Z: list[float] = dataclasses.field(default_factory=list)
    totals: dict[str, float] = dataclasses.field(default_factory=dict)
    evaluations: list[dict] = dataclasses.field(default_factory=list)
    health: safeguards.Health = safeguards.Health()
    windows: dict[str, window.Window] = dataclasses.field(default_factory=dict)  # by family


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """What an iteration hands to the outside."""

    metrics: records.Metrics
    sample: str
    notice: str  # of the safeguards, empty while healthy


def to_host(progress: Progress) -> dict[str, Any]:
    """Everything of a run but its arrays, JSON-able; programs are on disk when it returns."""
    progress.pool.archive.sync()
    return snapshot(progress)


def snapshot(progress: Progress) -> dict[str, Any]:
    """Do what `to_host` does, without waiting for the disk."""
    fields = {f.name: getattr(progress, f.name) for f in dataclasses.fields(progress)}
    del fields["train"]
    return fields | {
        "pool": pool.to_json(progress.pool),
        "health": dataclasses.asdict(progress.health),
        "windows": {name: dataclasses.asdict(one) for name, one in progress.windows.items()},
    }


def from_host(
    train: learn.TrainState, values: dict[str, Any], programs: str | os.PathLike
) -> Progress:
    """Put a run together from what a checkpoint holds and the file of its programs."""
    read = {
        "pool": pool.from_json(values["pool"], programs),
        "health": safeguards.from_json(values["health"]),
        "windows": {name: window.Window(**one) for name, one in values["windows"].items()},
    }
    return Progress(train=train, **(values | read))


def start(
    config: settings.RunConfig,
    world: machine.Machine,
    params: Any,
    kept: archive.Archive | None = None,
) -> Progress:
    """Begin a run at given parameters; a fixed pool is filled from the seed environments.

    Args:
      kept: where programs are kept; None keeps them in a temporary file.
    """
    skills = records.MOST_SKILLS
    progress = Progress(
        train=learn.init(
            params, world.model, config.learn, config.curriculum, config.pool.slots, world.mesh
        ),
        pool=pool.empty(config.pool, kept),
        corpus=world.corpus.state() if world.corpus else None,
        quota_Z=[1.0 / skills] * skills,
        win_rate_Z=[float("nan")] * skills,
    )
    if config.mode == "fixed_pool":
        found = fixed_programs(config)
        turns = config.rollout.max_turns
        slots = pool.admit(
            progress.pool,
            [library.environment(s, uid=-1 - i, max_turns=turns) for i, s in enumerate(found)],
            config.pool,
        )
        if min(slots, default=-1) < 0:
            raise ValueError(
                f"pool.slots={config.pool.slots} cannot hold the {len(slots)} environments of "
                f"{config.pool_folder or config.seed_environments}; set pool.slots >= {len(slots)}."
            )
    return progress


def fixed_programs(config: settings.RunConfig) -> list[seed_files.SeedFile]:
    """Read the programs of a fixed pool.

    Raises:
      ValueError: there is none of the setting, or they import what the sandbox does not lend.
    """
    folder = config.pool_folder or config.seed_environments
    needed = pool_files.packages(folder)
    if not set(needed) <= set(config.sandbox.packages):
        raise ValueError(
            f"{folder} holds programs that import {', '.join(needed)}. Install them, and set "
            f"sandbox.packages={tuple(needed)}."
        )
    found = library.load(folder, (config.setting,), ("train",))
    if not found:
        others = {s.setting for s in library.load(folder, tuple(records.SKILLS_OF), ("train",))}
        raise ValueError(
            f"{folder} holds no train environments of setting {config.setting!r}. Set "
            f"config.setting to {' or '.join(sorted(others)) or 'theirs'}, or name another "
            "directory."
        )
    return found


def iterate(progress: Progress, world: machine.Machine, config: settings.RunConfig) -> Step:
    """Advance `progress` by one iteration."""
    t = progress.iteration
    clock = story.Clock(world.group.enter)
    answer = safeguards.answer(progress.health, config.safeguards)
    fresh = pool.alive(progress.pool).tolist() if t == 0 else []
    fresh += answering.prepare(progress, config, answer)
    waiting_before = len(progress.pool.waiting)
    written = story.Written()
    if config.mode == "self_play" and t % config.design.every == 0:
        written = generation.write(progress, world, config, clock, answer)
        fresh += [slot for slot in written.slots + written.repaired_slots if slot >= 0]
    rng = seeds.stream(config.seed, "pool", t)
    slots = draw(progress, config, rng)
    with clock.stage("hint"):
        hint_refusals = write_hints(slots, progress, world, config)
        hint_refusals += written.screening.hint_refusals
    table, levels = lay_table(slots, progress, config, rng)
    with clock.stage("rollout"):
        played = play(table, progress, world, config)
    reviews = reviewing.apply(table, slots, played.episodes, progress, world, config, clock)
    window.note(progress.windows, table, levels, played.episodes, config.window)
    with clock.stage("batch"):
        due = pool.due(progress.pool, t, last=t + 1 == config.iterations)
        blind_N = note_play(progress.pool, slots, played)
        paused = config.design.frozen or "pause" in answer.standing
        made = batch.build(
            played.episodes,
            [credit_of(waiting, progress.pool, config, paused) for waiting in due],
            slots=slots,
            fresh={p: skill_index(pool.environment(progress.pool, p)) for p in fresh},
            pool_slots=config.pool.slots,
            shape=table_shape(config),
            config=config.batch,
            mesh=world.mesh,
            agent_temperature=config.rollout.temperature,
        )
    masked = ledger.check_batch(
        len(played.episodes), len(due), made.counts, planned(table, config), played.dropped
    )
    with clock.stage("learn"):
        progress.train, on_device = learn.update(
            progress.train, made.batch, world.model, config.learning(), config.curriculum,
            world.mesh,
        )  # fmt: skip
        report = jax.device_get(on_device)
    masked += ledger.check_update(made.counts, report)
    settle(progress, report, due, config)
    ledger.check_waiting(waiting_before, len(written.drafts), len(due), len(progress.pool.waiting))
    told = story.Told(
        written=written, played=played, hint_refusals=hint_refusals, made=made, masked=masked,
        report=report, table=table, due=due, pool=progress.pool, clock=clock,
        blind_N=blind_N, reviews=reviews,
    )  # fmt: skip
    progress.iteration = t + 1
    named = story.metrics(told, progress.totals)
    progress.health = safeguards.watch(progress.health, named, config.safeguards)
    named |= safeguards.figures(progress.health, answer)
    notice = safeguards.notice(progress.health, config.safeguards)
    return Step(metrics=named, sample=story.sample(told, t), notice=notice)


def draw(progress, config: settings.RunConfig, rng: np.random.Generator) -> list[int]:
    """Choose the slots that play next."""
    t, count = progress.iteration, config.rollout.environments
    if config.pool.order == "shuffle":
        return pool.shuffled(
            progress.pool, count, t, lambda round_: seeds.stream(config.seed, "shuffle", round_)
        )
    must = pool.unplayed(progress.pool, t, last=t + 1 == config.iterations)
    return pool.draw(progress.pool, count, config.pool, rng, must)


def lay_table(slots, progress, config, rng) -> tuple[list[records.Environment], list[int]]:
    """Look up what plays next; give the level of each row too where levels follow a window."""
    table = [pool.environment(progress.pool, slot) for slot in slots]
    if not config.window.on:
        return table, []
    programs_of = fixed_programs(config)
    return window.turn(table, progress.windows, programs_of, config.window, rng)


def settle(progress, report, due: list[pool.Waiting], config: settings.RunConfig) -> None:
    """Bring what the update found back to the host, and let go of the drafts it credited."""
    retire_P = report["retire_P"] > 0
    pool.settle(
        progress.pool,
        report["win_rate_P"],
        report["regret_P"],
        report["draw_score_P"],
        retire_P if config.mode == "self_play" else np.zeros(config.pool.slots),
    )
    pool.release(progress.pool, due)
    progress.quota_Z = [float(x) for x in report["quota_Z"]]
    progress.win_rate_Z = [float(x) for x in report["win_rate_Z"]]


def note_play(current: pool.Pool, slots: list[int], played: rollout.Played) -> dict:
    """Keep by slot which hints leaked and which wins were blind; give the latter by row."""
    for row, share in played.leaks_N.items():
        current.leak_P[slots[row]] = max(current.leak_P[slots[row]], share)
    blind_N = figures.blind_wins(played.episodes)
    for row, (blind, wins) in blind_N.items():
        current.blind_P[slots[row]] = blind / wins if wins else 0.0
    return blind_N


def write_hints(slots, progress, world, config) -> collections.Counter:
    """Let the policy write the hints that drawn environments lack, where hints are its own."""
    if config.hint.source != "policy" or config.rollout.hinted_plays == 0:
        return collections.Counter()
    drawn = {p: pool.environment(progress.pool, p) for p in slots}
    lacking = [p for p, e in drawn.items() if e.hint is None and not e.hint_failed]
    rng = seeds.stream(config.seed, "hint", progress.iteration)
    hinted, refusals = world.write_hints([drawn[p] for p in lacking], progress.train.params, rng)
    for p, environment in zip(lacking, hinted, strict=True):
        pool.note_hint(progress.pool, p, environment)
    return refusals


def play(table, progress, world, config) -> rollout.Played:
    """Play every environment of the table from fresh seeds, both arms on the same ones."""
    rng = seeds.stream(config.seed, "rollout", progress.iteration)
    seeds_NS = seeds.episode_seeds(rng, (len(table), config.rollout.seeds))
    plays = (config.rollout.plays, config.rollout.hinted_plays)
    groups = rollout.table(table, seeds_NS, plays)
    return world.play(
        groups, progress.train.params, config.rollout.temperature, config.rollout, rng
    )


def credit_of(
    waiting: pool.Waiting, current: pool.Pool, config: settings.RunConfig, paused: bool
) -> batch.DraftCredit:
    """Turn a waiting draft into its row of the credit table."""
    refused = waiting.reason not in ("", *pool.UNJUDGED)
    forgotten = refused and not config.design.train_refused
    leaked = float(current.leak_P[waiting.slot]) if waiting.slot >= 0 else 0.0
    return batch.DraftCredit(
        draft=waiting.draft,
        slot=waiting.slot,
        fixed=design.refusal_reward(waiting.reason, config.design),
        penalty=waiting.penalty + config.design.leak_weight * leaked,
        unchecked=waiting.reason in pool.UNJUDGED,
        paused=paused or forgotten,
        temperature=waiting.temperature,
    )


def table_shape(config: settings.RunConfig) -> batch.TableShape:
    """Sizes of the tables that the update is compiled for."""
    return batch.TableShape(
        environments=config.rollout.environments,
        seeds=config.rollout.seeds,
        plays=config.rollout.plays,
        drafts=max(config.design.drafts * config.design.attempts, 1),
    )


def planned(table: list, config: settings.RunConfig) -> int:
    """Plays that an iteration asks for."""
    per_seed = config.rollout.plays + config.rollout.hinted_plays
    return len(table) * config.rollout.seeds * per_seed


def skill_index(environment: records.Environment) -> int:
    """Number an environment's skill within its setting."""
    return records.SKILLS_OF[environment.setting].index(environment.skill)
