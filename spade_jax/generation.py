"""The designer's half of an iteration: prompts, drafts, checks, admission, attempts and repairs.

In: `Progress`, a `Machine`, what the safeguards ask for. Out: what was written; pool, memory and
waiting drafts are moved. Every draft of every attempt is trained on. A repair is not: the policy
mends a refused program once the reason is told, so that the agent has something to play, and the
refused draft keeps the reward of its refusal.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from spade_jax import (
    design,
    ledger,
    memory,
    pool,
    records,
    safeguards,
    screen,
    screening,
    seeds,
    story,
    validate,
)
from spade_jax.domains import domain, tool_use


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Bound:
    """What every step of one generation shares."""

    progress: Any  # loop.Progress
    world: Any  # machine.Machine
    config: Any  # settings.RunConfig
    clock: story.Clock
    rng: np.random.Generator
    explore: bool
    temperature: float  # drafts are sampled at
    screen_rng: np.random.Generator
    screening: screen.Cost  # of judging drafts


def write(progress, world, config, clock, answer: safeguards.Answer) -> story.Written:
    """Let the designer write a generation, check it and admit what passed."""
    explore = "explore" in answer.standing
    hotter = config.safeguards.temperature_factor if explore else 1.0
    bound = _Bound(
        progress=progress,
        world=world,
        config=config,
        clock=clock,
        rng=seeds.stream(config.seed, "design", progress.iteration),
        explore=explore,
        temperature=config.design.temperature * hotter,
        screen_rng=seeds.stream(config.seed, "screen", progress.iteration),
        screening=screen.Cost(),
    )
    wishes = design.plan(
        config.design,
        progress.generation,
        np.array(progress.quota_Z),
        np.array(progress.win_rate_Z),
        records.SKILLS_OF[config.setting],
    )
    drafts, verdicts, slots, cut = [], [], [], 0
    for attempt in range(config.design.attempts):
        if attempt and _late(bound):
            cut = len(wishes)
            break
        new = _draw(wishes, bound)
        judged = _judge(new, bound)
        drafts, verdicts = drafts + new, verdicts + judged
        slots += _admit(new, judged, bound)
        wishes = [wish for wish, verdict in zip(wishes, judged, strict=True) if _to_blame(verdict)]
        if not wishes:
            break
    last = range(len(drafts) - len(new), len(drafts))
    refused = [(drafts[i], verdicts[i]) for i in last if _to_blame(verdicts[i])]
    repaired, repaired_slots, unmended = _repair(refused, bound)
    progress.generation += 1
    return story.Written(
        drafts=drafts,
        verdicts=verdicts,
        slots=slots,
        repaired=repaired,
        repaired_slots=repaired_slots,
        screening=bound.screening,
        cut=cut + unmended,
    )


def waiting_reason(verdict: validate.Verdict, slot: int) -> str:
    """Name why a draft has no environment in play: "" where it has one."""
    if verdict.finding is not None:
        return verdict.finding.reason
    return "" if slot >= 0 else "unplaced"


def shown(entry: memory.Remembered) -> domain.Example:
    """Show a remembered environment in a designer prompt."""
    return domain.Example(
        source=entry.source,
        name=f"environment {entry.uid}",
        win_rate=entry.win_rate,
        regret=entry.regret,
    )


def _to_blame(verdict: validate.Verdict) -> bool:
    """Tell whether a draft was refused for a fault of its own."""
    return verdict.finding is not None and verdict.finding.reason != validate.INFRA


def _draw(wishes: list[design.Assignment], bound: _Bound) -> list[records.Draft]:
    """Build the prompts of one attempt, each with its own passage, and let the policy write."""
    progress, world, config = bound.progress, bound.world, bound.config
    with bound.clock.stage("design"):
        remembered = _remembered_by_skill(wishes, progress.pool, config.design)
        prompts = [_prompt(wish, remembered[wish.skill], bound) for wish in wishes]
        if world.corpus:
            progress.corpus = world.corpus.state()
        first = progress.next_uid
        progress.next_uid += len(wishes)
        return design.write(
            wishes,
            prompts,
            _generate(bound),
            world.text_of,
            world.domain.program,
            seeds=seeds.sampling_seeds(bound.rng, len(wishes)),
            generation=progress.generation,
            version=progress.iteration,
            first_uid=first,
        )


def _prompt(wish: design.Assignment, found, bound: _Bound) -> tuple[int, ...]:
    progress, world, config, rng = bound.progress, bound.world, bound.config, bound.rng
    passage = ""
    if world.corpus and (bound.explore or _grounded(config.design, rng)):
        passage = world.corpus.next().text
    positives, negatives = memory.examples(
        found, config.design.positives, config.design.negatives, rng, progress.pool.archive.read
    )
    rate = progress.win_rate_Z[records.SKILLS_OF[config.setting].index(wish.skill)]
    known = config.design.tell_win_rate and not np.isnan(rate)
    place, variant = tool_use.draw(rng) if config.setting == "tool_use" else ("", "")
    request = domain.Request(
        skill=wish.skill,
        difficulty=wish.difficulty,
        family=config.design.family,
        passage=passage,
        win_rate=rate if known else None,
        world=place,
        variant=variant,
        positives=[shown(entry) for entry in positives],
        negatives=[shown(entry) for entry in negatives],
    )
    messages = domain.designer_messages(world.domain, request)
    return world.chat.start(records.DESIGNER, messages)


def _grounded(config: design.DesignConfig, rng: np.random.Generator) -> bool:
    return config.grounding >= 1.0 or rng.random() < config.grounding


def _remembered_by_skill(
    wishes: list[design.Assignment], current: pool.Pool, config: design.DesignConfig
) -> dict[str, tuple[memory.Numbers, memory.Numbers]]:
    """Look once through pool and memory for what prompts of each skill may show."""
    wanted = config.positives > 0 or config.negatives > 0
    view = pool.memory_view(current) if wanted else memory.empty()
    skills = {wish.skill for wish in wishes}
    return {skill: memory.candidates(view, skill, config.positives) for skill in skills}


def _judge(drafts: list[records.Draft], bound: _Bound) -> list[validate.Verdict]:
    world = bound.world
    with bound.clock.stage("validate"):
        verdicts = validate.examine(
            drafts,
            world.crew,
            world.domain,
            bound.config.checks(),
            bound.progress.pool.known,
            world.group.spread,
        )
    bound.screening.processes += sum(verdict.processes for verdict in verdicts)
    if bound.config.screen.by == "none":
        return verdicts
    with bound.clock.stage("screen"):
        return screening.apply(
            verdicts, bound.progress, world, bound.config, bound.screen_rng, bound.screening
        )


def _admit(drafts, verdicts, bound: _Bound) -> list[int]:
    """Give sound drafts a slot and let all of them wait for their credit; check the counts."""
    config, current = bound.config, bound.progress.pool
    sound = [v.environment for v in verdicts if v.environment is not None]
    placed = dict(zip([e.uid for e in sound], pool.admit(current, sound, config.pool), strict=True))
    slots = [placed.get(draft.uid, -1) for draft in drafts]
    for draft, verdict, slot in zip(drafts, verdicts, slots, strict=True):
        near = 0.0 if verdict.environment is None else verdict.environment.similarity
        current.waiting.append(
            pool.Waiting(
                draft=draft,
                slot=slot,
                reason=waiting_reason(verdict, slot),
                penalty=design.novelty_penalty(near, config.design),
                due=bound.progress.iteration + config.design.every - 1,
                temperature=bound.temperature,
            )
        )
    unchecked = sum(v.finding is not None and v.finding.reason == validate.INFRA for v in verdicts)
    refused = len(drafts) - len(sound) - unchecked
    unplaced = sum(slot < 0 for slot in placed.values())
    ledger.check_drafts(len(drafts), len(sound), refused, unchecked, unplaced)
    return slots


def _late(bound: _Bound) -> bool:
    """Tell whether the designer's stage has had its time, in the process that is slowest."""
    limit = bound.config.design.stage_seconds
    if not limit:
        return False
    spent = sum(bound.clock.seconds.get(name, 0.0) for name in ("design", "validate", "screen"))
    return max(bound.world.group.gather(spent)) > limit


