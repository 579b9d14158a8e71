"""The designer writes environments: plan what to ask for, let the policy write, cut programs out.

In: skill quotas and win rates of the curriculum, passages, memory examples. Out: `Draft` records.
Source: SPADE (arXiv:2608.19197) section 3 and appendix; differs from the public implementation in
that every draft is kept, refused or not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from spade_jax import records

UNPARSED = ("no_program", "too_long", "syntax")  # refusals of text that is no program


@dataclasses.dataclass(frozen=True, kw_only=True)
class DesignConfig:
    """How many programs are asked for, how often, and what their prompts show."""

    drafts: int = 24  # programs asked for in each generation
    every: int = 1  # k, iterations a generation lives; its credit comes in the last of them
    max_tokens: int = 160  # of one draft
    temperature: float = 1.0
    frozen: bool = False  # drafts are played and not trained on
    attempts: int = 1  # drafts for one wish at most; a refused one is followed by another
    repairs: int = 0  # untrained turns in which the policy mends a refused program
    stage_seconds: float = 0.0  # of writing and judging a generation, after which no further
    # attempt or repair begins; 0: no limit. What is written is kept. Such a run follows the clock
    grounding: float = 1.0  # share of prompts that hold a passage, where there is a corpus
    tell_win_rate: bool = True  # the prompt tells the agent's win rate on the skill
    family: str = ""  # prompt family; empty takes the first of the setting, see domains/
    positives: int = 0  # memory examples of high regret in the prompt
    negatives: int = 0  # memory examples that were too easy or too hard
    skills: Literal["rotation", "learning_progress", "uniform"] = "uniform"
    only_skills: tuple[str, ...] = ()  # skills that exist for the designer; () takes the setting's
    active_skills: int = 3  # with rotation: skills of one generation
    difficulty: Literal["target", "cycle", "easy", "medium", "hard"] = "target"
    train_refused: bool = True  # False forgets refused drafts, as the public implementation does
    refused_reward: float = -0.5  # of a draft that a check refused
    unparsed_reward: float = -1.0  # of text that is no program
    novelty_threshold: float = 0.8  # similarity to pool or memory above which a draft pays
    novelty_weight: float = 0.3  # penalty of a draft that is all but a copy
    leak_weight: float = 0.5  # penalty of an environment all of whose hints gave the answer away

    def __post_init__(self):
        if self.drafts < 0 or self.every < 1:
            raise ValueError(
                f"design.drafts={self.drafts}, design.every={self.every}: "
                "set drafts >= 0 (0 trains on a fixed pool) and every >= 1."
            )
        if self.temperature <= 0:
            raise ValueError(
                f"design.temperature={self.temperature}: drafts are trained on; set it above 0."
            )
        if self.attempts < 1 or self.repairs < 0 or not 0.0 <= self.grounding <= 1.0:
            raise ValueError(
                f"design.attempts={self.attempts}, repairs={self.repairs}, grounding="
                f"{self.grounding}: use attempts >= 1, repairs >= 0 and a share in [0, 1]."
            )
        if self.stage_seconds < 0 or (self.stage_seconds and self.attempts + self.repairs == 1):
            raise ValueError(
                f"design.stage_seconds={self.stage_seconds} with attempts={self.attempts} and "
                f"repairs={self.repairs}: it keeps further attempts and repairs from beginning. "
                "Set attempts above 1 or repairs above 0, or stage_seconds to 0."
            )
        if self.active_skills < 1:
            raise ValueError(f"design.active_skills={self.active_skills}: set it to at least 1.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assignment:
    """What one draft is asked to be."""

    skill: str
    difficulty: str


def plan(
    config: DesignConfig,
    generation: int,
    quota_Z: np.ndarray,
    win_rate_Z: np.ndarray,
    skills: Sequence[str],
) -> list[Assignment]:
    """Spread the drafts of a generation over skills and difficulty words.

    Args:
      generation: index of the generation, 0 for the first.
      quota_Z: share of drafts each skill should get (used with learning_progress); what stands
        behind the setting's own skills is not read.
      win_rate_Z: the agent's current win rate per skill; NaN where unknown.
      skills: names of the Z skills of the setting.
    """
    unknown = set(config.only_skills) - set(skills)
    if unknown:
        raise ValueError(
            f"design.only_skills names {sorted(unknown)}; the setting has {', '.join(skills)}."
        )
    open_Z = np.array([not config.only_skills or skill in config.only_skills for skill in skills])
    counts_Z = np.zeros(len(skills), int)
    counts_Z[open_Z] = _skill_counts(config, generation, np.asarray(quota_Z)[: len(skills)][open_Z])
    assignments = []
    for z, skill in enumerate(skills):
        for i in range(counts_Z[z]):
            word = _difficulty(config.difficulty, float(win_rate_Z[z]), generation + i)
            assignments.append(Assignment(skill=skill, difficulty=word))
    return assignments


def write(
    assignments: Sequence[Assignment],
    prompts: Sequence[Sequence[int]],
    generate: Callable[[list, list], list[records.Reply]],
    text_of: Callable[[records.Reply], str],
    program_in: Callable[[str], str | None],
    *,
    seeds: Sequence[int],
    generation: int,
    version: int,
    first_uid: int,
) -> list[records.Draft]:
    """Let the policy write one draft per assignment.

    Args:
      prompts: token ids, one per assignment.
      generate: (prompts, sampler seeds) -> replies in order.
      program_in: reply text -> program text, None where there is none.
    """
    replies = generate([tuple(ids) for ids in prompts], [int(seed) for seed in seeds])
    drafts = []
    for i, (assignment, reply) in enumerate(zip(assignments, replies, strict=True)):
        text = text_of(reply)
        drafts.append(
            records.Draft(
                uid=first_uid + i,
                generation=generation,
                skill=assignment.skill,
                difficulty=assignment.difficulty,
                prompt_ids=tuple(prompts[i]),
                reply=reply,
                text=text,
                source=program_in(text),
                version=version,
            )
        )
    return drafts


def target_difficulty(win_rate: float) -> str:
    """Name the difficulty that moves a win rate toward the middle; "medium" where unknown."""
    if np.isnan(win_rate) or 0.4 <= win_rate <= 0.6:
        return "medium"
    return "hard" if win_rate > 0.6 else "easy"


def refusal_reward(reason: str, config: DesignConfig) -> float:
    """Pay a refused draft by the reason of its refusal; 0 where there is none."""
    if not reason:
        return 0.0
    return config.unparsed_reward if reason in UNPARSED else config.refused_reward


def novelty_penalty(similarity: float, config: DesignConfig) -> float:
    """Charge a near copy: 0 up to the threshold, rising linearly to the whole weight at 1."""
    excess = (similarity - config.novelty_threshold) / max(1.0 - config.novelty_threshold, 1e-6)
    return config.novelty_weight * min(max(excess, 0.0), 1.0)


def _difficulty(rule: str, win_rate: float, index: int) -> str:
    if rule == "target":
        return target_difficulty(win_rate)
    if rule == "cycle":
        return records.DIFFICULTIES[index % len(records.DIFFICULTIES)]
    return rule


def _skill_counts(config: DesignConfig, generation: int, quota_Z: np.ndarray) -> list[int]:
    skills = len(quota_Z)
    if config.skills == "rotation":
        start = generation * config.active_skills % skills
        active = {(start + i) % skills for i in range(config.active_skills)}
        share_Z = np.array([1.0 / len(active) if z in active else 0.0 for z in range(skills)])
    elif config.skills == "uniform":
        share_Z = np.full(skills, 1.0 / skills)
    else:
        share_Z = np.asarray(quota_Z, np.float64) / np.sum(quota_Z)
    return _largest_remainder(share_Z, config.drafts)


def _largest_remainder(share_Z: np.ndarray, total: int) -> list[int]:
    """Round shares to counts that add up to `total`; ties go to the first skill."""
    exact_Z = share_Z * total
    counts_Z = np.floor(exact_Z + 1e-9).astype(int)
    rest_Z = np.round(exact_Z - counts_Z, 9)  # equal shares tie though they were rounded
    order = np.argsort(-rest_Z, kind="stable")
    for z in order[: total - counts_Z.sum()]:
        counts_Z[z] += 1
    return counts_Z.tolist()
