"""Control: more supervised steps from the same warm-started policy, on the same lessons.

Shows:     what the time of a learning run buys when it is spent on imitation.
Command:   python -m launch.train --config=experiments/more_supervised_cpu.py \
               --workdir=runs/supervised_0 --config.seed=0
Hardware:  2 CPU cores.
Result:    experiments/README.md.
"""

from experiments import small


def get_config(arg: str = ""):
    """Build the configuration; `arg` is not used."""
    del arg
    run = small.run_config()
    run.mode = "supervised"
    run.iterations = 0
    run.warmstart.lessons.hasty_share = 0.5  # the players that the policy has imitated before
    run.warmstart.supervised.steps = 1600
    run.warmstart.supervised.matrix_learning_rate = 0.01  # half the first peak
    run.warmstart.supervised.learning_rate = 1.5e-3
    return run
