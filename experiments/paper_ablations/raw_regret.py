"""Ablation: raw regret.

Shows:     Regret as measured, without shrinkage towards the pool.
Source:    SPADE (arXiv:2608.19197), ablations and baselines at 30B-A3B games.
Command:   python -m launch.train --config=experiments/paper_ablations/raw_regret.py \\
               --workdir=DIR
           (or ...raw_regret.py:8b for another size)
Hardware:  as experiments/games_qwen3_30b_a3b.py.
Result:    not run here. The paper: uses it everywhere.
"""

from experiments import ablations, paper


def get_config(arg: str = "30b_a3b"):
    """Build the configuration for the size `arg`, a key of `paper.MODELS`."""
    return ablations.apply(paper.games(arg or "30b_a3b"), "raw_regret")
