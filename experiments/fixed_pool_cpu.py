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
    run.mode = "fixed_pool"
    run.iterations = 100
    run.rollout.environments = 42  # all of them, every iteration
    run.rollout.seeds = 4
    run.rollout.plays = 12
    run.rollout.hinted_plays = 0
    run.rollout.isolation = "environment"  # hand-written programs
    run.batch.drop_flat_groups = True
    run.learn.learning_rate = 5e-4
    run.learn.b2 = 0.99
    run.learn.eps = 1e-4
    run.learn.weight_decay = 0.0
    run.learn.credit.std = "none"
    run.evaluate.every = 25
    run.checkpoint.every = 5
    return run
