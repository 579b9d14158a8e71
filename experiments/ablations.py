"""Ablations and baselines: one change each to a self-play configuration.

Shows:     what a part of the method contributes, at the size of two CPU cores.
Source:    SPADE (arXiv:2608.19197), table of ablations; `faithful` after its public implementation.
Command:   python -m launch.train --config=experiments/ablations.py:NAME --workdir=runs/NAME
           with NAME of CHANGES; `full` changes nothing.
Hardware:  2 CPU cores, gVisor, at most 60 minutes each.
Result:    not run to the end here; the settings are tested. `apply(run, NAME)` is for any run.
"""

from experiments import selfplay_cpu
from spade_jax import credit, records


def full(run):
    """Change nothing."""


def fixed_pool(run):
    """No designer: the seed environments are the pool."""
    run.mode = "fixed_pool"
    run.rollout.hinted_plays = 0
    run.rollout.isolation = "environment"


def window_pool(run):
    """No designer: the levels of the seed environments follow a sliding window."""
    fixed_pool(run)
    run.window.on = True


def no_corpus(run):
    """Prompts without a grounding document."""
    run.corpus = None


def no_memory(run):
    """Prompts without remembered environments."""
    run.design.positives, run.design.negatives = 0, 0


def frozen_designer(run):
    """The designer writes and is never trained."""
    run.design.frozen = True


def frozen_no_memory(run):
    """Both of the above."""
    frozen_designer(run)
    no_memory(run)


def learning_potential(run):
    """Pay the distance from what the skill's slow mean expected."""
    run.learn.credit.variant = "learning_potential"


def solve_rate(run):
    """Pay the plateau of the win rate alone."""
    run.learn.credit.variant = "solve_rate"


def regret_only(run):
    """Pay regret alone."""
    run.learn.credit.variant = "regret"


def raw_regret(run):
    """Pay regret as it was measured, its error ignored."""
    run.learn.credit.estimate = "raw"


def two_skills(run):
    """Let the designer know two skills."""
    run.design.only_skills = records.SKILLS_OF[run.setting][:2]


def faithful(run):
    """The public implementation's arithmetic: blind to refusals, near copies and leaks."""
    for name, value in credit.FAITHFUL.items():
        run.learn.credit[name] = value
    run.curriculum.regret_from = "first"
    run.design.train_refused = False
    run.design.novelty_weight = 0.0
    run.design.leak_weight = 0.0
    run.design.skills = "rotation"
    run.design.difficulty = "medium"


def shuffled_pool(run):
    """No designer: every seed environment is played once before any is played again."""
    fixed_pool(run)
    run.pool.order = "shuffle"


CHANGES = {
    change.__name__: change
    for change in (
        full, fixed_pool, shuffled_pool, window_pool, no_corpus, no_memory, frozen_designer,
        frozen_no_memory, learning_potential, solve_rate, regret_only, raw_regret, two_skills,
        faithful,
    )
}  # fmt: skip


def apply(run, name: str):
    """Change a configuration in place; give it back.

    Raises:
      ValueError: no such change.
    """
    if name not in CHANGES:
        raise ValueError(f"no ablation {name!r}; name one of {', '.join(CHANGES)}.")
    CHANGES[name](run)
    return run


def get_config(arg: str = "full"):
    """Build the configuration of one ablation."""
    return apply(selfplay_cpu.get_config(), arg or "full")
