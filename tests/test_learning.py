"""One run that must learn, through the real corridor: sandbox, rollout, batch and update."""

import shutil

import jax
import pytest

from spade_jax import loop, machine, records, settings, supervised, warmstart
from spade_jax.policy import chat, tokenizer, transformer

LAST = '''"""Say which of the shown letters comes last in the alphabet.

family: last_letter
skill: Pattern Recognition
setting: compact
kind: single_turn
split: train
"""


class LastEnv(QAEnv):
    def task(self, rng):
        letters = rng.sample("abcd", 4)
        return letters, max(letters)
'''

MODEL = transformer.ModelConfig(
    vocab_size=300, layers=1, width=32, heads=2, kv_heads=1, head_dim=16, mlp_width=64
)


def _config(folder, tier):
    return settings.RunConfig(
        mode="fixed_pool",
        iterations=100,
        seed_environments=str(folder),
        mesh=settings.MeshConfig(data=8),
        policy=settings.PolicyConfig(model=MODEL),
        sandbox=settings.SandboxConfig(tier=tier, boxes=1),
        rollout=settings.rollout.RolloutConfig(
            environments=1, seeds=8, plays=8, hinted_plays=0, max_tokens=2, context_tokens=16,
            isolation="environment",
        ),
        batch=settings.batch.BatchConfig(row_tokens=32),
        learn=settings.learn.LearnConfig(learning_rate=5e-3, eps=1e-4, weight_decay=0.0),
        warmstart=settings.WarmstartConfig(
            supervised=supervised.SupervisedConfig(
                steps=40, rows=8, row_tokens=32, optimizer="adamw", learning_rate=1e-2
            )
        ),
    )  # fmt: skip


def _talk_nonsense(config, words, mesh):
    """Teach the form of a reply, one letter of four and an end, and nothing about the task."""
    speech = chat.Chat(words)
    shown = []
    for place in range(64):
        prompt = speech.start(records.AGENT, [{"role": "user", "content": "a b c d"}])
        reply = speech.reply("abcd"[place % 4])
        shown.append(
            supervised.Example(
                ids=prompt + reply,
                trained=(0,) * len(prompt) + (1,) * len(reply),
                role=records.AGENT,
            )
        )
    model = machine.fit_vocabulary(config.policy.model, words)
    state = supervised.start(
        transformer.init(model, jax.random.key(0)), config.warmstart.supervised, mesh
    )
    batches = supervised.pipeline(shown, config.warmstart.supervised, 0)
    state = warmstart.train(state, batches, model, config, mesh, lambda *_: None, lambda _: None)
    return model, state.params


@pytest.mark.parametrize("tier", ["gvisor"])
def test_a_tiny_policy_learns_an_easy_environment_from_chance_to_nine_tenths(tmp_path, tier):
    """Chance is 1/4. About 30 updates suffice here."""
    if shutil.which("runsc") is None:
        tier = "subprocess"  # what is tested is learning; the sandbox has tests of its own
    (tmp_path / "last.py").write_text(LAST)
    config = _config(tmp_path, tier)
    words = tokenizer.Tokenizer.train(["a b c d"], vocab_size=300)
    mesh = machine.make_mesh(config)
    model, params = _talk_nonsense(config, words, mesh)
    with machine.ProgramCrew(config.sandbox) as crew:
        world = machine.Machine(config, crew, words, model)
        progress = loop.start(config, world, params)
        rates = []
        for _ in range(config.iterations):
            rates.append(loop.iterate(progress, world, config).metrics["rollout/win_rate"])
            if len(rates) >= 3 and min(rates[-3:]) > 0.9:
                break
    assert rates[0] < 0.4, f"the policy knew the task before: {rates[0]}"
    assert min(rates[-3:]) > 0.9, f"win rate by iteration: {[round(rate, 2) for rate in rates]}"
