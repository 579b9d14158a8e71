"""Self-play of the small policy, long enough to learn.

Shows:     the designer writes environments, the agent plays them and improves on new instances of
           the known families; validity and diversity hold; held-out families beside the controls
           experiments/fixed_pool_cpu.py and experiments/more_supervised_cpu.py.
Source:    SPADE (arXiv:2608.19197), at the size of two CPU cores.
Command:   python -m launch.train --config=experiments/selfplay_cpu.py --workdir=runs/self_0 \
               --config.seed=0      (and seed 1)
Hardware:  2 CPU cores, gVisor, at most 60 minutes a seed.
Result:    experiments/README.md.
"""

from experiments import small


def get_config(arg: str = ""):
    """Build the configuration; `arg` is not used."""
    del arg
    run = small.run_config()
    small.use_reinforcement(run)
    small.use_self_play(run)
    run.iterations = 60
    run.rollout.environments = 36
    run.rollout.seeds = 3
    run.rollout.plays = 12
    run.rollout.hinted_plays = 4
    run.pool.newest_share = 0.6
    run.evaluate.every = 20
    return run
