"""Safeguards: does self-play still teach, or has it collapsed, and what is done about it.

In: the metrics of an iteration. Out: a state with named causes, and what the next iteration does
differently. Nothing here runs a program or touches an array; `answering.py` carries answers out.
A cause is a figure beyond its bound. It warns after `warn_after` observations in a row and is a
collapse after `collapse_after`; one good observation ends it. Iterations without the figure (no
generation was written, say) neither count nor clear.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

STATES = ("healthy", "warning", "collapsed")
ACTIONS = {
    "explore": "drafts are sampled hotter and each gets a passage, from the warning on",
    "pause": "drafts are not trained on",
    "reseed": "environments of high regret, or else seed environments, enter the pool",
    "retire": "environments that show the cause leave the draw",
    "roll_back": "parameters and optimiser return to the last healthy checkpoint",
    "stop": "the run ends with an error",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """When a cause holds: a metric beyond the bound of that name in the configuration."""

    cause: str
    metric: str
    bound: str  # field of SafeguardsConfig
    above: bool  # the figure is bad above the bound, else below it


CAUSES = {
    "one_environment": "the designer writes the same environment again and again",
    "no_programs": "the designer's text is hardly ever a program",
    "too_easy": "the newest environments are won without learning",
    "unwinnable": "the newest environments are won neither with nor without the hint",
    "hint_leaks": "hints tell the answer",
    "faulty": "programs crash, hang or exhaust their limits",
    "validator_hole": "plays win with actions that do not look at the task",
    "designer_entropy": "the designer has almost stopped varying its text",
    "drift": "the policy is far from where it started",
}
RULES = (
    Rule(cause="one_environment", metric="env/vendi", bound="least_vendi", above=False),
    Rule(cause="no_programs", metric="env/no_programs", bound="most_no_programs", above=True),
    Rule(cause="too_easy", metric="env/too_easy", bound="most_too_easy", above=True),
    Rule(cause="unwinnable", metric="env/unwinnable", bound="most_unwinnable", above=True),
    Rule(cause="hint_leaks", metric="env/hint_leaks", bound="most_hint_leaks", above=True),
    Rule(cause="faulty", metric="env/faulty_drafts", bound="most_faulty_drafts", above=True),
    Rule(cause="faulty", metric="rollout/environment_faults", bound="most_faults", above=True),
    Rule(
        cause="validator_hole", metric="rollout/blind_wins", bound="most_blind_wins", above=True
    ),
    Rule(
        cause="designer_entropy", metric="actor/designer_entropy", bound="least_entropy",
        above=False,
    ),
    Rule(cause="drift", metric="train/kl", bound="most_kl", above=True),
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class SafeguardsConfig:
    """Bounds, patience and answers; an answer joins names of ACTIONS by "+", or is empty."""

    warn_after: int = 2  # observations in a row
    collapse_after: int = 4
    least_vendi: float = 0.1  # effective share of distinct programs in a generation
    most_no_programs: float = 0.8  # of drafts
    most_too_easy: float = 0.8  # of the newest environments drawn
    most_unwinnable: float = 0.8
    most_hint_leaks: float = 0.7  # of hints; short answers stand in 0.4 of honest ones by accident
    most_faulty_drafts: float = 0.5  # of drafts
    most_faults: float = 0.2  # of plays
    most_blind_wins: float = 0.8  # of wins
    least_entropy: float = 0.0  # nats a token; 0 never warns
    most_kl: float = math.inf  # nats a token
    one_environment: str = "explore+reseed"
    no_programs: str = "reseed"
    too_easy: str = "explore+reseed"
    unwinnable: str = "explore+reseed"
    hint_leaks: str = "pause"
    faulty: str = "reseed"
    validator_hole: str = "retire+pause"
    designer_entropy: str = "explore"
    drift: str = "roll_back"  # most_kl says when; healthy checkpoints are kept once it is finite
    temperature_factor: float = 1.3  # of the designer's temperature while it explores
    healthy_every: int = 10  # iterations between checkpoints kept for a roll back

    def __post_init__(self):
        if not 1 <= self.warn_after <= self.collapse_after:
            raise ValueError(
                f"safeguards.warn_after={self.warn_after}, collapse_after={self.collapse_after}: "
                "use 1 <= warn_after <= collapse_after."
            )
        if self.temperature_factor < 1 or self.healthy_every < 1:
            raise ValueError(
                f"safeguards.temperature_factor={self.temperature_factor}, healthy_every="
                f"{self.healthy_every}: both must be at least 1."
            )
        for cause in CAUSES:
            for action in _actions(self, cause):
                if action not in ACTIONS:
                    raise ValueError(
                        f"safeguards.{cause}={getattr(self, cause)!r}: {action!r} is no answer; "
                        f"join names of {', '.join(ACTIONS)} by '+'."
                    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Health:
    """What the monitor remembers; `dataclasses.asdict` is JSON-able."""

    state: str = "healthy"
    streaks: Mapping[str, int] = dataclasses.field(default_factory=dict)  # cause -> observations
    fresh: tuple[str, ...] = ()  # causes that count as collapse anew since the last iteration


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What the next iteration does differently: names of ACTIONS."""

    standing: frozenset[str] = frozenset()  # explore, pause: as long as the cause lasts
    once: frozenset[str] = frozenset()  # reseed, retire, roll_back, stop: when it turns a collapse
    causes: tuple[str, ...] = ()  # that ask for what is done once


