"""Self-play in cognitive games with Qwen3-8B.

Shows:     the paper's recipe for this size.
Source:    SPADE (arXiv:2608.19197), hyper-parameters in `experiments/paper.py`.
Command:   python -m launch.train --config=experiments/games_qwen3_8b.py --workdir=DIR
           on every host; `launch.compile` with the same file tells what it needs.
Hardware:  v5e-256 (64 x 4 chips), gVisor on every host.
Result:    not run here. The paper reports 49.8 -> 55.5 (mean of its eight benchmarks).
"""

from experiments import paper


def get_config(arg: str = ""):
    """Build the configuration; `arg` is not used."""
    del arg
    return paper.games("8b")
