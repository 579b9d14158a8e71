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
      names: scripted players, of `scripted_names`.
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


def scripted_names(domain: domain_lib.Domain) -> tuple[str, ...]:
    """List the scripted players of a setting."""
    if domain.uses_tools:
        return (*players.PLAYERS, *players.BARE, *players.COPYING, *players.CALLING)
    informed = (*players.INFORMED, players.SHORTCUT)
    return (*players.PLAYERS, *players.BARE, *players.COPYING, *informed)


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
        for seed in seeds[:FEW] if name in ("empty", "silent", "echo") else seeds:
            play = trial.Play(
                player=name,
                seed=seed,
                index=first + len(plays),
                turns=1 if name == players.SHORTCUT else turns,
                choose=_chooser(name, domain, others),
            )
            plays.append(play)
    return plays


def _prober(offset: int) -> Callable[[trial.Play], str]:
    return lambda play: PROBES[(offset + len(play.steps)) % len(PROBES)]


def _solver(domain: domain_lib.Domain) -> Callable[[trial.Play], str | None]:
    """Play what solution() says: asked anew each turn; several lines are a plan, see `_plan`."""
    plan: list[str] = []

    def choose(play: trial.Play) -> str | None:
        if not plan and play.solution is not None:
            plan.extend(_plan(play.solution))
        return domain.wrap(plan.pop(0)) if plan else None

    return choose


def _plan(solution: str) -> list[str]:
    """Cut a plan into actions; one box around everything is one action, whatever its lines."""
    if solution.startswith("\\boxed{") and solution.count("\\boxed") == 1:
        return [solution]
    return [line for line in solution.splitlines() if line.strip()] or [""]


def _chooser(name: str, domain: domain_lib.Domain, others: Cast):
    """Choose as the player of that name; the solvers have played before."""

    def choose(play: trial.Play) -> str:
        turn = len(play.steps)
        answers = [other.first_solution for other in others.solvers if other.first_solution]
        if name in players.COPYING:
            return domain.wrap(_copied(name, play, others.solvers))
        if name == players.SHORTCUT:
            own = [other for other in others.solvers if other.seed == play.seed and other.steps]
            return own[0].steps[-1].action if own else domain.wrap("")
        if name in players.BARE:
            return players.content(players.BARE[name], play.newest, "", play.seed, turn)
        if name in players.INFORMED:
            return domain.wrap(_informed(name, play, others.solvers, answers))
        if name in players.CALLING:
            said = players.random_call(others.probes[0].tools or [], play.newest, play.seed, turn)
            return domain.wrap("done" if turn % 4 == 3 else said)
        constant = players.most_common(answers or (["done"] if domain.uses_tools else []))
        return domain.wrap(players.content(name, play.newest, constant, play.seed, turn))

    return choose


def _copied(name: str, play: trial.Play, solvers: Sequence[trial.Play]) -> str:
    """Say what a solver of another seed said at this turn, or what most solvers said last."""
    played = [other for other in solvers if other.steps and other.seed != play.seed]
    if not played:
        return ""
    if name == "last_word":
        return players.most_common([other.steps[-1].action for other in played])
    steps = played[play.seed % len(played)].steps
    return steps[min(len(play.steps), len(steps) - 1)].action


def _informed(name: str, play: trial.Play, solvers, answers: Sequence[str]) -> str:
    """Say the right answer in a way that must not count; "" where it is not known."""
    own = next((other.first_solution for other in solvers if other.seed == play.seed), None)
    if not own:
        return ""
    if name == "part_of_answer":
        return players.part_of(own)
    return players.all_answers(answers, own)
