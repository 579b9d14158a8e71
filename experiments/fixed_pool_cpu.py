"""Fixed pool: the agent alone, trained by group-relative advantages on the 42 training families.

Shows:     the update and its settings learn: the solve rate on new instances of the families rises.
Command:   python -m launch.train --config=experiments/fixed_pool_cpu.py --workdir=runs/pool_0 \
               --config.seed=0      (and seeds 1, 2)
Hardware:  2 CPU cores, at most 30 minutes a seed.
Result:    experiments/README.md.
"""

from experiments import small


def get_config(arg: str = ""):
    """Build the configuration; `arg` is not used."""
    del arg
    run = small.run_config()
    small.use_reinforcement(run)
    run.mode = "fixed_pool"
    run.iterations = 40
    run.rollout.environments = 42  # all of them, every iteration
    run.rollout.seeds = 4
    run.rollout.plays = 12
    run.rollout.hinted_plays = 0
    run.rollout.isolation = "environment"  # hand-written programs
    return run
