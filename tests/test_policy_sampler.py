"""The sampler: agreement with the trainer, independence of neighbours, stopping, shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_policy_transformer as reference

from spade_jax import records
from spade_jax.policy import cache, decode, draw, heads, sampler, transformer

END = 2
SIX = sampler.SamplingConfig(max_tokens=6)
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


def test_equal_prompts_are_computed_once(params):
    engine = sampler.Sampler(tiny_config(), end_ids=(END,), max_length=48, batch_buckets=(8,))
    session = engine.session(params)
    session.generate([(5, 6, 7), (8, 9)] * 4, [1] * 8, range(8), SIX)
    assert session.prefilled == 2 + 1  # the last token of a prompt goes through the first step


def converse(session, prompts, seeds, observations, turns=3):
    """Play turns: each prompt is the former one, its reply and an observation."""
    prompts, said = list(prompts), []
    for turn in range(turns):
        replies = session.generate(prompts, [1] * len(prompts), seeds, SIX)
        said.append(replies)
        prompts = [
            (*prompt, *reply.ids, *observation, 4 + turn)
            for prompt, reply, observation in zip(prompts, replies, observations, strict=True)
        ]
    return said


def test_later_turns_compute_their_observation_only_and_sample_the_same(engine, params):
    prompts, observations = make_prompts(5, longest=9, seed=6), make_prompts(5, longest=3, seed=7)
    kept = engine.session(params)
    said = converse(kept, prompts, range(5), observations)
    computed = kept.prefilled
    history = [list(prompt) for prompt in prompts]
    assert computed == (
        sum(len(prompt) - 1 for prompt in prompts)
        # the last token of each reply and of each observation go through other programs
        + 2 * sum(len(observation) + 1 for observation in observations)
    )
    for turn, replies in enumerate(said):
        fresh = engine.generate(params, history, [1] * 5, range(5), SIX)
        assert [reply.ids for reply in fresh] == [reply.ids for reply in replies]
        for one, other in zip(fresh, replies, strict=True):
            np.testing.assert_allclose(one.logps, other.logps, atol=1e-5)
        for place, reply in enumerate(replies):
            history[place] += [*reply.ids, *observations[place], 4 + turn]


def test_plays_of_a_group_copy_the_prompt_of_the_first(engine, params):
    prompt = tuple(range(3, 20))
    session = engine.session(params)
    replies = session.generate([prompt] * 8, [1] * 8, range(8), SIX)
    assert session.prefilled == 16
    longer = session.generate([(*prompt, 21), (*prompt, 22)], [1, 1], [0, 1], SIX)
    assert session.prefilled == 16  # both begin like rows that are there, and add one token
    fresh = engine.generate(params, [(*prompt, 21), (*prompt, 22)], [1, 1], [0, 1], SIX)
    assert [r.ids for r in longer] == [r.ids for r in fresh]
    alone = engine.generate(params, [prompt], [1], [3], SIX)[0]
    assert alone.ids == replies[3].ids


def test_more_conversations_than_rows_lose_their_cache_and_nothing_else(engine, params):
    prompts, observations = make_prompts(19, longest=9, seed=8), [(5, 6)] * 19
    said = converse(engine.session(params), prompts, range(19), observations, turns=2)
    for index in (0, 7, 18):
        alone = converse(
            engine.session(params), [prompts[index]], [index], [observations[index]], turns=2
        )
        assert [turn[0].ids for turn in alone] == [turn[index].ids for turn in said]


def test_other_parameters_forget_the_cache(engine, params):
    prompts = make_prompts(3, seed=9)
    session = engine.session(params)
    first = session.generate(prompts, [0] * 3, range(3), SIX)
    computed = session.prefilled
    other = {**params, "embed": params["embed"][::-1]}
    session.update(other)
    second = session.generate(prompts, [0] * 3, range(3), SIX)
    assert session.prefilled == 2 * computed
    assert second == engine.generate(other, prompts, [0] * 3, range(3), SIX) != first


def test_each_row_has_settings_of_its_own(engine, params):
    prompts = make_prompts(4, seed=10)
    settings = [
        sampler.SamplingConfig(max_tokens=6, temperature=0.0),
        sampler.SamplingConfig(max_tokens=3),
        sampler.SamplingConfig(max_tokens=6, temperature=0.5, top_k=2),
        sampler.SamplingConfig(max_tokens=5, top_p=0.5),
    ]
    mixed = engine.generate(params, prompts, [1] * 4, range(4), settings)
    for index, one in enumerate(settings):
        alone = engine.generate(params, [prompts[index]] * 4, [1] * 4, [index] * 4, one)[0]
        assert alone.ids == mixed[index].ids
        np.testing.assert_allclose(alone.logps, mixed[index].logps, atol=1e-5)


def test_in_equal_shapes_neighbours_change_no_bit(params):
    engine = sampler.Sampler(
        tiny_config(), end_ids=(END,), max_length=32, batch_buckets=(8,), prefill_rows=1
    )
    prompts = make_prompts(8, longest=12, seed=11)
    together = generate(engine, params, prompts, roles=[1] * 8)
    for index in (0, 3, 7):
        alone = generate(engine, params, prompts[index : index + 1], [index], [1])[0]
        assert alone == together[index]


def test_a_stop_text_ends_the_reply_with_the_token_that_completes_it(params):
    def text_of(ids):
        return "".join(chr(97 + i) for i in ids)

    engine = sampler.Sampler(
        tiny_config(), end_ids=(END,), max_length=48, batch_buckets=(8,), text_of=text_of
    )
    prompts = make_prompts(8, seed=12)
    free = generate(engine, params, prompts)
    stop = text_of(free[0].ids[2:4])
    cut = generate(engine, params, prompts, stop=(stop,))
    assert cut[0].stopped and len(cut[0].ids) <= 4 and text_of(cut[0].ids).endswith(stop)
    for one, other in zip(free, cut, strict=True):
        assert one.ids[: len(other.ids)] == other.ids
        assert len(one.ids) == len(other.ids) or text_of(other.ids).endswith(stop)


@pytest.mark.parametrize(("option", "most"), [("weight_bits", 0.05), ("cache_bits", 0.05)])
def test_eight_bits_change_log_probs_a_little(params, option, most):
    # Rounding to 1/127 of the largest entry: relative errors of some 0.4%, on log-probs of 1 to 4.
    exact = sampler.Sampler(tiny_config(), end_ids=(END,), max_length=48, batch_buckets=(8,))
    rounded = sampler.Sampler(
        tiny_config(), end_ids=(END,), max_length=48, batch_buckets=(8,), **{option: 8}
    )
    prompts = make_prompts(8, seed=13)
    gaps = []
    for one, other in zip(
        generate(exact, params, prompts), generate(rounded, params, prompts), strict=True
    ):
        same = 0
        while same < min(len(one.ids), len(other.ids)) and one.ids[same] == other.ids[same]:
            same += 1
        gaps += np.abs(np.subtract(one.logps[:same], other.logps[:same])).tolist()
    assert len(gaps) > 20
    assert 0 < np.mean(gaps) < most


def test_long_prompts_are_computed_in_pieces(params):
    engine = sampler.Sampler(
        tiny_config(), end_ids=(END,), max_length=48, batch_buckets=(4,), prompt_buckets=(4, 8)
    )
    prompts = make_prompts(4, longest=30, seed=14)
    for index, reply in enumerate(generate(engine, params, prompts)):
        expected = trainer_logps(params, prompts[index], reply, index % 2)
        np.testing.assert_allclose(reply.logps, expected, atol=1e-5)
    widths = {shape[1][1] for shape in engine.shapes if shape[0] == "extend"}
    assert widths <= {4, 8}


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


def choose(scores_BV, temperature=1.0, top_k=0, top_p=1.0):
    """Draw from each row at settings of its own, given as a number or a list."""
    rows = scores_BV.shape[0]
    shape = draw.Shape(
        temperatures_B=jnp.broadcast_to(jnp.float32(temperature), rows),
        top_k_B=jnp.broadcast_to(jnp.int32(top_k), rows),
        top_p_B=jnp.broadcast_to(jnp.float32(top_p), rows),
    )
    seeds = jnp.arange(rows, dtype=jnp.uint32)
    return draw.choose(scores_BV, seeds, jnp.zeros(rows, jnp.int32), shape, truncated=True)


def test_truncated_log_probs_are_those_of_the_truncated_distribution():
    # Probabilities .5, .3, .15, .05. top_k 3 renormalises to .526, .316, .158; top_p .8 of those
    # keeps two, .526 + .316 = .842 >= .8, and gives .625 and .375.
    scores_BV = jnp.log(jnp.array([[0.15, 0.5, 0.05, 0.3]] * 400))
    ids_B, logps_B = choose(scores_BV, top_k=3, top_p=0.8)
    assert set(ids_B.tolist()) == {1, 3}
    expected = np.where(ids_B == 1, np.log(0.625), np.log(0.375))
    np.testing.assert_allclose(logps_B, expected, rtol=1e-5)
    # 400 draws at .625: standard error .024.
    assert abs(np.mean(ids_B == 1) - 0.625) < 0.1


def test_draws_follow_the_probabilities():
    # 4,000 draws: the standard error of each share is at most .008.
    probabilities = np.array([0.1, 0.0, 0.6, 0.3])
    scores_BV = jnp.broadcast_to(jnp.log(jnp.asarray(probabilities)), (4000, 4))
    ids_B, _ = choose(scores_BV)
    shares = np.bincount(ids_B, minlength=4) / 4000
    np.testing.assert_allclose(shares, probabilities, atol=0.03)
    assert shares[1] == 0


def compiled() -> list[int]:
    """How many shapes of each program exist."""
    return [decode.advance._cache_size(), decode._extend._cache_size(), cache.compiled()]


def test_an_equal_call_compiles_nothing_and_transfers_only_in_the_open(engine, params):
    prompts = make_prompts(19, seed=2)
    generate(engine, params, prompts)
    before = compiled(), len(engine.shapes)
    with jax.transfer_guard("disallow"):
        generate(engine, params, prompts)
    assert (compiled(), len(engine.shapes)) == before


def test_the_buckets_bound_the_shapes_whatever_is_sampled(engine, params):
    # Batches of 2, 4 or 8; caches of 32 or 48 places; calls of the power of two that covers what
    # the longest sequence still wants, at most 12 tokens.
    for seed in range(4):
        prompts = make_prompts(19, longest=30, seed=20 + seed)
        generate(engine, params, prompts, seeds=range(seed, 19 + seed))
    advance = {shape[1:] for shape in engine.shapes if shape[0] == "advance"}
    assert advance <= {
        (size, places, steps, truncated)
        for size in (2, 4, 8)
        for places in (32, 48)
        for steps in (1, 2, 4, 8, 16)
        for truncated in (False, True)
    }


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


class FailsOnce(sampler.Sampler):
    """Breaks off as the first prompts are to be computed, like a device without memory."""

    def note(self, program, *shape):
        first = not any(known[0] == "extend" for known in self.shapes)
        super().note(program, *shape)
        if first and program == "extend":
            raise RuntimeError("out of memory")


def test_a_call_that_breaks_off_leaves_no_row_to_reuse(engine, params):
    prompts = make_prompts(4)
    broken = FailsOnce(tiny_config(), end_ids=(END,), max_length=48, batch_buckets=(2, 4, 8))
    session = broken.session(params)
    with pytest.raises(RuntimeError, match="out of memory"):
        session.generate(prompts, [0] * 4, range(4), SIX)
    again = session.generate(prompts, [0] * 4, range(4), SIX)
    expected = engine.generate(params, prompts, [0] * 4, range(4), SIX)
    assert [reply.ids for reply in again] == [reply.ids for reply in expected]
