"""Lay out the plays by which an environment is judged: who plays which seed, and how they choose.

In: the setting and the seeds. Out: a `Cast` of plays that nobody has played yet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from spade_jax import players, trial
from spade_jax.domains import domain as domain_lib

PROBES = (  # actions of the probe plays, each play starting at another one
    "\\boxed{1}",
    "\\boxed{test}",
    "\\boxed{42}",
    "",
    ']}{ \\boxed{ \x00\u00e9\u6f22 \U0001f600 <tool_call>{"name": 3}</tool_call> -1e999',
    "\\boxed{-1.5e9, [], None, ../..}",
    "<answer></answer>",
)

FEW = 4  # seeds of players that win everywhere or nowhere


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cast:
    """The plays of one environment."""

    probes: list[trial.Play]  # fixed actions, garbage and empty ones, up to the end
    solvers: list[trial.Play]  # the program's own solution
    scripted: list[trial.Play]  # players that do not think


def cast(
    domain: domain_lib.Domain,
    seeds: Sequence[int],
    names: Sequence[str],
    cheat_turns: int | None,
) -> Cast:
    """Lay out all plays of a trial.

    Args:
      names: scripted players, of players.PLAYERS.
      cheat_turns: replies that a scripted player has; None takes the setting's.
    """
    probes = [
        trial.Play(player="probe", seed=seeds[i % len(seeds)], index=i, choose=_prober(i))
        for i in range(len(PROBES))
    ]
    solvers = [
        trial.Play(player="solution", seed=seed, index=len(probes) + i, choose=_solver(domain))
        for i, seed in enumerate(seeds)
    ]
    early = Cast(probes=probes, solvers=solvers, scripted=[])
    return dataclasses.replace(early, scripted=scripted(domain, seeds, names, cheat_turns, early))


def scripted(
    domain: domain_lib.Domain,
    seeds: Sequence[int],
    names: Sequence[str],
    cheat_turns: int | None,
    others: Cast,
) -> list[trial.Play]:
    """Lay out scripted players, numbered after the plays of `others` in the same process."""
    first = len(others.probes) + len(others.solvers) + len(others.scripted)
    turns = domain.cheat_turns if cheat_turns is None else cheat_turns
    plays = []
    for name in names:
        for seed in seeds[:FEW] if name in ("empty", "echo") else seeds:
            play = trial.Play(
                player=name,
                seed=seed,
                index=first + len(plays),
                turns=turns,
                choose=_chooser(name, domain, others.solvers),
            )
            plays.append(play)
    return plays


def _prober(offset: int) -> Callable[[trial.Play], str]:
    return lambda play: PROBES[(offset + len(play.steps)) % len(PROBES)]


def _solver(domain: domain_lib.Domain) -> Callable[[trial.Play], str | None]:
    """Play what solution() says: asked anew each turn; several lines are a plan."""
    plan: list[str] = []

    def choose(play: trial.Play) -> str | None:
        if not plan and play.solution is not None:
            plan.extend([line for line in play.solution.splitlines() if line.strip()] or [""])
        return domain.wrap(plan.pop(0)) if plan else None

    return choose


def _chooser(name: str, domain: domain_lib.Domain, solvers: Sequence[trial.Play]):
    """The constant is chosen once the solvers are reset: the commonest answer."""

    def choose(play: trial.Play) -> str:
        answers = [other.first_solution for other in solvers if other.first_solution]
        constant = players.most_common(answers or (["done"] if domain.uses_tools else []))
        return domain.wrap(players.content(name, play.newest, constant, play.seed, len(play.steps)))

    return choose
