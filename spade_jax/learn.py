"""Learn: one jitted step from a table of returns to new parameters.

Inside: credit of both roles, curriculum, losses over packed rows of both roles, accumulated
gradients and the optimiser, over the mesh. No host round trip; the report says what was used.
Sources: SPADE (arXiv:2608.19197) for credit; AdamW (arXiv:1711.05101).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from spade_jax import batch as batches
from spade_jax import credit, curriculum, objectives, wages
from spade_jax.policy import heads, sharding, transformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnConfig:
    """The update: step sizes, partition of the batch, credit and loss."""

    learning_rate: float = 1e-6
    warmup_steps: int = 0  # optimiser steps over which the rate rises linearly
    b1: float = 0.9
    b2: float = 0.98
    eps: float = 1e-8  # added to the root of the second moment
    weight_decay: float = 0.1  # of matrices; vectors do not decay
    clip_norm: float = 1.0  # of the gradient
    minibatches: int = 1  # optimiser steps per pass over the rows
    epochs: int = 1  # passes over the rows
    microbatches: int = 1  # parts of a minibatch whose gradients are accumulated
    chunk_tokens: int = 4096  # logits that exist at a time
    credit: credit.CreditConfig = credit.CreditConfig()
    objective: objectives.ObjectiveConfig = objectives.ObjectiveConfig()

    def __post_init__(self):
        for name in ("minibatches", "epochs", "microbatches", "chunk_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"learn.{name}={getattr(self, name)}: set it to at least 1.")
        for name in ("learning_rate", "eps", "clip_norm"):
            if getattr(self, name) <= 0:
                raise ValueError(f"learn.{name}={getattr(self, name)}: set it above 0.")
        if not (0 <= self.b1 < 1 and 0 <= self.b2 < 1) or self.weight_decay < 0:
            raise ValueError(
                f"learn.b1={self.b1}, b2={self.b2}, weight_decay={self.weight_decay}: use rates "
                "in [0, 1) and a decay of at least 0."
            )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainState:
    """Everything that the update evolves."""

    params: Any
    opt_state: Any
    curriculum: curriculum.CurriculumState
    reference: Any  # parameters of the starting policy; None without a KL term
    step: jax.Array  # int32, optimiser steps tried


def init(
    params: Any,
    model: transformer.ModelConfig,
    config: LearnConfig,
    curriculum_config: curriculum.CurriculumConfig,
    pool_slots: int,
    mesh: jax.sharding.Mesh,
) -> TrainState:
    """Start at given parameters, laid out over the mesh."""
    layout = sharding.param_shardings(model, mesh)
    params = jax.device_put(params, layout)
    optimizer = _optimizer(config)
    shapes = jax.eval_shape(optimizer.init, params)
    whole = sharding.replicated(mesh)
    placed = optax.tree.map_params(
        optimizer, lambda _, place: place, shapes, layout, transform_non_params=lambda _: whole
    )
    reference = None
    if config.objective.kl_coefficient > 0:
        reference = jax.tree.map(jnp.copy, params)  # the state is donated: no shared buffers
    return TrainState(
        params=params,
        opt_state=jax.jit(optimizer.init, out_shardings=placed)(params),
        curriculum=jax.device_put(curriculum.init(pool_slots, curriculum_config), whole),
        reference=reference,
        step=jax.device_put(jnp.zeros((), jnp.int32), whole),
    )


def check_rows(config: LearnConfig, batch: batches.BatchConfig, mesh: jax.sharding.Mesh) -> None:
    """Refuse batch shapes that the update cannot divide, before anything is generated.

    Raises:
      ValueError: rows do not divide, or plays are dropped that the loss still needs.
    """
    parts = config.minibatches * config.microbatches * sharding.batch_parts(mesh)
    if batch.rows_multiple % parts:
        raise ValueError(
            f"batch.rows_multiple={batch.rows_multiple} must be a multiple of minibatches * "
            f"microbatches * devices that share the rows = {parts}; set it to "
            f"{-(-batch.rows_multiple // parts) * parts}."
        )
    objective = config.objective
    if batch.drop_flat_groups and (objective.kl_coefficient or objective.entropy_coefficient):
        raise ValueError(
            f"batch.drop_flat_groups with objective.kl_coefficient={objective.kl_coefficient} and "
            f"entropy_coefficient={objective.entropy_coefficient}: plays without advantage still "
            "carry those terms. Set it to False or both coefficients to 0."
        )


@functools.partial(
    jax.jit,
    static_argnames=("model", "config", "curriculum_config", "mesh"),
    donate_argnames=("state",),
)
def update(
    state: TrainState,
    batch: batches.Batch,
    model: transformer.ModelConfig,
    config: LearnConfig,
    curriculum_config: curriculum.CurriculumConfig,
    mesh: jax.sharding.Mesh,
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Pay both roles, move the curriculum and take the optimiser steps of one iteration.

    Returns:
      the next state (the given one is donated), and a report of float32 arrays. Per table row N,
      draft M, pool slot P, skill Z and sequence Q: what `wages.pay` and `curriculum.statistics`
      give. Means over the trained tokens of each role, by role id: kl_2 (to the reference, absent
      without one), step_kl_2 (to the sampler), entropy_2, surprise_2, logp_gap_2, ratio_2,
      clipped_2, importance_2; extremes max_logp_gap_2 and max_ratio_off_2; tokens_2. Scalars: loss,
      policy_loss, gradient_norm, update_norm, parameter_norm, learning_rate, skipped_steps.
    Raises:
      ValueError: at tracing, where the rows do not divide.
    """
    settled, paid = wages.pay(state.curriculum, batch, config.credit, curriculum_config)
    parts = _partition(_rows(batch, paid, config), config, mesh)
    plan = _Plan(
        model, config, sharding.param_shardings(model, mesh), sharding.batch_sharding(mesh)
    )
    params, opt_state, sums = _optimise(state, parts, paid["tokens_Q"], plan)
    after = TrainState(
        params=params,
        opt_state=opt_state,
        curriculum=settled,
        reference=state.reference,
        step=state.step + config.epochs * config.minibatches,
    )
    report = _summarise(sums) | curriculum.statistics(settled, curriculum_config) | paid
    if state.reference is None:
        del report["kl_2"]
    report["learning_rate"] = _rate(after.step - 1, config)
    report["parameter_norm"] = optax.tree.norm(params)
    return after, jax.tree.map(lambda x: x.astype(jnp.float32), report)


