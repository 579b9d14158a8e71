"""Second half of the warm start: imitate players of mixed care.

Shows:     nothing by itself. Half of the demonstrations guess at once, mostly wrong, the way hasty
           players do; the other half work the answer out. A policy that imitates both can be taught
           by reward what more imitation of the same players cannot: to work before it answers.
Command:   python -m launch.train --config=experiments/mixed_care.py --workdir=runs/mixed_care
           after python -m launch.train --config=experiments/warmstart.py --workdir=runs/warmstart
Hardware:  2 CPU cores, 5 minutes.
Result:    runs/mixed_care/policy.npz and tokenizer.json, committed as experiments/policies/small.*;
           experiments/README.md has the figures.
"""

from experiments import small


def get_config(arg: str = ""):
    """Build the configuration; `arg` is not used."""
    del arg
    run = small.run_config()
    run.mode = "supervised"
    run.iterations = 0
    run.policy.weights = "runs/warmstart/policy.npz"
    run.policy.tokenizer = "runs/warmstart/tokenizer.json"
    run.warmstart.lessons.plays = 60
    run.warmstart.lessons.hasty_share = 0.5
    run.warmstart.supervised.steps = 500
    run.warmstart.supervised.matrix_learning_rate = 0.005  # a quarter of the first peak
    run.warmstart.supervised.learning_rate = 7.5e-4
    return run