def watch(health: Health, metrics: Mapping[str, Any], config: SafeguardsConfig) -> Health:
    """Take in the metrics of an iteration."""
    streaks, fresh = {}, []
    for cause in CAUSES:
        before = health.streaks.get(cause, 0)
        seen = [
            _beyond(metrics[rule.metric], rule, config)
            for rule in RULES
            if rule.cause == cause and metrics.get(rule.metric) is not None
        ]
        streak = before if not seen else before + 1 if any(seen) else 0
        if streak:
            streaks[cause] = streak
        if seen and streak and streak % config.collapse_after == 0:
            fresh.append(cause)
    worst = max(streaks.values(), default=0)
    state = STATES[(worst >= config.warn_after) + (worst >= config.collapse_after)]
    return Health(state=state, streaks=streaks, fresh=tuple(fresh))


def causes(health: Health, config: SafeguardsConfig) -> list[str]:
    """Name what holds at least for a warning, the longest first."""
    held = [cause for cause, streak in health.streaks.items() if streak >= config.warn_after]
    return sorted(held, key=lambda cause: (-health.streaks[cause], cause))


def answer(health: Health, config: SafeguardsConfig) -> Answer:
    """Say what the next iteration does: see ACTIONS for when each begins."""
    standing = set()
    for cause in causes(health, config):
        collapsed = health.streaks[cause] >= config.collapse_after
        asked = set(_actions(config, cause))
        standing |= asked & ({"explore", "pause"} if collapsed else {"explore"})
    once = {action for cause in health.fresh for action in _actions(config, cause)}
    return Answer(
        standing=frozenset(standing),
        once=frozenset(once - {"explore", "pause"}),
        causes=health.fresh,
    )


def figures(health: Health, given: Answer) -> dict[str, int]:
    """Name the state, each streak and what was answered, for the metrics of an iteration."""
    named = {"health/state": STATES.index(health.state)}
    named |= {f"health/cause_{cause}": streak for cause, streak in health.streaks.items()}
    named |= {f"health/answer_{action}": 1 for action in given.standing | given.once}
    return named


def notice(health: Health, config: SafeguardsConfig) -> str:
    """Tell a person about a warning or a collapse; empty while healthy."""
    found = causes(health, config)
    if not found:
        return ""
    told = [f"{cause} ({CAUSES[cause]}; {health.streaks[cause]} in a row)" for cause in found]
    given = answer(health, config)
    doing = sorted(given.standing | given.once)
    return f"{health.state}: {'; '.join(told)}. Answer: {', '.join(doing) if doing else 'none'}"


def may_roll_back(config: SafeguardsConfig) -> bool:
    """Tell whether some cause that can hold is answered by a roll back."""
    asked = [cause for cause in CAUSES if "roll_back" in _actions(config, cause)]
    return bool(set(asked) - {"drift"}) or ("drift" in asked and math.isfinite(config.most_kl))


def from_json(values: Mapping[str, Any]) -> Health:
    """Read what `dataclasses.asdict` wrote."""
    return Health(**{**values, "fresh": tuple(values["fresh"])})


def _actions(config: SafeguardsConfig, cause: str) -> list[str]:
    return [action for action in getattr(config, cause).split("+") if action]


def _beyond(value: float, rule: Rule, config: SafeguardsConfig) -> bool:
    bound = getattr(config, rule.bound)
    return value > bound if rule.above else value < bound
