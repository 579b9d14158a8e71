"""Ablation: two skills.

Shows:     Two skills in each generation instead of three. The paper keeps the same two of six
           for the whole run; here the two rotate.
Source:    SPADE (arXiv:2608.19197), ablations and baselines at 30B-A3B games.
Command:   python -m launch.train --config=experiments/ablations/two_skills.py --workdir=DIR
           (or ...two_skills.py:8b for another size)
Hardware:  as experiments/games_qwen3_30b_a3b.py.
Result:    not run here. The paper: 58.3 falls to 53.7.
"""

from experiments import paper


def get_config(arg: str = "30b_a3b"):
    """Build the configuration for the size `arg`, a key of `paper.MODELS`."""
    run = paper.games(arg or "30b_a3b")
    run.design.active_skills = 2
    return run
