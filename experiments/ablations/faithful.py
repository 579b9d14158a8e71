"""Ablation: faithful.

Shows:     As near to the released code as the knobs come: raw regret, the fixed factor between the
           roles, one generation alive, no penalty for likeness, leaks or faults.
Source:    SPADE (arXiv:2608.19197), ablations and baselines at 30B-A3B games.
Command:   python -m launch.train --config=experiments/ablations/faithful.py --workdir=DIR
           (or ...faithful.py:8b for another size)
Hardware:  as experiments/games_qwen3_30b_a3b.py.
Result:    not run here. The paper: 58.3.
"""

from experiments import paper


def get_config(arg: str = "30b_a3b"):
    """Build the configuration for the size `arg`, a key of `paper.MODELS`."""
    run = paper.games(arg or "30b_a3b")
    run.learn.credit.estimate = "raw"
    run.learn.credit.role_scale = "reference"
    run.learn.credit.fault_penalty = run.learn.credit.fault_share_penalty = 0.0
    run.pool.slots = 24
    run.pool.newest_share = 1.0
    run.design.novelty_weight = run.design.leak_weight = 0.0
    return run
