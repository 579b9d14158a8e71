"""The recipes of the paper (SPADE, arXiv:2608.19197), which the files beside this one name.

Hyper-parameters are those of the paper and of its released launchers; where this project does
something else on purpose, the line says so. What the two settings share stands in `_shared`.
"""

from __future__ import annotations

import dataclasses

from spade_jax import config, corpus, settings
from spade_jax.policy import families


def _trained(name: str, **changes):
    """Give a published model, trained with float32 master weights and bfloat16 products."""
    return dataclasses.replace(
        families.named(name), compute_dtype="bfloat16", remat="full", **changes
    )


MODELS = {  # by size, as in the paper's table of recipes
    "4b": _trained("Qwen3-4B-Instruct-2507"),
    "8b": _trained("Qwen3-8B"),
    "30b_a3b": _trained("Qwen3-30B-A3B", rope_theta=1e7),  # as Instruct-2507 has it
}
PARAMETERS = {"4b": 4_022_468_096, "8b": 8_190_735_360, "30b_a3b": 30_532_122_624}


def games(size: str):
    """Build the recipe for cognitive games; `size` is a key of MODELS."""
    run = _shared(size)
    run.setting = "games"
    run.design.every = 4  # k, also the delay of the designer's credit
    run.design.active_skills = 3  # of the six of the paper, in rotation
    run.rollout.hinted_plays = 4  # 16 over the four iterations of a generation
    run.hint.max_tokens = 4096
    run.corpus.max_words = 6000
    run.learn.objective.kl_coefficient = 0.005 if size == "8b" else 0.0
    return run


def tool_use(size: str):
    """Build the recipe for tool use; 4B takes its newer, shared form and not the older one."""
    run = _shared(size)
    run.setting = "tool_use"
    run.design.every = 8
    run.design.active_skills = 6  # all of them
    run.rollout.hinted_plays = 2  # 16 over the eight iterations of a generation
    run.hint.max_tokens = 2048
    run.corpus.max_words = 4000
    run.screen.by, run.screen.max_tokens = "judgement", 16_384
    run.batch.drop_truncated = True  # the launchers' compact filter
    run.learn.objective.kl_coefficient = 0.005
    return run


def _shared(size: str):
    """Set what both settings and all sizes share."""
    run = config.to_config_dict(
        settings.RunConfig(
            policy=settings.PolicyConfig(
                tokenizer=f"models/qwen3_{size}",  # a Hugging Face directory, not shipped
                weights=f"models/qwen3_{size}",
                model=MODELS[size],
            ),
            corpus=corpus.CorpusConfig(max_characters=60_000),
        )
    )
    run.mode = "self_play"
    run.iterations = 400
    run.mesh.fsdp = 64  # v5e-256; launch.compile fits this axis to other slices
    run.mesh.tensor = 4  # rows of 32,768 tokens: four chips share one
    run.design.drafts = 24
    run.design.max_tokens = 20_000 if size == "8b" else 16_384
    run.design.temperature = 0.6
    run.design.positives = 2
    run.design.negatives = 1
    run.design.skills = "rotation"
    run.design.difficulty = "medium"  # one word for all prompts, as in the released launchers
    run.pool.slots = 96  # four generations; the released code keeps one
    run.pool.newest_share = 1.0  # a generation is played whole, k times, before the next
    run.pool.memory = 200
    run.hint.source = "policy"
    run.hint.max_words = 100
    run.hint.temperature = 0.3
    run.rollout.environments = 24
    run.rollout.seeds = 1
    run.rollout.plays = 8  # the paper says 16, its released code plays 8
    run.rollout.max_turns = 25
    run.rollout.max_tokens = 8192
    run.rollout.context_tokens = 32_768
    run.rollout.temperature = 0.6
    run.rollout.processes = 128
    # Of each host. Four chips of 16 GB hold no more rows of 32,768 tokens beside the weights; those
    # of 95 GB do.
    run.sampler.sequences = 32 if size == "30b_a3b" else 8
    run.sampler.cache_bits = 16 if size == "30b_a3b" else 8
    run.batch.row_tokens = 32_768
    run.batch.rows_multiple = 64
    run.learn.attention = "splash"  # the kernel for TPUs
    run.learn.chunk_tokens = 2048  # on each part of the batch
    run.learn.learning_rate = 1e-6
    run.learn.b1, run.learn.b2 = 0.9, 0.98
    run.learn.weight_decay = 0.1
    run.learn.clip_norm = 1.0
    run.learn.objective.clip_low, run.learn.objective.clip_high = 0.2, 0.28
    run.learn.objective.importance_cap = 2.0
    run.learn.credit.variant = "blend"
    run.learn.credit.regret_weight, run.learn.credit.plateau_weight = 0.4, 0.6
    run.learn.credit.regret_scale = 0.15
    run.learn.credit.plateau_low, run.learn.credit.plateau_high = 0.4, 0.6
    run.learn.credit.plateau_ramp = 0.25
    run.sandbox.boxes = 16  # of each host
    run.sandbox.turn_seconds = 30.0
    run.checkpoint.every = 16
    return run
