"""The corridor: an iteration is a walk through the rooms, and only here do they meet.

  design -> validate -> hint -> pool(draw) -> rollout -> batch -> learn -> pool(settle)

In: a `Machine` (policy, sandbox, corpus) and the `Progress` of a run. Out: the next `Progress`, the
iteration's metrics and a readable sample. Source: SPADE (arXiv:2608.19197), algorithm 1.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import jax
import numpy as np

from spade_jax import (
    batch,
    design,
    fingerprints,
    hint,
    learn,
    ledger,
    library,
    machine,
    pool,
    programs,
    records,
    rollout,
    seeds,
    settings,
    story,
    validate,
)
from spade_jax.domains import domain, tool_use


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """What an iteration hands to the outside."""

    metrics: records.Metrics
    sample: str


def to_host(progress: Progress) -> dict[str, Any]:
    """Everything of a run but its arrays, JSON-able."""
    fields = {f.name: getattr(progress, f.name) for f in dataclasses.fields(progress)}
    del fields["train"]
    return fields | {"pool": pool.to_json(progress.pool)}


def from_host(train: learn.TrainState, values: dict[str, Any]) -> Progress:
    """Put a run together from what a checkpoint holds."""
    return Progress(train=train, **(values | {"pool": pool.from_json(values["pool"])}))


def start(config: settings.RunConfig, world: machine.Machine, params: Any) -> Progress:
    """Begin a run at given parameters; a fixed pool is filled from the seed environments."""
    skills = len(records.SKILLS)
    progress = Progress(
        train=learn.init(
            params, world.model, config.learn, config.curriculum, config.pool.slots, world.mesh
        ),
        pool=pool.empty(config.pool),
        corpus=world.corpus.state() if world.corpus else None,
        quota_Z=[1.0 / skills] * skills,
        win_rate_Z=[float("nan")] * skills,
    )
    if config.mode == "fixed_pool":
        found = library.load(config.seed_environments, (config.setting,), ("train",))
        turns = config.rollout.max_turns
        slots = pool.admit(
            progress.pool,
            [library.environment(s, uid=-1 - i, max_turns=turns) for i, s in enumerate(found)],
            config.pool,
        )
        if min(slots, default=-1) < 0:
            raise ValueError(
                f"pool.slots={config.pool.slots} cannot hold the {len(slots)} seed environments "
                f"of {config.seed_environments}; set pool.slots >= {len(slots)}."
            )
    return progress


def iterate(progress: Progress, world: machine.Machine, config: settings.RunConfig) -> Step:
    """Advance `progress` by one iteration."""
    t, clock, programs_before = progress.iteration, story.Clock(), world.crew.programs
    fresh = [p for p, e in enumerate(progress.pool.environments) if e] if t == 0 else []
    waiting_before = len(progress.pool.waiting)
    written = story.Written()
    if config.mode == "self_play" and t % config.design.every == 0:
        written = write_generation(progress, world, config, clock)
        fresh += [slot for slot in written.slots if slot >= 0]
    rng = seeds.stream(config.seed, "pool", t)
    must = pool.unplayed(progress.pool, t)
    slots = pool.draw(progress.pool, config.rollout.environments, config.pool, rng, must)
    with clock.stage("hint"):
        hint_refusals = write_hints(slots, progress, world, config)
    table = [progress.pool.environments[slot] for slot in slots]
    with clock.stage("rollout"):
        played = play(table, progress, world, config)
    with clock.stage("batch"):
        due = pool.due(progress.pool, t, last=t + 1 == config.iterations)
        for row, share in played.leaks_N.items():
            progress.pool.leak_P[slots[row]] = max(progress.pool.leak_P[slots[row]], share)
        made = batch.build(
            played.episodes,
            [credit_of(waiting, progress.pool, config) for waiting in due],
            slots=slots,
            fresh={p: skill_index(progress.pool.environments[p]) for p in fresh},
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
    pool.settle(
        progress.pool,
        report["win_rate_P"],
        report["regret_P"],
        report["draw_score_P"],
        report["retire_P"] > 0 if config.mode == "self_play" else np.zeros(config.pool.slots),
    )
    pool.release(progress.pool, due)
    ledger.check_waiting(waiting_before, len(written.drafts), len(due), len(progress.pool.waiting))
    progress.quota_Z = [float(x) for x in report["quota_Z"]]
    progress.win_rate_Z = [float(x) for x in report["win_rate_Z"]]
    told = story.Told(
        written=written, played=played, hint_refusals=hint_refusals, made=made, masked=masked,
        report=report, table=table, due=due, pool=progress.pool, clock=clock,
        programs=world.crew.programs - programs_before,
    )  # fmt: skip
    progress.iteration = t + 1
    return Step(metrics=story.metrics(told, progress.totals), sample=story.sample(told, t))


def write_generation(progress, world, config, clock) -> story.Written:
    """Let the designer write a generation, check it and admit what passed."""
    t, generation = progress.iteration, progress.generation
    with clock.stage("design"):
        drafts = draw_drafts(progress, world, config)
    with clock.stage("validate"):
        verdicts = validate.examine(
            drafts, world.crew, world.domain, config.checks(), known_programs(progress.pool)
        )
    environments = [verdict.environment for verdict in verdicts]
    sound = [environment for environment in environments if environment is not None]
    admitted = pool.admit(progress.pool, sound, config.pool)
    placed = {e.uid: slot for e, slot in zip(sound, admitted, strict=True)}
    slots = [placed.get(draft.uid, -1) for draft in drafts]
    for draft, verdict, slot in zip(drafts, verdicts, slots, strict=True):
        progress.pool.waiting.append(
            pool.Waiting(
                draft=draft,
                slot=slot,
                reason=waiting_reason(verdict, slot),
                penalty=design.novelty_penalty(
                    0.0 if verdict.environment is None else verdict.environment.similarity,
                    config.design,
                ),
                due=t + config.design.every - 1,
            )
        )
    unchecked = sum(v.finding is not None and v.finding.reason == validate.INFRA for v in verdicts)
    refused = len(drafts) - len(sound) - unchecked
    unplaced = sum(placed[e.uid] < 0 for e in sound)
    ledger.check_drafts(len(drafts), len(sound), refused, unchecked, unplaced)
    progress.generation = generation + 1
    return story.Written(drafts=drafts, verdicts=verdicts, slots=slots)


def draw_drafts(progress, world, config) -> list[records.Draft]:
    """Plan a generation, build its prompts and let the policy write."""
    rng = seeds.stream(config.seed, "design", progress.iteration)
    wishes = design.plan(
        config.design,
        progress.generation,
        np.array(progress.quota_Z),
        np.array(progress.win_rate_Z),
        records.SKILLS_OF[config.setting],
    )
    prompts = []
    for wish in wishes:
        passage = world.corpus.next().text if world.corpus else ""
        positives, negatives = pool.examples(
            progress.pool, wish.skill, config.design.positives, config.design.negatives, rng
        )
        rate = progress.win_rate_Z[records.SKILLS_OF[config.setting].index(wish.skill)]
        place, variant = tool_use.draw(rng) if config.setting == "tool_use" else ("", "")
        request = domain.Request(
            skill=wish.skill,
            difficulty=wish.difficulty,
            family=config.design.family,
            passage=passage,
            win_rate=None if np.isnan(rate) else rate,
            world=place,
            variant=variant,
            positives=[shown(entry) for entry in positives],
            negatives=[shown(entry) for entry in negatives],
        )
        messages = domain.designer_messages(world.domain, request)
        prompts.append(world.chat.start(records.DESIGNER, messages))
    if world.corpus:
        progress.corpus = world.corpus.state()
    first = progress.next_uid
    progress.next_uid += len(wishes)
    return design.write(
        wishes,
        prompts,
        world.generate(
            progress.train.params,
            records.DESIGNER,
            config.design.temperature,
            config.design.max_tokens,
        ),
        world.text_of,
        world.domain.program,
        seeds=seeds.sampling_seeds(rng, len(wishes)),
        generation=progress.generation,
        version=progress.iteration,
        first_uid=first,
    )


def write_hints(slots, progress, world, config) -> collections.Counter:
    """Let the policy write the hints that drawn environments lack, where hints are its own."""
    if config.hint.source != "policy" or config.rollout.hinted_plays == 0:
        return collections.Counter()
    alive = progress.pool.environments
    lacking = [p for p in slots if alive[p].hint is None and not alive[p].hint_failed]
    rng = seeds.stream(config.seed, "hint", progress.iteration)
    hinted, refusals = hint.write(
        [progress.pool.environments[p] for p in lacking],
        lambda e: world.chat.start(records.AGENT, domain.hint_messages(world.domain, e.source)),
        world.generate(
            progress.train.params, records.AGENT, config.hint.temperature, config.hint.max_tokens
        ),
        lambda reply: programs.without_thinking(world.text_of(reply)),
        seeds.sampling_seeds(rng, (len(lacking), 2)),
        config.hint,
    )
    for p, environment in zip(lacking, hinted, strict=True):
        progress.pool.environments[p] = environment
    return refusals


def play(table, progress, world, config) -> rollout.Played:
    """Play every environment of the table from fresh seeds, both arms on the same ones."""
    rng = seeds.stream(config.seed, "rollout", progress.iteration)
    seeds_NS = seeds.episode_seeds(rng, (len(table), config.rollout.seeds))
    groups = [
        rollout.Group(
            environment=environment,
            row=n,
            seed_index=s,
            seed=int(seeds_NS[n, s]),
            plays=(config.rollout.plays, config.rollout.hinted_plays),
        )
        for n, environment in enumerate(table)
        for s in range(config.rollout.seeds)
    ]
    bound = world.rollout(
        progress.train.params, config.rollout.temperature, config.rollout.max_tokens
    )
    return rollout.play(groups, bound, config.rollout, rng)


def known_programs(current: pool.Pool) -> validate.Known:
    """Fingerprint what pool and memory hold, so that a draft can be told from it."""
    sources = [e.source for e in current.environments if e is not None]
    sources += [entry.source for entry in current.memory]
    trees = [
        tree for tree in map(programs.parse, sources) if not isinstance(tree, programs.Finding)
    ]
    if not trees:
        return validate.Known()
    return validate.Known(
        digests=frozenset(fingerprints.digest(tree) for tree in trees),
        signatures_PK=np.stack([fingerprints.signature(tree) for tree in trees]),
    )


def waiting_reason(verdict: validate.Verdict, slot: int) -> str:
    """Name why a draft has no environment in play: "" where it has one."""
    if verdict.finding is not None:
        return verdict.finding.reason
    return "" if slot >= 0 else "unplaced"


def credit_of(
    waiting: pool.Waiting, current: pool.Pool, config: settings.RunConfig
) -> batch.DraftCredit:
    """Turn a waiting draft into its row of the credit table."""
    leaked = current.leak_P[waiting.slot] if waiting.slot >= 0 else 0.0
    return batch.DraftCredit(
        draft=waiting.draft,
        slot=waiting.slot,
        fixed=design.refusal_reward(waiting.reason, config.design),
        penalty=waiting.penalty + config.design.leak_weight * leaked,
        unchecked=waiting.reason in pool.UNJUDGED,
        temperature=config.design.temperature,
    )


def table_shape(config: settings.RunConfig) -> batch.TableShape:
    """Sizes of the tables that the update is compiled for."""
    return batch.TableShape(
        environments=config.rollout.environments,
        seeds=config.rollout.seeds,
        plays=config.rollout.plays,
        drafts=max(config.design.drafts, 1),
    )


def planned(table: list, config: settings.RunConfig) -> int:
    """Plays that an iteration asks for."""
    per_seed = config.rollout.plays + config.rollout.hinted_plays
    return len(table) * config.rollout.seeds * per_seed


def shown(entry: pool.Memory) -> domain.Example:
    """Show a remembered environment in a designer prompt."""
    return domain.Example(
        source=entry.source,
        name=f"environment {entry.uid}",
        win_rate=entry.win_rate,
        regret=entry.regret,
    )


def skill_index(environment: records.Environment) -> int:
    """Number an environment's skill within its setting."""
    return records.SKILLS_OF[environment.setting].index(environment.skill)
