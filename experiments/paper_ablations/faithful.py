"""Ablation: faithful.

Shows:     The public implementation's arithmetic: blind to refusals, near copies and leaks.
Source:    SPADE (arXiv:2608.19197), ablations and baselines at 30B-A3B games.
Command:   python -m launch.train --config=experiments/paper_ablations/faithful.py \\
               --workdir=DIR
           (or ...faithful.py:8b for another size)
Hardware:  as experiments/games_qwen3_30b_a3b.py.
Result:    not run here. The paper: 58.3.
"""

from experiments import ablations, paper


def get_config(arg: str = "30b_a3b"):
    """Build the configuration for the size `arg`, a key of `paper.MODELS`."""
    return ablations.apply(paper.games(arg or "30b_a3b"), "faithful")
