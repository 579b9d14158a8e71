"""Figures that the safeguards look at, from what was written, played and measured.

In: drafts, verdicts, episodes, the report of the update. Out: metrics; a figure whose subject is
absent (no generation, no hints, one seed) is left out.
"""

from __future__ import annotations

import ast
import collections
from collections.abc import Sequence
from typing import Any

import numpy as np

from spade_jax import design, diversity, metrics, programs, records, rollout, validate

FAULTS = (  # refusals of programs that break, hang or grow
    "load_error", "reset_error", "step_error", "hint_error", "contract", "observation_size",
    "output_limit", "timeout", "memory", "never_ends",
)  # fmt: skip
EASY, HARD = 0.9, 0.05  # mean return of plays above and below which an environment teaches nothing
FEWEST_WINS = 8  # from which on their actions are judged


def of_drafts(
    drafts: Sequence[records.Draft], verdicts: Sequence[validate.Verdict]
) -> records.Metrics:
    """Tell how varied and how sound a generation is; empty without one."""
    judged = [(d, v) for d, v in zip(drafts, verdicts, strict=True) if not _unchecked(v)]
    if not judged:
        return {}
    reasons = [v.finding.reason if v.finding else "" for _, v in judged]
    named = {
        "env/no_programs": float(np.mean([reason in design.UNPARSED for reason in reasons])),
        "env/reply_tokens_max": max(len(d.reply.ids) for d, _ in judged),
        "env/truncated_drafts": float(np.mean([not d.reply.stopped for d, _ in judged])),
        "env/faulty_drafts": float(np.mean([reason in FAULTS for reason in reasons])),
    }
    rates = [v.cheat_rate for _, v in judged if v.cheat_rate is not None]
    if rates:
        named["env/cheat_rate"] = float(np.mean(rates))
        named["env/cheat_rate_max"] = float(np.max(rates))
    trees = {}
    for draft, _ in judged:
        tree = programs.parse(draft.source) if draft.source else None
        if isinstance(tree, ast.Module):
            trees[draft.uid] = (tree, draft.source)
    if trees:
        found = list(trees.values())
        named["env/vendi"] = diversity.of_structure([tree for tree, _ in found])
        named["env/vendi_words"] = diversity.of_words([source for _, source in found])
    return named


def of_table(
    table: Sequence[records.Environment], report: dict[str, Any], newest: int
) -> records.Metrics:
    """Tell what shares of the newest generation's environments drawn are too easy or out of reach.

    Args:
      report: win_rate_N and hinted_rate_N, NaN without plays.
      newest: number of the newest generation.
    """
    rows = [n for n, e in enumerate(table) if e.generation == newest]
    plain_N = np.asarray(report["win_rate_N"], np.float64)[rows]
    hinted_N = np.asarray(report["hinted_rate_N"], np.float64)[rows]
    known_N = ~np.isnan(plain_N)
    if not known_N.any():
        return {}
    unhelped_N = np.isnan(hinted_N) | (hinted_N < HARD)
    return {
        "env/too_easy": float((plain_N[known_N] > EASY).mean()),
        "env/unwinnable": float(((plain_N < HARD) & unhelped_N)[known_N].mean()),
    }


def of_play(played: rollout.Played, blind_N: dict[int, tuple[int, int]]) -> records.Metrics:
    """Tell how many hints leak, how many wins are blind and how many calls cannot be read."""
    named = {}
    broken = [turn.malformed for e in played.episodes for turn in e.turns]
    if broken:
        named["rollout/malformed_calls"] = float(np.mean(broken))
    if played.leaks_N:
        named["env/hint_leaks"] = float(np.mean(list(played.leaks_N.values())))
    wins = sum(won for _, won in blind_N.values())
    if wins >= FEWEST_WINS:
        named["rollout/blind_wins"] = sum(blind for blind, _ in blind_N.values()) / wins
    return named


def of_groups(plain: Sequence[records.Episode]) -> records.Metrics:
    """Tell how returns of valid plain plays, which are given, spread within their groups."""
    if not plain:
        return {}
    groups = collections.defaultdict(list)
    for e in plain:
        groups[e.environment, e.seed_index].append(e.value)
    replies = [len(turn.reply.ids) for e in plain for turn in e.turns]
    return {
        "rollout/reward_std": float(np.std([e.value for e in plain])),
        "rollout/zero_spread": float(np.mean([len(set(g)) == 1 for g in groups.values()])),
        "rollout/all_lost": float(np.mean([max(g) <= 0 for g in groups.values()])),
        "rollout/all_won": float(np.mean([min(g) > 0 for g in groups.values()])),
        "rollout/reply_tokens_max": max(replies, default=0),
    }


