"""Regret estimators: how much noise each pays the designer for, and how much signal it keeps.

Shows:     mean of clip(max(0, estimate) / 0.15, 0, 1), what the blend pays for regret, of the raw
           and of the shrunken estimator, over pools of 24 environments whose true regret is known.
Source:    `credit.paired_regret` and `credit.shrink`; 0.36 is the reference's figure
           for 8 against 16 plays at p = 0.5 and no true regret.
Command:   python -m experiments.estimator_study
Hardware:  1 CPU core, under a minute.
Result:    the table in experiments/README.md.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spade_jax import credit, records

ENVIRONMENTS = 24
POOLS = 2000  # replicates of a row; the standard error of a mean is below 0.004
CONFIG = credit.CreditConfig()


class Row(NamedTuple):
    """A pool and how it is played."""

    name: str
    regret_N: np.ndarray  # true regret of each environment
    middle: float  # mean of both arms' win rates
    seeds: int  # plays are spread over them
    plays: tuple[int, int]  # of an environment, plain and hinted, all seeds together
    iterations: int  # of a life whose estimates are averaged


class Outcome(NamedTuple):
    """Means over environments of one true regret."""

    truth: float
    raw: float  # mean normalised floored estimate
    shrunk: float
    raw_full: float  # share of environments that earn the full weight
    shrunk_full: float


def rows() -> list[Row]:
    """List what is studied."""
    zero, some = np.zeros(ENVIRONMENTS), np.full(ENVIRONMENTS, 0.3)
    half = np.where(np.arange(ENVIRONMENTS) % 2 == 0, 0.0, 0.3)
    few = np.where(np.arange(ENVIRONMENTS) % 4 == 0, 0.3, 0.0)
    return [
        Row("no regret", zero, 0.5, 4, (8, 16), 1),
        Row("no regret, one seed", zero, 0.5, 1, (8, 16), 1),
        Row("no regret, rare wins", zero, 0.1, 4, (8, 16), 1),
        Row("no regret, 16 + 16 plays", zero, 0.5, 4, (16, 16), 1),
        Row("regret 0.3", some, 0.5, 4, (8, 16), 1),
        Row("regret 0.3, one seed", some, 0.5, 1, (8, 16), 1),
        Row("half 0.3, half none", half, 0.5, 4, (8, 16), 1),
        Row("a quarter 0.3", few, 0.5, 4, (8, 16), 1),
        Row("half 0.3, a life of 4", half, 0.5, 4, (8, 16), 4),
        Row("half 0.3, a life of 8", half, 0.5, 4, (8, 16), 8),
    ]


def study(row: Row, pools: int = POOLS, seed: int = 0) -> list[Outcome]:
    """Estimate every environment of many pools; give the means by true regret."""
    keys = jax.random.split(jax.random.key(seed), pools)
    chances_NA = np.clip(row.middle + np.outer(row.regret_N, [-0.5, 0.5]), 0.0, 1.0)
    one = functools.partial(_estimates, seeds=row.seeds, plays=row.plays, iterations=row.iterations)
    raw_RN, shrunk_RN = jax.jit(jax.vmap(one, in_axes=(0, None)))(keys, jnp.asarray(chances_NA))
    paid = [np.asarray(credit.normalised_regret(x, CONFIG)) for x in (raw_RN, shrunk_RN)]
    outcomes = []
    for truth in np.unique(row.regret_N):
        same = row.regret_N == truth
        raw, shrunk = (values[:, same] for values in paid)
        outcomes.append(
            Outcome(
                float(truth), float(raw.mean()), float(shrunk.mean()),
                float((raw >= 1).mean()), float((shrunk >= 1).mean()),
            )
        )  # fmt: skip
    return outcomes


def _estimates(key, chances_NA, *, seeds: int, plays: tuple[int, int], iterations: int):
    """Play one pool; give the raw and the shrunken regret of each environment over its life."""
    most = max(plays) // seeds
    shape = (iterations, len(chances_NA), seeds, most, len(records.ARMS))
    won = jax.random.bernoulli(key, chances_NA[None, :, None, None, :], shape)
    arm_GA = np.arange(most)[:, None] < np.array(plays) // seeds
    valid_NSGA = jnp.broadcast_to(arm_GA, shape[1:])

    def estimate(won_NSGA):
        return credit.paired_regret(won_NSGA.astype(jnp.float32), valid_NSGA)

    each = jax.vmap(estimate)(won)
    life = credit.Regret(
        each.mean_N.mean(0), jnp.sqrt((each.se_N**2).sum(0)) / iterations, each.paired_N[0]
    )
    return life.mean_N, credit.shrink(life)


def table(pools: int = POOLS) -> str:
    """Write all rows for people."""
    names = f"{'raw':>8}{'shrunk':>8}{'full raw':>10}{'full shrunk':>13}"
    lines = [f"{'pool of 24 environments':<28}{'true':>6}{names}"]
    for row in rows():
        for o in study(row, pools):
            lines.append(
                f"{row.name:<28}{o.truth:>6.1f}{o.raw:>8.3f}{o.shrunk:>8.3f}"
                f"{o.raw_full:>10.2f}{o.shrunk_full:>13.2f}"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
