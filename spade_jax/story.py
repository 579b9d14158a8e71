"""What an iteration tells: metrics under stable names, and a page of what both roles wrote.

In: the records that rooms handed out and the report of the update. Out: numbers and text.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from spade_jax import batch, figures, memory, records, review, rollout, screen, validate
from spade_jax import metrics as metric_files
from spade_jax import pool as pools


class Clock:
    """Seconds per stage of one iteration."""

    def __init__(self, enter: Callable[[str], None] = lambda name: None):
        """Start it.

        Args:
          enter: is told the name of each stage as it begins.
        """
        self._enter = enter
        self.begun = time.monotonic()
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the seconds of the block to a stage."""
        self._enter(name)
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begun


@dataclasses.dataclass(frozen=True, kw_only=True)
class Written:
    """What the designer's half of an iteration made; empty between generations."""

    drafts: list[records.Draft] = dataclasses.field(default_factory=list)
    verdicts: list[validate.Verdict] = dataclasses.field(default_factory=list)  # one per draft
    slots: list[int] = dataclasses.field(default_factory=list)  # of each draft, -1 without one
    repaired: list[records.Environment] = dataclasses.field(default_factory=list)  # not trained
    repaired_slots: list[int] = dataclasses.field(default_factory=list)
    screening: screen.Cost = dataclasses.field(default_factory=screen.Cost)
    cut: int = 0  # further attempts and repairs that had no time to begin


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told:
    """Everything the story is told from."""

    written: Written
    played: rollout.Played
    hint_refusals: collections.Counter  # hints of the policy that its gate refused
    made: batch.Made
    masked: collections.Counter  # sequences by reason
    report: dict[str, Any]  # of `learn.update`, on the host
    table: list[records.Environment]
    due: list[pools.Waiting]
    pool: pools.Pool
    clock: Clock
    blind_N: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    # row of the table -> (blind wins, wins); see `figures.blind_wins`
    reviews: review.Reviews = review.Reviews()


def metrics(told: Told, totals: dict[str, float]) -> records.Metrics:
    """Name every figure of the iteration; running totals are moved forward in `totals`."""
    named = _play(told) | _environments(told) | _skills(told) | _update(told) | _counts(told)
    newest = max((e.generation for e in told.table), default=-1)
    named |= figures.of_drafts(told.written.drafts, told.written.verdicts)
    named |= figures.of_table(told.table, told.report, newest)
    named |= figures.of_play(told.played, told.blind_N)
    skills = records.SKILLS_OF[told.table[0].setting] if told.table else ()
    if skills:
        named |= figures.of_credit(told.report, len(told.table), skills, told.due)
    named["time/iteration"] = time.monotonic() - told.clock.begun
    for stage, seconds in told.clock.seconds.items():
        named[f"time/{stage}"] = seconds
    for name in ("drafts", "accepted", "episodes", "programs"):
        totals[name] = totals.get(name, 0) + named.get(f"count/{name}", 0)
    for name in ("episodes", "programs"):
        named[f"count/total_{name}"] = totals[name]
    for key, value in named.items():
        if key.startswith(("count/refused_", "count/hint_refused_", "count/unchecked")):
            totals[key[6:]] = totals.get(key[6:], 0) + value
    in_a_row = totals.get("skipped_in_a_row", 0) + 1
    totals["skipped_in_a_row"] = in_a_row if named["train/skipped_steps"] else 0
    return named


def sample(told: Told, iteration: int, drafts: int = 3, episodes: int = 6) -> str:
    """Write a page for people: some drafts with their verdicts, some plays with their ends."""
    lines = [f"iteration {iteration}", ""]
    chosen = _spread(list(range(len(told.written.drafts))), drafts)
    for i in chosen:
        draft, verdict = told.written.drafts[i], told.written.verdicts[i]
        outcome = (
            "accepted"
            if verdict.finding is None
            else f"refused: {verdict.finding.reason}: {verdict.finding.detail}"
        )
        lines += [f"== draft {draft.uid} ({draft.skill}, {draft.difficulty}): {outcome}"]
        lines += [draft.text.strip(), ""]
    for i in _spread(list(range(len(told.played.episodes))), episodes):
        episode = told.played.episodes[i]
        observation, replies = told.played.transcripts[i]
        environment = told.table[episode.environment]
        end = episode.fault or ("truncated" if episode.truncated else "ended")
        lines += [
            f"== play in {environment.class_name} {environment.family}"
            f" ({records.ARMS[episode.arm]}, seed {episode.seed}): {end},"
            f" return {episode.value:+.2f}",
            observation,
            f"> {replies}",
            "",
        ]
    return "\n".join(lines)


def learnable(win_rates: np.ndarray) -> float:
    """Share of environments with a win rate in [0.2, 0.8]; NaN entries are left out."""
    known = win_rates[~np.isnan(win_rates)]
    return float(np.mean((known >= 0.2) & (known <= 0.8))) if len(known) else 0.0


