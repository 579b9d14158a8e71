"""Supervised training of both roles: a grain pipeline of packed rows and one jitted step.

In: examples as token ids with a mask over what is trained. Out: parameters.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Literal

import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax

from spade_jax.policy import heads, sharding, transformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupervisedConfig:
    """Size and optimiser of supervised training."""

    steps: int = 1000
    rows: int = 16  # B, packed rows of one step
    row_tokens: int = 256  # T
    optimizer: Literal["muon", "adamw"] = "muon"  # muon on hidden matrices, adamw on the rest
    matrix_learning_rate: float = 0.02  # of muon
    learning_rate: float = 3e-3  # of adamw
    warmup_steps: int = 50
    weight_decay: float = 0.0
    clip_norm: float = 1.0

    def __post_init__(self):
        if self.steps < 0 or self.rows < 1 or self.row_tokens < 2:
            raise ValueError(
                f"supervised.steps={self.steps}, rows={self.rows}, row_tokens={self.row_tokens}: "
                "set steps >= 0, rows >= 1, row_tokens >= 2."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    """One sequence to learn from."""

    ids: tuple[int, ...]
    trained: tuple[int, ...]  # 1 where the token is to be predicted
    role: int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """What evolves during supervised training."""

    params: Any
    opt_state: Any
    step: jax.Array  # int32


def pipeline(examples: Sequence[Example], config: SupervisedConfig, seed: int):
    """Shuffle, repeat and pack examples; the iterator's `get_state` goes into checkpoints.

    Returns:
      a grain iterator of dicts of [B, T] arrays: tokens, trained, roles, and with each the segment
      ids and positions that grain adds.
    Raises:
      ValueError: there is no example, or one does not fit a row.
    """
    length = config.row_tokens
    longest = max((len(example.ids) for example in examples), default=0)
    if not 0 < longest <= length:
        over = sum(len(example.ids) > length for example in examples)
        raise ValueError(
            f"warmstart.supervised.row_tokens={length}: {over} of {len(examples)} examples are "
            f"longer, the longest has {longest} tokens. Set it to at least {max(longest, 2)}, or "
            "make programs and prompts shorter."
            if examples
            else "There is no example to learn from: set warmstart.lessons."
        )
    dataset = (
        grain.MapDataset.source(list(examples))
        .seed(seed)
        .shuffle()
        .repeat()
        .map(_arrays)
        .to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
    )
    packed = grain.experimental.FirstFitPackIterDataset(
        dataset,
        length_struct={"tokens": length, "trained": length, "roles": length},
        num_packing_bins=config.rows,
        seed=seed,
    )
    return iter(packed.batch(config.rows, drop_remainder=True))


def optimizer(config: SupervisedConfig) -> optax.GradientTransformation:
    """Build the optimiser; the rate rises over the warm-up and falls linearly to 0."""

    def schedule(peak):
        rise = min(config.warmup_steps, max(config.steps, 1))
        return optax.schedules.join_schedules(
            [
                optax.schedules.linear_schedule(0.0, peak, rise),
                optax.schedules.linear_schedule(peak, 0.0, max(config.steps - rise, 1)),
            ],
            [rise],
        )

    rest = optax.adamw(schedule(config.learning_rate), b2=0.95, weight_decay=config.weight_decay)
    if config.optimizer == "adamw":
        return optax.chain(optax.clip_by_global_norm(config.clip_norm), rest)
    matrices = optax.contrib.muon(
        schedule(config.matrix_learning_rate),
        weight_decay=config.weight_decay,
        consistent_rms=None,
        muon_weight_dimension_numbers=_matrix_axes,
        adam_learning_rate=schedule(config.learning_rate),
        adam_b2=0.95,
    )
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), matrices)


def start(params: Any, config: SupervisedConfig, mesh: jax.sharding.Mesh) -> State:
    """Begin training at `params`, which lie on the mesh."""
    whole = sharding.replicated(mesh)

    def placed(leaf):  # moments lie as their parameters do, counts on this process only
        laid = isinstance(leaf.sharding, jax.sharding.NamedSharding)
        return leaf if laid else sharding.place(leaf, whole)

    return State(
        params=params,
        opt_state=jax.tree.map(placed, optimizer(config).init(params)),
        step=sharding.place(np.zeros((), np.int32), whole),
    )


@functools.partial(jax.jit, static_argnames=("model", "config", "mesh"), donate_argnames=("state",))
def step(
    state: State,
    batch: dict[str, jax.Array],
    model: transformer.ModelConfig,
    config: SupervisedConfig,
    mesh: jax.sharding.Mesh,
) -> tuple[State, jax.Array]:
    """Take one gradient step; returns the state and the mean loss per trained token, in nats."""
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):  # where experts find their axis
        value, gradient = jax.value_and_grad(loss)(state.params, batch, model)
    updates, opt_state = optimizer(config).update(gradient, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    return State(params=params, opt_state=opt_state, step=state.step + 1), value


def loss(params: Any, batch: dict[str, jax.Array], model: transformer.ModelConfig) -> jax.Array:
    """Mean negative log-likelihood over trained tokens, in nats."""
    tokens_BT, segments_BT = batch["tokens"], batch["segments"]
    hidden_BTD = transformer.forward(params, model, tokens_BT, batch["positions"], segments_BT)
    logps_BT, _ = heads.token_logps(
        params, model, hidden_BTD[:, :-1], tokens_BT[:, 1:], batch["roles"][:, 1:]
    )
    mask_BT = batch["trained"][:, 1:] * (segments_BT[:, 1:] == segments_BT[:, :-1])
    return -jnp.sum(logps_BT * mask_BT) / jnp.maximum(jnp.sum(mask_BT), 1.0)


def to_device(packed: dict[str, np.ndarray], mesh) -> dict[str, jax.Array]:
    """Put one batch of the pipeline on the mesh."""
    arrays = {
        "tokens": packed["tokens"].astype(np.int32),
        "trained": packed["trained"].astype(np.float32),
        "roles": packed["roles"].astype(np.int32),
        "positions": packed["tokens_positions"].astype(np.int32),
        "segments": packed["tokens_segment_ids"].astype(np.int32),
    }
    return jax.device_put(arrays, sharding.batch_sharding(mesh))


def _arrays(example: Example) -> dict[str, np.ndarray]:
    return {
        "tokens": np.asarray(example.ids, np.int32),
        "trained": np.asarray(example.trained, np.int32),
        "roles": np.full(len(example.ids), example.role, np.int32),
    }


def _matrix_axes(params: Any) -> Any:
    """Name the input and output axes of every hidden matrix; None sends a leaf to adamw.

    Layers are stacked on axis 0, which muon treats as a batch of matrices.
    """
    axes = {
        "q_DHC": ((1,), (2, 3)),
        "k_DKC": ((1,), (2, 3)),
        "v_DKC": ((1,), (2, 3)),
        "o_HCD": ((1, 2), (3,)),
        "gate_DF": ((1,), (2,)),
        "up_DF": ((1,), (2,)),
        "down_FD": ((1,), (2,)),
    }

    def choose(path, leaf):
        name = str(path[-1].key)
        if name not in axes:
            return None
        reduced, output = axes[name]
        return optax.contrib.MuonDimensionNumbers(reduction_axis=reduced, output_axis=output)

    return jax.tree_util.tree_map_with_path(choose, params)
