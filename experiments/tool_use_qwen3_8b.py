"""Self-play in multi-turn tool use with Qwen3-8B.

Shows:     the paper's recipe for this size.
Source:    SPADE (arXiv:2608.19197), hyper-parameters in `experiments/paper.py`.
Command:   python -m launch.train --config=experiments/tool_use_qwen3_8b.py --workdir=DIR
           on every host; `launch.compile` with the same file tells what it needs.
Hardware:  v5e-256 (64 x 4 chips), gVisor on every host.
Result:    not run here. The paper reports 40.5 -> 46.8 (mean of BFCL v4, tau2 and ACEBench).
"""

from experiments import paper


def get_config(arg: str = ""):
    """Build the configuration; `arg` is not used."""
    del arg
    return paper.tool_use("8b")
