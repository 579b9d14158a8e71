"""The sampler: agreement with the trainer, independence of neighbours, stopping, shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_policy_transformer as reference

from spade_jax import records
from spade_jax.policy import decode, heads, sampler, transformer

END = 2
LOGPS = jax.jit(heads.token_logps, static_argnums=(1, 6))


def tiny_config(**changes) -> transformer.ModelConfig:
    sizes = dict(vocab_size=29, layers=2, width=16, heads=4, kv_heads=2, head_dim=8, mlp_width=24)
    return transformer.ModelConfig(**{**sizes, "role_head": "lowrank", **changes})


@pytest.fixture(scope="module")
def params():
    """Parameters with distributions far from flat and heads that differ."""
    params = transformer.init(tiny_config(), jax.random.key(0))
    shape = params["head"]["lowrank_out"].shape
    params["head"]["lowrank_out"] = jax.random.normal(jax.random.key(1), shape) * 0.3
    params["embed"] = params["embed"] * 20
    return params


@pytest.fixture(scope="module")
def engine():
    return sampler.Sampler(
        tiny_config(), end_ids=(END,), max_length=48, batch_buckets=(2, 4, 8), prefill_rows=4
    )


def make_prompts(count: int, longest: int = 20, seed: int = 0) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, count)
    return [tuple(rng.integers(3, 29, length).tolist()) for length in lengths]


def generate(engine, params, prompts, seeds=None, roles=None, **sampling):
    seeds = range(len(prompts)) if seeds is None else seeds
    roles = [i % 2 for i in range(len(prompts))] if roles is None else roles
    config = sampler.SamplingConfig(**{"max_tokens": 12, **sampling})
    return engine.generate(params, prompts, roles, seeds, config)


def trainer_logps(params, prompt, reply, role, temperature=1.0):
    row = np.zeros((1, 64), np.int32)
    length = len(prompt) + len(reply.ids)
    row[0, :length] = (*prompt, *reply.ids)
    segments = (np.arange(64) < length).astype(np.int32)[None]
    hidden = reference.run(params, tiny_config(), row, segments=segments)
    logps, _ = LOGPS(
        params,
        tiny_config(),
        hidden[:, :-1],
        jnp.asarray(row[:, 1:]),
        jnp.array([role]),
        temperature,
        64,
    )
    return np.asarray(logps)[0, len(prompt) - 1 : length - 1]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_equal_the_trainers(engine, params, temperature):
    prompts = make_prompts(21)
    replies = generate(engine, params, prompts, temperature=temperature)
    for index, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
        expected = trainer_logps(params, prompt, reply, index % 2, temperature)
        np.testing.assert_allclose(reply.logps, expected, atol=1e-5)


def test_greedy_takes_the_best_token_and_gives_log_probs_of_temperature_one(engine, params):
    prompts = make_prompts(5, seed=1)
    for index, reply in enumerate(generate(engine, params, prompts, temperature=0.0)):
        ids = list(prompts[index])
        for token, logp in zip(reply.ids, reply.logps, strict=True):
            row = np.zeros((1, 64), np.int32)
            row[0, : len(ids)] = ids
            hidden = reference.run(params, tiny_config(), row)[:, len(ids) - 1]
            scores = heads.logits(params, tiny_config(), hidden, jnp.array([index % 2]))
            assert token == int(scores[0].argmax())
            np.testing.assert_allclose(logp, jax.nn.log_softmax(scores)[0, token], atol=1e-5)
            ids.append(token)


def test_a_reply_does_not_depend_on_neighbours_order_or_buckets(engine, params):
    prompts = make_prompts(19, seed=2)
    seeds, roles = range(100, 119), [i % 2 for i in range(19)]
    together = generate(engine, params, prompts, seeds, roles)
    order = np.random.default_rng(3).permutation(19)
    shuffled = generate(
        engine, params, *[[x[i] for i in order] for x in (prompts, seeds, roles)], max_tokens=12
    )
    wide = sampler.Sampler(
        tiny_config(), end_ids=(END,), max_length=64, batch_buckets=(32,), prompt_buckets=(40,)
    )
    padded = generate(wide, params, prompts, seeds, roles)
    alone = generate(engine, params, prompts[7:8], seeds[7:8], roles[7:8])[0]
    for place, index in enumerate(order):
        for other in (shuffled[place], padded[index]):
            assert other.ids == together[index].ids
            np.testing.assert_allclose(other.logps, together[index].logps, atol=1e-5)
    assert alone.ids == together[7].ids


def test_seeds_decide_the_reply(engine, params):
    prompt = (5, 6, 7)
    first = generate(engine, params, [prompt] * 6, [1, 2, 3, 1, 2, 2**32 - 1], [0] * 6)
    again = generate(engine, params, [prompt] * 6, [1, 2, 3, 1, 2, 2**32 - 1], [0] * 6)
    assert first == again
    assert first[0] == first[3] and first[1] == first[4]
    assert len({reply.ids for reply in first}) > 2


class CountingSampler(sampler.Sampler):
    """Counts the prompts it prefills."""

    prefilled = 0

    def _prefill(self, params, prompts):
        self.prefilled += len(prompts)
        return super()._prefill(params, prompts)


def test_equal_prompts_of_a_role_are_prefilled_once(params):
    engine = CountingSampler(tiny_config(), end_ids=(END,), max_length=48, batch_buckets=(8,))
    generate(engine, params, [(5, 6, 7), (8, 9)] * 4, roles=[1] * 8)
    assert engine.prefilled == 2


def test_a_reply_stops_at_each_end_token_and_keeps_it(params):
    engine = sampler.Sampler(tiny_config(), end_ids=(END, 11), max_length=48, batch_buckets=(8, 32))
    replies = generate(engine, params, make_prompts(32, seed=4), max_tokens=20)
    stops = [reply for reply in replies if reply.stopped]
    assert {reply.ids[-1] for reply in stops} == {END, 11}
    for reply in replies:
        inner = reply.ids[:-1] if reply.stopped else reply.ids
        assert not {END, 11} & set(inner)
        assert reply.stopped or len(reply.ids) == 20
        assert len(reply.ids) == len(reply.logps)


def test_limits_count_the_prompt_and_a_full_prompt_gets_an_empty_reply(params):
    engine = sampler.Sampler(tiny_config(), end_ids=(END,), max_length=16, batch_buckets=(4,))
    prompts = [tuple([5] * n) for n in (4, 14, 16, 30)]
    replies = generate(engine, params, prompts, max_tokens=8)
    assert [r.stopped or len(r.ids) for r in replies[:2]] in ([8, 2], [True, 2], [8, True])
    assert replies[2] == replies[3] == records.Reply(ids=(), logps=(), stopped=False)


def test_truncated_log_probs_are_those_of_the_truncated_distribution():
    # Probabilities .5, .3, .15, .05. top_k 3 renormalises to .526, .316, .158; top_p .8 of those
    # keeps two, .526 + .316 = .842 >= .8, and gives .625 and .375.
    scores_BV = jnp.log(jnp.array([[0.15, 0.5, 0.05, 0.3]] * 400))
    shape = decode.Truncation(temperature=1.0, top_k=3, top_p=0.8)
    seeds, steps = jnp.arange(400, dtype=jnp.uint32), jnp.zeros(400, jnp.int32)
    ids_B, logps_B = decode.choose(scores_BV, seeds, steps, shape, "truncated")
    assert set(ids_B.tolist()) == {1, 3}
    expected = np.where(ids_B == 1, np.log(0.625), np.log(0.375))
    np.testing.assert_allclose(logps_B, expected, rtol=1e-5)
    # 400 draws at .625: standard error .024.
    assert abs(np.mean(ids_B == 1) - 0.625) < 0.1


def test_draws_follow_the_probabilities():
    # 4,000 draws: the standard error of each share is at most .008.
    probabilities = np.array([0.1, 0.0, 0.6, 0.3])
    scores_BV = jnp.broadcast_to(jnp.log(jnp.asarray(probabilities)), (4000, 4))
    shape = decode.Truncation(temperature=1.0, top_k=0, top_p=1.0)
    seeds, steps = jnp.arange(4000, dtype=jnp.uint32), jnp.full(4000, 3)
    ids_B, _ = decode.choose(scores_BV, seeds, steps, shape, "full")
    shares = np.bincount(ids_B, minlength=4) / 4000
    np.testing.assert_allclose(shares, probabilities, atol=0.03)
    assert shares[1] == 0


def test_a_second_call_compiles_nothing_and_transfers_only_in_the_open(engine, params):
    prompts = make_prompts(19, seed=2)
    generate(engine, params, prompts)
    before = decode.advance._cache_size(), decode.prefill._cache_size(), len(engine.shapes)
    with jax.transfer_guard("disallow"):
        generate(engine, params, prompts, seeds=range(50, 69))
    after = decode.advance._cache_size(), decode.prefill._cache_size(), len(engine.shapes)
    assert after[:2] == before[:2]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_published_families_decode_their_reference_tokens(family):
    config, params = reference.load_family(family)
    stored = np.load(reference.HF_TINY / family / "io.npz")
    prompt, expected = stored["prompt"][0], stored["greedy"][0, 6:]
    engine = sampler.Sampler(config, end_ids=(2,), max_length=64, batch_buckets=(2,))
    reply = generate(engine, params, [prompt], max_tokens=16, temperature=0.0)[0]
    ends = np.flatnonzero(expected == 2)
    expected = expected[: ends[0] + 1] if len(ends) else expected
    assert list(reply.ids) == expected.tolist()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"top_k": -2}, "top_k=-2"),
    ],
)
def test_impossible_sampling_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        sampler.SamplingConfig(**{"max_tokens": 4, **change})


def test_bad_requests_name_the_prompt(engine, params):
    for prompts, roles, seeds, message in (
        ([(3,), ()], [0, 0], [1, 2], "prompt 1"),
        ([(3,), (99,)], [0, 0], [1, 2], "prompt 1"),
        ([(3,)], [2], [1], "role 2"),
        ([(3,)], [0], [-1], "seed -1"),
        ([(3,)], [0, 1], [1], "1 prompts, 2 roles"),
    ):
        with pytest.raises(ValueError, match=message):
            generate(engine, params, prompts, seeds, roles)
