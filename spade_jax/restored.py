"""A checkpoint of a run read back beside it: to export it, or to play against it.

In: the configuration and the work directory of a run, which is only read. Out: its policy and
state.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from etils import epath

from spade_jax import checkpoint, files, learn, machine, pool, run, settings
from spade_jax.policy import transformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Restored:
    """One checkpoint."""

    step: int  # iterations done
    words: machine.Words
    model: transformer.ModelConfig
    train: learn.TrainState
    host: dict[str, Any]  # what `loop.to_host` wrote
    folder: epath.Path  # of the run


def restore(
    config: settings.RunConfig, workdir: epath.PathLike, step: int | None = None
) -> Restored:
    """Read a checkpoint; the newest where no step is named.

    Raises:
      FileNotFoundError: the directory holds no checkpoints.
      checkpoint.CheckpointError: the step does not exist or cannot be read.
    """
    folder = files.at(workdir)
    if not (folder / "checkpoints").is_dir():
        raise FileNotFoundError(f"{folder} holds no checkpoints; set --workdir to that of a run.")
    words, model, params = run.load_policy(config, folder)
    mesh = machine.make_mesh(config)
    like = learn.init(params, model, config.learn, config.curriculum, config.pool.slots, mesh)
    opened = checkpoint.Store(folder, config.checkpoint, read_only=True)
    with contextlib.closing(opened) as store:
        found = store.steps()
        if not found or (step is not None and step not in found):
            raise checkpoint.CheckpointError(
                f"{store.folder} has no step {step}; it has {found}. Choose one with --step."
            )
        chosen = found[-1] if step is None else step
        train, host = store.restore(chosen, like)
    return Restored(step=chosen, words=words, model=model, train=train, host=host, folder=folder)


def pool_of(restored: Restored) -> pool.Pool:
    """Put the pool of a checkpoint together, with the programs of the run."""
    return pool.from_json(restored.host["pool"], restored.folder / run.PROGRAMS)
