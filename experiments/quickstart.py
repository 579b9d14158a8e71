"""Quickstart: a whole self-play run in minutes, from the committed warm-started policy.

Shows:     the loop: a policy writes environments as programs, gVisor runs them, the agent plays
           them with and without a hint, one jitted step updates the shared weights.
Source:    SPADE (arXiv:2608.19197), at the size of two CPU cores.
Command:   python3 launch/bootstrap.py quickstart
           (or: python -m launch.train --config=experiments/quickstart.py --workdir=runs/quickstart)
Hardware:  2 CPU cores, gVisor.
Result:    a closing table; see README.md. It claims no improvement.
"""

from experiments import small


def get_config(arg: str = ""):
    """Build the configuration; `arg` is not used."""
    del arg
    run = small.run_config()
    small.use_reinforcement(run)
    small.use_self_play(run)
    run.iterations = 16
    run.rollout.environments = 24
    run.rollout.seeds = 2
    run.rollout.plays = 8
    run.rollout.hinted_plays = 8
    return run
