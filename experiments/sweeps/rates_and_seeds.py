"""Sweep: step size of the update against seeds, on the quickstart.

Command:   python -m launch.sweep --config=experiments/quickstart.py
           --sweep=experiments/sweeps/rates_and_seeds.py --workdir=runs/rates
"""

from spade_jax import sweep


def get_config():
    """List the points: three step sizes, two seeds each."""
    return sweep.product(sweep.values("learn.learning_rate", [3e-4, 1e-3, 3e-3]), sweep.seeds(2))