def entropy(counts: list[int]) -> float:
    """Entropy of a distribution over its maximum, in [0, 1]; 0 where there is nothing."""
    total = sum(counts)
    if total == 0 or len(counts) < 2:
        return 0.0
    shares = np.array([count / total for count in counts if count])
    return float(-(shares * np.log(shares)).sum() / np.log(len(counts)))


def _play(told: Told) -> records.Metrics:
    arms = [[e for e in told.played.episodes if e.arm == a and not e.fault] for a in (0, 1)]
    plain, hinted = arms
    everything = told.played.episodes
    named: records.Metrics = {}
    for episodes, prefix in ((plain, "rollout/"), (hinted, "rollout/hinted_")):
        if episodes:
            won = [e.value > 0 for e in episodes]  # an evaluation asks for 1
            named[f"{prefix}win_rate"] = float(np.mean(won))
            named[f"{prefix}mean_return"] = float(np.mean([e.value for e in episodes]))
    if plain:
        named["rollout/turns"] = float(np.mean([len(e.turns) for e in plain]))
        replies = [len(turn.reply.ids) for e in plain for turn in e.turns]
        named["rollout/reply_tokens"] = float(np.mean(replies)) if replies else 0.0
    named |= figures.of_groups(plain)
    if everything:
        faults = collections.Counter(e.fault for e in everything)
        named["rollout/truncated"] = float(np.mean([e.truncated for e in everything]))
        named["rollout/environment_faults"] = faults["environment"] / len(everything)
        named["rollout/infra_faults"] = faults["infra"] / len(everything)
        named["rollout/too_long"] = faults["too_long"] / len(everything)
    return named


def _environments(told: Told) -> records.Metrics:
    report, rows = told.report, len(told.table)
    named: records.Metrics = {}
    paired = report["paired_N"][:rows] > 0
    if paired.any():
        gaps = report["regret_N"][:rows][paired]
        errors = report["regret_se_N"][:rows][paired]
        named["env/raw_regret"] = float(gaps.mean())
        named["env/regret"] = float(report["shrunk_N"][:rows][paired].mean())
        named["env/regret_se"] = float(np.sqrt((errors**2).sum()) / paired.sum())
        named["env/earned_difficulty"] = _earned(report, rows, paired)
    named["env/learnable"] = learnable(report["win_rate_N"][:rows])
    paid = report["designer_paid_M"] > 0
    if paid.any():
        named["env/designer_reward"] = float(report["designer_raw_M"][paid].mean())
    alive = pools.alive(told.pool)
    named["env/pool_size"] = len(alive)
    codes = told.pool.skill_P[alive].tolist()
    first = pools.environment(told.pool, int(alive[0])) if len(alive) else None
    skills = records.SKILLS_OF[first.setting] if first else records.SKILLS
    named["env/skill_entropy"] = entropy([codes.count(memory.skill_code(s)) for s in skills])
    drafts, verdicts = told.written.drafts, told.written.verdicts
    if drafts:
        sound = [v.environment for v in verdicts if v.environment is not None]
        judged = len(drafts) - sum(_unchecked(v) for v in verdicts)
        if judged:
            named["env/validity"] = len(sound) / judged
        named["env/reply_tokens"] = float(np.mean([len(d.reply.ids) for d in drafts]))
        if sound:
            named["env/similarity"] = float(np.mean([e.similarity for e in sound]))
            named["env/diversity"] = len({e.digest for e in sound}) / len(sound)
            named["env/class_names"] = len({e.class_name for e in sound}) / len(sound)
    hinted = told.played.dropped + sum(e.arm == records.HINTED for e in told.played.episodes)
    if hinted:
        named["env/hints_kept"] = 1.0 - told.played.dropped / hinted
    return named


def _earned(report, rows: int, paired: np.ndarray) -> float:
    """Of the failures in plain plays, the share that the hint removes, over paired environments."""
    plain = report["win_rate_N"][:rows][paired]
    hinted = report["hinted_rate_N"][:rows][paired]
    known = ~(np.isnan(plain) | np.isnan(hinted))
    failures = float((1.0 - plain[known]).sum())
    return float((hinted[known] - plain[known]).sum() / failures) if failures > 0 else 0.0


def _skills(told: Told) -> records.Metrics:
    named: records.Metrics = {}
    report, found = told.report, collections.defaultdict(list)
    for n, environment in enumerate(told.table):
        name = metric_files.slug(environment.skill)
        if not np.isnan(report["win_rate_N"][n]):
            found[f"env/skill_{name}/win_rate"].append(report["win_rate_N"][n])
        if not np.isnan(report["hinted_rate_N"][n]):
            found[f"env/skill_{name}/hinted_win_rate"].append(report["hinted_rate_N"][n])
        if report["paired_N"][n] > 0:
            found[f"env/skill_{name}/regret"].append(report["regret_N"][n])
    named |= {name: float(np.mean(values)) for name, values in sorted(found.items())}
    named |= figures.of_skills(told.played.episodes, [e.skill for e in told.table])
    asked, passed = collections.Counter(), collections.Counter()
    for draft, verdict in zip(told.written.drafts, told.written.verdicts, strict=True):
        asked[draft.skill] += not _unchecked(verdict)
        passed[draft.skill] += verdict.environment is not None
    for skill in sorted(skill for skill, count in asked.items() if count):
        named[f"env/skill_{metric_files.slug(skill)}/validity"] = passed[skill] / asked[skill]
    return named


