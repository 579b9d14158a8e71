"""Learn: one jitted step from a table of returns to new parameters.

Inside: credit of both roles, curriculum, losses over packed rows of both roles, accumulated
gradients and the optimiser, over the mesh. No host round trip; the report says what was used.
Source: SPADE (arXiv:2608.19197) for credit.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from spade_jax import batch as batches
from spade_jax import credit, curriculum, objectives, optimizer, wages
from spade_jax.policy import attention, heads, sharding, transformer

GROUPED = ("group", "leave_one_out")  # baselines that give a group of equal returns nothing


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnConfig(optimizer.OptimizerConfig):
    """The update: the optimiser's settings, partition of the batch, credit and loss."""

    minibatches: int = 1  # optimiser steps per pass over the rows
    epochs: int = 1  # passes over the rows
    microbatches: int = 1  # parts of a minibatch whose gradients are accumulated
    chunk_tokens: int = 4096  # whose logits exist at a time on one part of the batch
    attention: attention.Kind = "blockwise"  # or "splash", the kernel for TPUs
    attention_block: int = 512  # tokens; rows no longer than it are attended at once
    credit: credit.CreditConfig = credit.CreditConfig()
    measure_kl: bool = False  # keep the starting policy and report train/kl without a KL term too
    objective: objectives.ObjectiveConfig = objectives.ObjectiveConfig()

    def __post_init__(self):
        super().__post_init__()
        for name in ("minibatches", "epochs", "microbatches", "chunk_tokens", "attention_block"):
            if getattr(self, name) < 1:
                raise ValueError(f"learn.{name}={getattr(self, name)}: set it to at least 1.")
        if self.attention not in attention.KINDS:
            raise ValueError(f"learn.attention={self.attention!r}: use one of {attention.KINDS}.")


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
    layout, whole = sharding.param_shardings(model, mesh), sharding.replicated(mesh)
    params = sharding.place(params, layout)
    reference = None
    if config.objective.kl_coefficient > 0 or config.measure_kl:
        reference = jax.tree.map(jnp.copy, params)  # the state is donated: no shared buffers
    placed = optimizer.layout(params, config, layout, whole)
    return TrainState(
        params=params,
        opt_state=jax.jit(optimizer.build(config).init, out_shardings=placed)(params),
        curriculum=sharding.place(curriculum.init(pool_slots, curriculum_config), whole),
        reference=reference,
        step=sharding.place(np.zeros((), np.int32), whole),
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
    paying = config.credit
    if batch.drop_flat_groups and (paying.overlong != "none" or paying.baseline not in GROUPED):
        raise ValueError(
            f"batch.drop_flat_groups with credit.overlong={paying.overlong!r} and baseline="
            f"{paying.baseline!r}: a group of equal returns may have an advantage there. Set it to "
            "False."
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
      clipped_2, importance_2, importance_off_2 (from 1),
      importance_capped_2; extremes max_logp_gap_2 and max_ratio_off_2; tokens_2. Scalars: loss,
      policy_loss, gradient_norm, update_norm, parameter_norm, learning_rate, skipped_steps.
    Raises:
      ValueError: at tracing, where the rows do not divide.
    """
    settled, paid = wages.pay(state.curriculum, batch, config.credit, curriculum_config)
    parts = _partition(_rows(batch, paid, config), config, mesh)
    plan = _Plan(
        model,
        config,
        sharding.param_shardings(model, mesh),
        sharding.batch_sharding(mesh),
        attention.choose(config.attention, mesh, model.attention_softcap, config.attention_block),
    )
    if state.reference is not None:
        parts = parts | {"reference": _all_logps(state.reference, parts, plan)}
    if config.objective.old == "sampler":
        parts = parts | {"old": parts["sampler"]}
    elif config.epochs * config.minibatches > 1:
        parts = parts | {"old": _all_logps(state.params, parts, plan)}
    step = functools.partial(_step, parts=parts, paid=paid, begun=state.step, plan=plan)
    carry = (state.params, state.opt_state)
    if config.epochs * config.minibatches == 1:
        (params, opt_state), sums = step(carry, 0)
        sums = jax.tree.map(lambda x: x[None], sums)
    else:
        steps = jnp.arange(config.epochs * config.minibatches)
        (params, opt_state), sums = jax.lax.scan(step, carry, steps)
    whole = sharding.replicated(mesh)
    after = TrainState(
        params=params,
        opt_state=opt_state,
        curriculum=jax.lax.with_sharding_constraint(settled, whole),
        reference=state.reference,
        step=state.step + config.epochs * config.minibatches,
    )
    report = _summarise(sums) | curriculum.statistics(settled, curriculum_config) | paid
    if state.reference is None:
        del report["kl_2"]
    report["learning_rate"] = optimizer.rate(after.step - 1, config)
    report["parameter_norm"] = optax.tree.norm(params)
    report = jax.tree.map(lambda x: x.astype(jnp.float32), report)
    return after, jax.lax.with_sharding_constraint(report, whole)  # every process reads all of it


class _Plan(NamedTuple):
    """What every part of the step needs and nothing changes."""

    model: transformer.ModelConfig
    config: LearnConfig
    layout: Any  # sharding of each parameter
    rows: jax.sharding.NamedSharding
    attend: Callable[..., jax.Array]


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
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):  # where experts find their axis
        hidden_BTD = transformer.forward(
            params,
            plan.model,
            rows["tokens"],
            rows["positions"],
            rows["segments"],
            mesh,
            plan.attend,
        )
    logps_BT, entropy_BT = heads.token_logps(
        params,
        plan.model,
        hidden_BTD[:, :-1],
        rows["tokens"][:, 1:],
        rows["roles"][:, 1:],
        temperature=rows["temperature"][:, 1:],
        chunk_tokens=plan.config.chunk_tokens,
        mesh=mesh,
    )
    return jnp.pad(logps_BT, ((0, 0), (1, 0))), jnp.pad(entropy_BT, ((0, 0), (1, 0)))


def _all_logps(params, parts, plan: _Plan) -> jax.Array:
    """Give the log-probabilities of all rows, microbatch by microbatch, in the shape of parts."""
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), parts)
    logps = jax.lax.map(lambda rows: _logps(params, rows, plan)[0], flat)
    return logps.reshape(parts["tokens"].shape)


# ---------------------------------------------------------------- gradient and loss


def _step(carry, index, parts, paid, begun, plan: _Plan):
    """Accumulate a minibatch's gradient over its microbatches, in float32, and move by it.

    Args:
      carry: parameters and state of the optimiser.
      index: of the optimiser step within this update.
      begun: optimiser steps before this update.
    """
    params, opt_state = carry
    rows = jax.tree.map(lambda x: x[index % plan.config.minibatches], parts)
    differentiate = jax.value_and_grad(_loss, has_aux=True)

    def add(total, part):
        (_, sums), gradient = differentiate(params, part, index == 0, paid["tokens_Q"], plan)
        total = jax.tree.map(lambda t, g: t + g.astype(jnp.float32), total, gradient)
        return jax.lax.with_sharding_constraint(total, plan.layout), sums

    zero = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
    zero = jax.lax.with_sharding_constraint(zero, plan.layout)
    gradient, sums = jax.lax.scan(add, zero, rows)
    sums = {
        name: (value.max(0) if name.startswith("max_") else value.sum(0))
        for name, value in sums.items()
    }
    norm = optax.tree.norm(gradient)
    sound = jnp.isfinite(norm) & jnp.isfinite(sums["sum_loss"])
    moved = optimizer.move(
        params, opt_state, gradient, sound, begun + index, plan.config, plan.layout
    )
    norms = {"gradient_norm": norm, "update_norm": moved.update_norm, "skipped": ~sound}
    return (moved.params, moved.opt_state), sums | norms


def _loss(params, rows, first, tokens_Q, plan: _Plan):
    """Loss of one microbatch, its share of the minibatch's, and sums for the report."""
    objective = plan.config.objective
    logp_BT, entropy_BT = _logps(params, rows, plan)
    old_BT = jax.lax.stop_gradient(logp_BT)
    if objective.old == "sampler":
        old_BT = rows["old"]
    elif "old" in rows:  # at the first step the parameters are still the old ones: exactly ratio 1
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
    return total, sums | _token_sums(rows, loss, logp_BT, entropy_BT, objective)


def _token_sums(rows, loss: objectives.TokenLoss, logp_BT, entropy_BT, objective):
    """Add up by role, over trained tokens, what the report gives as means and extremes."""
    cap = objective.importance_cap or jnp.inf
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
        "importance_off": jnp.abs(loss.importance_BT - 1.0),
        "importance_capped": loss.importance_BT >= cap,
    }
    mask_2BT = jnp.stack([rows["mask"] * (rows["roles"] == role) for role in (0, 1)])
    sums = {f"sum_{name}_2": (mask_2BT * value).sum((1, 2)) for name, value in values.items()}
    sums["max_logp_gap_2"] = (mask_2BT * jnp.abs(gap_BT)).max((1, 2))
    off_BT = jnp.abs(loss.ratio_BT - 1.0)
    sums["max_ratio_off_2"] = (mask_2BT * off_BT).max((1, 2))
    return jax.lax.stop_gradient(sums)


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
