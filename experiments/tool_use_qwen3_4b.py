"""Self-play in multi-turn tool use with Qwen3-4B-Instruct-2507.

Shows:     the paper's recipe for this size.
Source:    SPADE (arXiv:2608.19197), hyper-parameters in `experiments/paper.py`.
Command:   python -m launch.train --config=experiments/tool_use_qwen3_4b.py --workdir=DIR
           on every host; `launch.compile` with the same file tells what it needs.
Hardware:  v5e-256 (64 x 4 chips), gVisor on every host.
Result:    not run here. The paper reports 33.8 -> 41.4 (mean of BFCL v4, tau2 and ACEBench).
           The paper's 4B run used an older recipe (k = 32, regret only); this is the shared one.
"""

from experiments import paper


def get_config(arg: str = ""):
    """Build the configuration; `arg` is not used."""
    del arg
    return paper.tool_use("4b")
