"""Lessons become sequences of which only the reply is trained, both roles by their share."""

import dataclasses
import json

import fakes
import jax
import numpy as np
import pytest

from spade_jax import domains, lessons, records, settings, supervised, warmstart
from spade_jax.policy import chat, sharding, tokenizer, transformer


def lesson(role, reply, hint=None):
    return lessons.Lesson(
        role=role, skill=records.SKILLS[0], difficulty="easy",
        prompt="Guess my digit." if role == records.AGENT else "", hint=hint, reply=reply,
    )  # fmt: skip


TAUGHT = [
    lesson(records.DESIGNER, "class OneEnv: ..."),
    lesson(records.DESIGNER, "class TwoEnv: ..."),
    *(lesson(records.AGENT, f"\\boxed{{{n}}}", "It is odd." if n % 2 else None) for n in range(9)),
]


@pytest.fixture(scope="module")
def words():
    texts = [lesson.reply for lesson in TAUGHT] + ["Guess my digit.\nHINT: It is odd."]
    return tokenizer.Tokenizer.train(
        texts, vocab_size=300, extra_tokens=(*records.SKILLS, *records.DIFFICULTIES)
    )


def examples(words, share):
    given = settings.RunConfig(warmstart=settings.WarmstartConfig(designer_share=share))
    speech = chat.Chat(words)
    return warmstart.examples(given, TAUGHT, speech, domains.get("compact"), None)


def test_only_the_reply_and_its_end_are_trained(words):
    for made in examples(words, 0.4):
        cut = len(made.ids) - sum(made.trained)
        assert made.trained == (0,) * cut + (1,) * (len(made.ids) - cut)
        assert made.ids[-1] == words.end_id
        said = words.decode(made.ids[cut:-1])
        assert said in [lesson.reply for lesson in TAUGHT if lesson.role == made.role]


def test_a_play_is_prompted_as_it_will_be_in_rollouts(words):
    speech, setting = chat.Chat(words), domains.get("compact")
    made = [one for one in examples(words, 0.4) if one.role == records.AGENT]
    for one, taught in zip(made, TAUGHT[2:], strict=True):
        messages = domains.domain.agent_messages(setting, taught.prompt, taught.hint)
        assert one.ids[: one.trained.index(1)] == speech.start(records.AGENT, messages)


# The designer gets share / (1 - share) of the agent's tokens, in whole rounds over its lessons.
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_designer_lessons_are_repeated_up_to_their_share(words, share):
    made = examples(words, share)
    tokens = [sum(len(one.ids) for one in made if one.role == role) for role in (0, 1)]
    wanted = share / (1 - share) * tokens[records.AGENT]
    written = [one for one in made if one.role == records.DESIGNER]
    one_round = sum(len(one.ids) for one in written[:2])
    assert wanted <= tokens[records.DESIGNER] < wanted + max(one_round, 1)
    assert len(written) % 2 == 0


def test_lessons_of_a_killed_run_are_read_and_not_made_again(tmp_path):
    made = [dataclasses.asdict(one) for one in TAUGHT]
    text = "".join(json.dumps(one) + "\n" for one in made)
    (tmp_path / warmstart.LESSONS).write_text(text)
    sandbox = fakes.Sandbox()
    read = warmstart.write_lessons(settings.RunConfig(), sandbox.open, tmp_path, print)
    assert read == TAUGHT and sandbox.sessions == []


def test_lessons_are_written_whole_or_not_at_all(tmp_path):
    small = lessons.LessonConfig(variants=1, plays=1)
    given = settings.RunConfig(warmstart=settings.WarmstartConfig(lessons=small))
    lost = fakes.Sandbox(lose=lambda session, batch: 0)
    with pytest.raises(RuntimeError):
        warmstart.write_lessons(given, lost.open, tmp_path, print)
    assert not (tmp_path / warmstart.LESSONS).exists()
    said = []
    made = warmstart.write_lessons(given, fakes.Sandbox().open, tmp_path, said.append)
    again = warmstart.write_lessons(given, lost.open, tmp_path, print)
    assert made == again and made and "warm start: programs run" in said[-1]
    assert [path.name for path in tmp_path.iterdir()] == [warmstart.LESSONS]


def test_an_example_that_does_not_fit_a_row_is_told_and_not_dropped():
    made = [
        supervised.Example(ids=(1,) * length, trained=(1,) * length, role=records.AGENT)
        for length in (4, 9, 6)
    ]
    rows = supervised.SupervisedConfig(rows=1, row_tokens=5)
    with pytest.raises(ValueError, match="row_tokens=5: 2 of 3 examples.*longest has 9 tokens"):
        supervised.pipeline(made, rows, 0)
    with pytest.raises(ValueError, match="no example"):
        supervised.pipeline([], rows, 0)
    packed = next(supervised.pipeline(made, dataclasses.replace(rows, rows=3, row_tokens=9), 0))
    assert packed["tokens"].shape == (3, 9)


def test_a_step_spreads_experts_over_the_mesh_and_learns_the_same():
    model = transformer.ModelConfig(
        vocab_size=64, layers=1, width=16, heads=2, kv_heads=1, head_dim=8, mlp_width=16,
        experts=2, experts_per_token=1,
    )  # fmt: skip
    config = supervised.SupervisedConfig(steps=1, rows=8, row_tokens=6)
    ids = np.random.default_rng(0).integers(0, 64, (8, 6))
    packed = {"tokens": ids, "trained": ids * 0 + 1, "roles": ids * 0}
    packed |= {"tokens_positions": ids * 0 + np.arange(6), "tokens_segment_ids": ids * 0 + 1}
    losses = []
    for mesh in (sharding.make_mesh(devices=jax.devices()[:1]), sharding.make_mesh(fsdp=8)):
        params = transformer.init(model, jax.random.key(0))
        params = sharding.place(params, sharding.param_shardings(model, mesh))
        state, batch = supervised.start(params, config, mesh), supervised.to_device(packed, mesh)
        assert ("manual" in supervised.step.lower(state, batch, model, config, mesh).as_text()) == (
            mesh.size > 1
        )
        for _ in range(2):
            state, loss = supervised.step(state, batch, model, config, mesh)
        losses.append(float(loss))
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