class _Plan(NamedTuple):
    """What every part of the step needs and nothing changes."""

    model: transformer.ModelConfig
    config: LearnConfig
    layout: Any  # sharding of each parameter
    rows: jax.sharding.NamedSharding


# ---------------------------------------------------------------- rows


def _rows(batch, paid, config: LearnConfig) -> dict[str, jax.Array]:
    """Bring what belongs to sequences to their tokens."""
    sequences_BT, tokens_Q = batch.sequences_BT, paid["tokens_Q"]
    mask_BT = batch.mask_BT * (tokens_Q > 0)[sequences_BT]
    weight_BT = objectives.token_weights(
        mask_BT, sequences_BT, tokens_Q, batch.real_Q, config.objective
    )
    return {
        "tokens": batch.tokens_BT,
        "positions": batch.positions_BT,
        "segments": batch.segments_BT,
        "roles": batch.roles_BT,
        "sequences": sequences_BT,
        "mask": mask_BT,
        "sampler": batch.logps_BT,
        "weight": weight_BT * config.minibatches,
        "advantage": paid["advantage_Q"][sequences_BT],
        "temperature": batch.temperature_Q[sequences_BT],
    }


def _partition(rows, config: LearnConfig, mesh) -> dict[str, jax.Array]:
    """Split rows to [minibatches, microbatches, B, T], every part with a share of every device.

    Row r goes to part r modulo the number of parts: rows come sorted by length, so parts are alike.
    """
    parts = config.minibatches * config.microbatches
    height = rows["tokens"].shape[0]
    if height % (parts * sharding.batch_parts(mesh)):
        raise ValueError(
            f"{height} rows do not divide into minibatches={config.minibatches} * microbatches="
            f"{config.microbatches} * {sharding.batch_parts(mesh)} devices; see learn.check_rows."
        )

    def split(x_BT):
        x = x_BT.reshape(-1, config.minibatches, config.microbatches, x_BT.shape[1])
        return jnp.moveaxis(x, 0, 2)

    return jax.tree.map(split, rows)


