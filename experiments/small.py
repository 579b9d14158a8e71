"""What the experiments on two CPU cores share: the small policy, its shapes, its sandbox."""

from spade_jax import config, corpus, lessons, settings, supervised
from spade_jax.policy import transformer

MODEL = transformer.ModelConfig(
    vocab_size=640,  # replaced by the tokenizer's
    layers=4,
    width=128,
    heads=4,
    kv_heads=2,
    head_dim=32,
    mlp_width=352,
    rope_theta=100.0,  # sequences are short: slower wavelengths would tell no positions apart
    qk_norm=True,  # copying and reversing are learned sooner with it
    role_head="lowrank",
    role_rank=8,
)


def run_config():
    """Defaults of a run of the small policy, as an ml_collections ConfigDict."""
    run = config.to_config_dict(
        settings.RunConfig(
            policy=settings.PolicyConfig(
                tokenizer="experiments/policies/small.tokenizer.json",
                weights="experiments/policies/small.npz",
                model=MODEL,
            ),
            warmstart=settings.WarmstartConfig(
                designer_share=0.2,
                lessons=lessons.LessonConfig(variants=24, plays=400),
                supervised=supervised.SupervisedConfig(steps=2600, rows=12, row_tokens=168),
            ),
        )
    )
    run.setting = "compact"
    run.corpus = config.to_config_dict(corpus.CorpusConfig(max_characters=24))  # what fits a row
    run.sandbox.boxes = 2  # one per core
    run.design.max_tokens = 140  # the longest seed program has 133 with its fence
    run.batch.row_tokens = 168
    run.rollout.context_tokens = 96
    run.rollout.max_tokens = 32  # the longest reply of the warm start has 30
    run.rollout.max_turns = 1
    return run


def use_reinforcement(run):
    """Set the update that the learning runs share."""
    run.batch.drop_flat_groups = True
    run.learn.learning_rate = 1e-3
    run.learn.warmup_steps = 5
    run.learn.b2 = 0.99
    run.learn.eps = 1e-4  # with 1e-8 small noisy gradients become steps of full size
    run.learn.weight_decay = 0.0
    run.learn.credit.std = "none"
    run.checkpoint.every = 5


def use_self_play(run):
    """Set what a designer that knows a few hundred programs needs: it writes them again."""
    run.mode = "self_play"
    run.design.drafts = 24
    run.pool.slots = 64  # a program may come again once it has left the pool
    run.pool.memory = 0
