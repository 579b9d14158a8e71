"""One update of a small policy: three environments, four drafts, and how to compare two results."""

import jax
import numpy as np

from spade_jax import batch, curriculum, learn, records
from spade_jax.policy import sharding, transformer

MODEL = transformer.ModelConfig(
    vocab_size=16, layers=1, width=16, heads=4, kv_heads=2, head_dim=4, mlp_width=32
)
# The large eps keeps Adam's first step proportional to the gradient: with a tiny one, rounding of
# a gradient near 0 would decide the sign of a full step.
CONFIG = learn.LearnConfig(learning_rate=1e-2, eps=1e-2)
CURRICULUM = curriculum.CurriculumConfig(ages=2)
SHAPE = batch.TableShape(environments=3, seeds=2, plays=4, drafts=4)
ROWS = batch.BatchConfig(row_tokens=16, rows_multiple=16)
SLOTS = 4


def mesh_of(**sizes):
    count = int(np.prod(list(sizes.values()))) if sizes else 1
    return sharding.make_mesh(**sizes, devices=jax.devices()[:count])


def reply(ids, logps=None):
    logps = [-1.0 - 0.1 * i for i in range(len(ids))] if logps is None else logps
    return records.Reply(ids=tuple(map(int, ids)), logps=tuple(map(float, logps)), stopped=True)


def episode(n, s, g, arm, answer, value, prompt=(1, 2, 3)):
    turn = records.Turn(observed_ids=tuple(prompt), reply=answer, action="", reward=0.0)
    return records.Episode(
        environment=n, seed_index=s, play=g, arm=arm, seed=s, turns=(turn,), value=float(value),
        fault="", detail="", truncated=False, observation="",
    )  # fmt: skip


def draft(uid, answer, prompt=(1, 2)):
    return records.Draft(
        uid=uid, generation=0, skill=records.SKILLS[0], difficulty="easy", prompt_ids=tuple(prompt),
        reply=answer, text="", source=None, version=0,
    )  # fmt: skip


def iteration(seed=0):
    """Plays of unequal length in three environments, and four drafts: two of them refused."""
    rng = np.random.default_rng(seed)
    plays = [
        episode(n, s, g, arm, reply(rng.integers(0, 16, rng.integers(1, 8))), rng.integers(0, 2))
        for n in range(3)
        for s in range(2)
        for arm, count in ((records.PLAIN, 4), (records.HINTED, 2))
        for g in range(count)
    ]
    answers = [reply(rng.integers(0, 16, length)) for length in (9, 6, 3, 8)]
    credits = [
        batch.DraftCredit(draft=draft(0, answers[0]), slot=0),
        batch.DraftCredit(draft=draft(1, answers[1]), slot=2, penalty=0.1),
        batch.DraftCredit(draft=draft(2, answers[2]), fixed=-0.5),
        batch.DraftCredit(draft=draft(3, answers[3]), fixed=-1.0),
    ]
    return plays, credits


def make(plays, credits, mesh=None, rows=ROWS, fresh=None, shape=SHAPE, slots=(0, 1, 2)):
    return batch.build(
        plays, credits, slots=slots, fresh=fresh or {}, pool_slots=SLOTS, shape=shape, config=rows,
        mesh=mesh or mesh_of(),
    )  # fmt: skip


def start(config=CONFIG, mesh=None, model=MODEL, slots=SLOTS, seed=0):
    params = transformer.init(model, jax.random.key(seed))
    return learn.init(params, model, config, CURRICULUM, slots, mesh or mesh_of())


def step(state, made, config=CONFIG, mesh=None, model=MODEL):
    given = made.batch if isinstance(made, batch.Made) else made
    state, report = learn.update(state, given, model, config, CURRICULUM, mesh or mesh_of())
    return state, jax.device_get(report)


def same(one, other, tolerance=1e-6):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


def same_report(one, other, tolerance=1e-5):
    for name in one:
        np.testing.assert_allclose(
            one[name], other[name], rtol=1e-4, atol=tolerance, err_msg=name, equal_nan=True
        )
