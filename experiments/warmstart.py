"""Warm start of the small policy: both roles, supervised, from nothing.

Shows:     a 0.9M-parameter policy learns to write sound environments and to play some of them.
Source:    the train split of experiments/seed_environments/compact, run in gVisor for instances.
Command:   python -m launch.train --config=experiments/warmstart.py --workdir=runs/warmstart
Hardware:  2 CPU cores.
Result:    runs/warmstart/policy.npz and tokenizer.json, committed as experiments/policies/small.*;
           experiments/README.md has the figures.
"""

from experiments import small


def get_config(arg: str = ""):
    """Build the configuration; `arg` is not used."""
    del arg
    run = small.run_config()
    run.mode = "supervised"
    run.iterations = 0
    run.policy.weights = ""
    return run