def _logps(params, rows, plan: _Plan) -> tuple[jax.Array, jax.Array]:
    """Give log-probability and entropy at each target; the first token of a row has none."""
    rows = jax.lax.with_sharding_constraint(rows, plan.rows)
    mesh = plan.rows.mesh
    hidden_BTD = transformer.forward(
        params, plan.model, rows["tokens"], rows["positions"], rows["segments"], mesh
    )
    params = heads.gathered(params, plan.model, mesh)  # once, and not for every chunk
    logps_BT, entropy_BT = heads.token_logps(
        params,
        plan.model,
        hidden_BTD[:, :-1],
        rows["tokens"][:, 1:],
        rows["roles"][:, 1:],
        temperature=rows["temperature"][:, 1:],
        chunk_tokens=plan.config.chunk_tokens,
    )
    return jnp.pad(logps_BT, ((0, 0), (1, 0))), jnp.pad(entropy_BT, ((0, 0), (1, 0)))


# ---------------------------------------------------------------- gradients and optimiser


def _optimise(state, parts, tokens_Q, plan: _Plan):
    """Take every optimiser step of the iteration. Returns parameters, their state and sums."""
    minibatches = plan.config.minibatches
    steps = plan.config.epochs * minibatches

    def logps_of(params):
        def one(_, rows):
            return None, _logps(params, rows, plan)[0]

        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), parts)
        return jax.lax.scan(one, None, flat)[1].reshape(parts["tokens"].shape)

    if state.reference is not None:
        parts = parts | {"reference": logps_of(state.reference)}
    if steps > 1:
        parts = parts | {"old": logps_of(state.params)}

    def step(carry, index):
        rows = jax.tree.map(lambda x: x[index % minibatches], parts)
        gradient, sums = _gradient(carry[0], rows, index == 0, tokens_Q, plan)
        moved = _move(*carry, gradient, sums, state.step + index, plan)
        return moved[:2], moved[2]

    carry = (state.params, state.opt_state)
    if steps == 1:
        carry, sums = step(carry, 0)
        return *carry, jax.tree.map(lambda x: x[None], sums)
    carry, sums = jax.lax.scan(step, carry, jnp.arange(steps))
    return *carry, sums


def _gradient(params, rows, first, tokens_Q, plan: _Plan):
    """Accumulate the gradient of a minibatch over its microbatches, in float32."""
    differentiate = jax.value_and_grad(_loss, has_aux=True)

    def one(total, part):
        (_, sums), gradient = differentiate(params, part, first, tokens_Q, plan)
        total = jax.tree.map(lambda t, g: t + g.astype(jnp.float32), total, gradient)
        return jax.lax.with_sharding_constraint(total, plan.layout), sums

    zero = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
    zero = jax.lax.with_sharding_constraint(zero, plan.layout)
    gradient, sums = jax.lax.scan(one, zero, rows)
    return gradient, {
        name: (value.max(0) if name.startswith("max_") else value.sum(0))
        for name, value in sums.items()
    }


def _loss(params, rows, first, tokens_Q, plan: _Plan):
    """Loss of one microbatch, its share of the minibatch's, and sums for the report."""
    objective = plan.config.objective
    logp_BT, entropy_BT = _logps(params, rows, plan)
    old_BT = jax.lax.stop_gradient(logp_BT)
    if "old" in rows:  # at the first step the parameters are still the old ones: exactly ratio 1
        old_BT = jnp.where(first, old_BT, rows["old"])
    loss = objectives.token_loss(
        logp_BT,
        old_BT,
        rows["advantage"],
        rows["mask"],
        rows["sequences"],
        tokens_Q,
        objective,
        sampler_BT=rows["sampler"],
        reference_BT=rows.get("reference"),
    )
    weight_BT = rows["weight"]
    policy = (weight_BT * loss.policy_BT).sum()
    kl = (weight_BT * loss.kl_BT).sum()
    entropy = (weight_BT * entropy_BT).sum()
    total = policy + objective.kl_coefficient * kl - objective.entropy_coefficient * entropy
    sums = {"sum_loss": total, "sum_policy": policy}
    return total, sums | _token_sums(rows, loss, logp_BT, entropy_BT)