def of_skills(episodes: Sequence[records.Episode], skill_N: Sequence[str]) -> records.Metrics:
    """Tell by skill how returns of valid plain plays spread, over all of them and in groups."""
    by_skill = collections.defaultdict(list)
    for e in episodes:
        if e.arm == records.PLAIN and not e.fault:
            by_skill[skill_N[e.environment]].append(e)
    named = {}
    for skill, plays in sorted(by_skill.items()):
        spread = of_groups(plays)
        for name in ("reward_std", "zero_spread"):
            named[f"env/skill_{metrics.slug(skill)}/{name}"] = spread[f"rollout/{name}"]
    return named


def of_credit(report: dict[str, Any], rows: int, skills: Sequence[str], due: Sequence[Any]):
    """Tell what drafts earned and what the curriculum would ask for next.

    Args:
      rows: of the table that are no padding.
      skills: names of the setting's skills, the first of Z.
      due: the `pool.Waiting` of the first rows M.
    """
    named: records.Metrics = {}
    paired = report["paired_N"][:rows] > 0
    if paired.any():
        named["env/floored_regret"] = float((report["regret_N"][:rows][paired] <= 0).mean())
    rate_N = report["win_rate_N"][:rows]
    rate_N = rate_N[~np.isnan(rate_N)]
    if len(rate_N):
        named["env/easy"] = float((rate_N > 0.8).mean())
        named["env/hard"] = float((rate_N < 0.2).mean())
    paid_M = report["designer_paid_M"] > 0
    if paid_M.any():
        named["env/penalty"] = float(report["designer_penalty_M"][paid_M].mean())
        named["env/designer_reward_std"] = float(report["designer_raw_M"][paid_M].std())
    played_M = paid_M & (report["part_plateau_M"] >= 0)
    for name, part_M in report.items():
        if name.startswith("part_") and played_M.any():
            named[f"env/{name.removesuffix('_M')}"] = float(part_M[played_M].mean())
    earned = collections.defaultdict(list)
    for m, waiting in enumerate(due):
        if paid_M[m]:
            earned[waiting.draft.skill].append(report["designer_raw_M"][m])
    for skill, values in sorted(earned.items()):
        named[f"env/skill_{metrics.slug(skill)}/designer_reward"] = float(np.mean(values))
    for skill, share in zip(skills, report["quota_Z"][: len(skills)], strict=True):
        named[f"env/skill_{metrics.slug(skill)}/quota"] = float(share)
    for z in np.flatnonzero(~np.isnan(report["win_rate_Z"])):
        name = f"env/skill_{metrics.slug(skills[z])}"
        named[f"{name}/fast"] = float(report["win_rate_Z"][z])
        named[f"{name}/slow"] = float(report["slow_rate_Z"][z])
    return named


def blind_wins(episodes: Sequence[records.Episode]) -> dict[int, tuple[int, int]]:
    """Count wins by actions that do not look at the task, by row of the table.

    A win is blind when the same actions win on every seed of the environment that was played. Of
    honest tasks with two answers half look so on two seeds; the same word on all of them does not.
    Rows with fewer than two seeds say nothing and are absent.

    Returns:
      row -> (blind wins, wins) of plain plays.
    """
    seeds_of, won = collections.defaultdict(set), collections.defaultdict(list)
    for e in episodes:
        if e.arm == records.PLAIN and not e.fault:
            seeds_of[e.environment].add(e.seed_index)
            if e.value > 0:
                actions = tuple(turn.action for turn in e.turns)
                won[e.environment].append((actions, e.seed_index))
    counts = {}
    for row, seeds in seeds_of.items():
        if len(seeds) < 2:
            continue
        wins_on = collections.defaultdict(set)
        for actions, seed in won[row]:
            wins_on[actions].add(seed)
        blind = sum(wins_on[actions] == seeds for actions, _ in won[row])
        counts[row] = (blind, len(won[row]))
    return counts


def _unchecked(verdict: validate.Verdict) -> bool:
    return verdict.finding is not None and verdict.finding.reason == validate.INFRA
