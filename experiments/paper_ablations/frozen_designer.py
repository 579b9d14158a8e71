"""Ablation: frozen designer.

Shows:     The designer writes and is never trained.
Source:    SPADE (arXiv:2608.19197), ablations and baselines at 30B-A3B games.
Command:   python -m launch.train --config=experiments/paper_ablations/frozen_designer.py \\
               --workdir=DIR
           (or ...frozen_designer.py:8b for another size)
Hardware:  as experiments/games_qwen3_30b_a3b.py.
Result:    not run here. The paper: 40.5 without memory too, below the base model's 50.2.
"""

from experiments import ablations, paper


def get_config(arg: str = "30b_a3b"):
    """Build the configuration for the size `arg`, a key of `paper.MODELS`."""
    return ablations.apply(paper.games(arg or "30b_a3b"), "frozen_designer")