def _repair(refused, bound: _Bound) -> tuple[list[records.Environment], list[int], int]:
    """Tell the policy why its programs were refused and play what it mends, untrained.

    Returns:
      what was mended, its slots, and how many repairs had no time to begin.
    """
    progress, world, config = bound.progress, bound.world, bound.config
    found, slots = [], []
    for _ in range(config.design.repairs):
        asked = [(draft, _mend_prompt(draft, v, bound)) for draft, v in refused]
        room = config.batch.row_tokens - config.design.max_tokens
        asked = [(draft, prompt) for draft, prompt in asked if len(prompt) <= room]
        if not asked:
            break
        if _late(bound):
            return found, slots, len(asked)
        drafts = [draft for draft, _ in asked]
        with bound.clock.stage("design"):
            again = design.write(
                [design.Assignment(skill=d.skill, difficulty=d.difficulty) for d in drafts],
                [prompt for _, prompt in asked],
                _generate(bound),
                world.text_of,
                world.domain.program,
                seeds=seeds.sampling_seeds(bound.rng, len(asked)),
                generation=progress.generation,
                version=progress.iteration,
                first_uid=progress.next_uid,
            )
        progress.next_uid += len(again)
        judged = _judge(again, bound)
        sound = [v.environment for v in judged if v.environment is not None]
        slots += pool.admit(progress.pool, sound, config.pool)
        found += sound
        refused = [(d, v) for d, v in zip(again, judged, strict=True) if _to_blame(v)]
    return found, slots, 0


def _mend_prompt(draft: records.Draft, verdict: validate.Verdict, bound: _Bound) -> tuple[int, ...]:
    """Continue the conversation: the refused reply, then what was wrong with it."""
    wrong = verdict.finding
    meaning = validate.CHECKS.get(wrong.reason, wrong.reason)
    said = domain.fill(domain.text("repair"), reason=meaning, detail=wrong.detail)
    told = bound.world.chat.extend(said, close=not draft.reply.stopped)
    return (*draft.prompt_ids, *draft.reply.ids, *told)


def _generate(bound: _Bound):
    return bound.world.generate_together(
        bound.progress.train.params,
        records.DESIGNER,
        bound.temperature,
        bound.config.design.max_tokens,
    )
