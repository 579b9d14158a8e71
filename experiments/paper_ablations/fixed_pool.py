"""Ablation: fixed pool.

Shows:     The agent alone, on a fixed pool of environments: is self-play worth its price?
Source:    SPADE (arXiv:2608.19197), ablations and baselines at 30B-A3B games.
Command:   python -m launch.train --config=experiments/paper_ablations/fixed_pool.py \\
               --workdir=DIR
           (or ...fixed_pool.py:8b for another size; on a pool made by launch.import_pool:
           --config.pool_folder=POOL --config.pool.slots=7872)
Hardware:  as experiments/games_qwen3_30b_a3b.py.
Result:    not run here. The paper: 58.3 falls to 51.4 with 7,872 games of a larger model.
"""

from experiments import ablations, paper


def get_config(arg: str = "30b_a3b"):
    """Build the configuration for the size `arg`, a key of `paper.MODELS`."""
    return ablations.apply(paper.games(arg or "30b_a3b"), "shuffled_pool")
