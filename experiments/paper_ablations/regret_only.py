"""Ablation: regret only.

Shows:     The designer is paid for regret alone, the paper's headline quantity.
Source:    SPADE (arXiv:2608.19197), ablations and baselines at 30B-A3B games.
Command:   python -m launch.train --config=experiments/paper_ablations/regret_only.py \\
               --workdir=DIR
           (or ...regret_only.py:8b for another size)
Hardware:  as experiments/games_qwen3_30b_a3b.py.
Result:    not run here. The paper: used in its older tool recipe.
"""

from experiments import ablations, paper


def get_config(arg: str = "30b_a3b"):
    """Build the configuration for the size `arg`, a key of `paper.MODELS`."""
    return ablations.apply(paper.games(arg or "30b_a3b"), "regret_only")