def _token_sums(rows, loss: objectives.TokenLoss, logp_BT, entropy_BT) -> dict[str, jax.Array]:
    """Add up by role, over trained tokens, what the report gives as means and extremes."""
    gap_BT = jnp.where(rows["mask"] > 0, logp_BT - rows["sampler"], 0.0)
    values = {
        "tokens": jnp.ones_like(gap_BT),
        "kl": loss.kl_BT,
        "step_kl": objectives.k3(gap_BT),
        "entropy": entropy_BT,
        "surprise": -rows["sampler"],
        "logp_gap": jnp.abs(gap_BT),
        "ratio": loss.ratio_BT,
        "clipped": loss.clipped_BT,
        "importance": loss.importance_BT,
    }
    mask_2BT = jnp.stack([rows["mask"] * (rows["roles"] == role) for role in (0, 1)])
    sums = {f"sum_{name}_2": (mask_2BT * value).sum((1, 2)) for name, value in values.items()}
    sums["max_logp_gap_2"] = (mask_2BT * jnp.abs(gap_BT)).max((1, 2))
    off_BT = jnp.abs(loss.ratio_BT - 1.0)
    sums["max_ratio_off_2"] = (mask_2BT * off_BT).max((1, 2))
    return jax.lax.stop_gradient(sums)


def _optimizer(config: LearnConfig) -> optax.GradientTransformation:
    """Build AdamW without its step size, which `_move` applies."""

    def matrices(params):
        return jax.tree_util.tree_map_with_path(
            lambda path, _: not _is_vector(str(path[-1].key)), params
        )

    return optax.chain(
        optax.clip_by_global_norm(config.clip_norm),
        optax.scale_by_adam(b1=config.b1, b2=config.b2, eps=config.eps),
        optax.add_decayed_weights(config.weight_decay, mask=matrices),
    )


def _is_vector(name: str) -> bool:
    """Tell norms and biases from matrices; attention biases are stored as [L, H, C]."""
    return name.startswith("scale") or "bias" in name


def _rate(step: jax.Array, config: LearnConfig) -> jax.Array:
    """Give the step size: constant after a linear warm-up."""
    return config.learning_rate * jnp.minimum(1.0, (step + 1) / max(config.warmup_steps, 1))


def _move(params, opt_state, gradient, sums, step, plan: _Plan):
    """Take one optimiser step; a gradient that is not finite moves nothing and is counted."""
    norm = optax.tree.norm(gradient)
    sound = jnp.isfinite(norm) & jnp.isfinite(sums["sum_loss"])
    updates, moved_state = _optimizer(plan.config).update(gradient, opt_state, params)
    updates = jax.tree.map(lambda u: -_rate(step, plan.config) * u, updates)
    moved = jax.lax.with_sharding_constraint(optax.apply_updates(params, updates), plan.layout)

    def keep(new, old):
        return jax.tree.map(lambda a, b: jnp.where(sound, a, b), new, old)

    sums = sums | {
        "gradient_norm": norm,
        "update_norm": jnp.where(sound, optax.tree.norm(updates), 0.0),
        "skipped": ~sound,
    }
    return keep(moved, params), keep(moved_state, opt_state), sums


# ---------------------------------------------------------------- report


def _summarise(sums: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Turn sums per optimiser step into means over tokens, and over steps."""
    tokens_2 = sums["sum_tokens_2"].sum(0)
    report = {"loss": sums["sum_loss"].mean(), "policy_loss": sums["sum_policy"].mean()}
    for name, value in sums.items():
        if name.startswith("sum_") and name.endswith("_2") and name != "sum_tokens_2":
            report[name[4:]] = value.sum(0) / jnp.maximum(tokens_2, 1)
        if name.startswith("max_"):
            report[name] = value.max(0)
    report["tokens_2"] = tokens_2
    report["gradient_norm"] = sums["gradient_norm"].mean()
    report["update_norm"] = sums["update_norm"].mean()
    report["first_ratio_off_2"] = sums["max_ratio_off_2"][0]
    report["skipped_steps"] = sums["skipped"].sum()
    return report