def _update(told: Told) -> records.Metrics:
    report, both = told.report, (records.DESIGNER, records.AGENT)
    tokens_2 = report["tokens_2"]
    share_2 = tokens_2 / max(float(tokens_2.sum()), 1.0)

    def over_roles(name: str) -> float:
        return float((report[name] * share_2).sum())

    named = {
        "actor/agent_advantage_rms": float(report["advantage_rms_2"][records.AGENT]),
        "actor/designer_advantage_rms": float(report["advantage_rms_2"][records.DESIGNER]),
        "train/loss": float(report["loss"]),
        "train/policy_loss": float(report["policy_loss"]),
        "train/step_kl": over_roles("step_kl_2"),
        "train/clip_share": over_roles("clipped_2"),
        "train/importance": over_roles("importance_2"),
        "train/importance_off": over_roles("importance_off_2"),
        "train/importance_capped": over_roles("importance_capped_2"),
        "train/logp_gap_mean": over_roles("logp_gap_2"),
        "train/logp_gap_max": float(max(report["max_logp_gap_2"][role] for role in both)),
        "train/gradient_norm": float(report["gradient_norm"]),
        "train/update_norm": float(report["update_norm"]),
        "train/parameter_norm": float(report["parameter_norm"]),
        "train/learning_rate": float(report["learning_rate"]),
        "train/padding": 1.0 - told.made.real_share,
        "train/skipped_steps": int(report["skipped_steps"]),
    }
    for role in both:
        if tokens_2[role] > 0:  # without a token there is no entropy, and 0 would be an alarm
            named[f"actor/{records.ROLES[role]}_entropy"] = float(report["entropy_2"][role])
            named[f"actor/{records.ROLES[role]}_surprise"] = float(report["surprise_2"][role])
    if "kl_2" in report and tokens_2.sum() > 0:  # absent without a reference
        named["train/kl"] = over_roles("kl_2")
    return named


def _counts(told: Told) -> records.Metrics:
    drafts, verdicts = told.written.drafts, told.written.verdicts
    reasons = collections.Counter(
        v.finding.reason for v in verdicts if v.finding is not None and not _unchecked(v)
    )
    trained = told.made.counts["trained_designer"] + told.made.counts["trained_agent"]
    named: records.Metrics = {
        "count/drafts": len(drafts),
        "count/accepted": sum(v.environment is not None for v in verdicts),
        "count/repaired": len(told.written.repaired),
        "count/episodes": len(told.played.episodes),
        "count/programs": _processes(told),
        "count/environments": len(told.table),
        "count/generated": told.made.counts["generated"],
        # the host has these as trained
        "count/trained": trained - told.masked["unpaid"] - told.masked["overlong"],
        "count/trained_drafts": told.made.counts["trained_designer"] - told.masked["unpaid"],
        "count/refused": sum(w.reason not in ("", *pools.UNJUDGED) for w in told.due),
        "count/unchecked": sum(_unchecked(v) for v in verdicts),
        "count/waiting": len(told.pool.waiting),
        "count/tokens": int(told.report["tokens_2"].sum()),
    }
    named |= {f"count/refused_{reason}": n for reason, n in reasons.items()}
    if told.written.cut:
        named["count/cut_drafts"] = told.written.cut
    spent = told.written.screening
    if spent.screened:
        named["env/screened_out"] = spent.refused / spent.screened
        named["count/screen_replies"] = spent.replies
    if told.reviews.asked:
        named["env/reviewed_unsound"] = told.reviews.unsound / told.reviews.asked
        named["count/review_replies"] = told.reviews.asked
    if told.reviews.no_room:
        named["count/review_no_room"] = told.reviews.no_room
    named |= {f"count/masked_{reason}": n for reason, n in told.masked.items()}
    for reason, n in told.played.hint_refusals.items():
        named[f"count/hint_refused_{metric_files.slug(reason)}"] = n
    for reason, n in told.hint_refusals.items():
        named[f"count/policy_hint_refused_{metric_files.slug(reason)}"] = n
    return named


def _processes(told: Told) -> int:
    """Count the processes that executed programs, the ones that the sandbox lost left out: so the
    count is that of the run, not of the machine."""
    return told.written.screening.processes + told.played.processes


def _unchecked(verdict: validate.Verdict) -> bool:
    """Tell whether nobody could judge a draft, because the sandbox failed."""
    return verdict.finding is not None and verdict.finding.reason == validate.INFRA


def _spread(items: list[int], count: int) -> list[int]:
    """Choose `count` items evenly over the list."""
    if len(items) <= count:
        return items
    return [items[i * len(items) // count] for i in range(count)]
