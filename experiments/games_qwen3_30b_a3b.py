"""Self-play in cognitive games with Qwen3-30B-A3B-Instruct-2507.

Shows:     the paper's recipe for this size.
Source:    SPADE (arXiv:2608.19197), hyper-parameters in `experiments/paper.py`.
Command:   python -m launch.train --config=experiments/games_qwen3_30b_a3b.py --workdir=DIR
           on every host; `launch.compile` with the same file tells what it needs.
Hardware:  v5p-128, gVisor on every host; four chips of v6e do not hold a sampler of this size.
Result:    not run here. The paper reports 50.2 -> 58.3 (mean of its eight benchmarks).
"""

from experiments import paper


def get_config(arg: str = ""):
    """Build the configuration; `arg` is not used."""
    del arg
    return paper.games("30b_a3b")
