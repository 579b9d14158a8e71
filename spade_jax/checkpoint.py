"""Save and restore the whole progress of a run with Orbax.

In: `Progress`, which holds everything that evolves. Out: one atomic step directory under
`workdir/checkpoints`. A step that was not committed is never restored.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import pathlib
import sys
from typing import Any

import jax
import orbax.checkpoint as ocp


class CheckpointError(RuntimeError):
    """A checkpoint could not be read or written; the message says what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    every: int = 1  # iterations between saves
    keep: int = 2  # newest steps that stay on disk
    keep_period: int | None = None  # steps that are multiples of it stay for good

    def __post_init__(self):
        if self.every < 1 or self.keep < 1:
            raise ValueError(
                f"checkpoint.every={self.every}, checkpoint.keep={self.keep}: both must be >= 1."
            )
        if self.keep_period is not None and self.keep_period < 1:
            raise ValueError(
                f"checkpoint.keep_period={self.keep_period}: set it >= 1, or None to keep none."
            )


class Store:
    """Own the checkpoint directory of one run, or read that of a run which another process owns."""

    def __init__(
        self, workdir: str | pathlib.Path, config: CheckpointConfig, read_only: bool = False
    ):
        self.folder = pathlib.Path(workdir).resolve() / "checkpoints"
        self._manager = ocp.CheckpointManager(
            self.folder,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=None if read_only else config.keep,
                keep_period=None if read_only else config.keep_period,
                enable_async_checkpointing=False,
                cleanup_tmp_directories=not read_only,
                read_only=read_only,
            ),
        )

    def steps(self) -> list[int]:
        """List the committed steps, oldest first."""
        self._manager.reload()  # another process may have written or removed some
        return sorted(self._manager.all_steps())

    def save(self, step: int, arrays: Any, host: dict) -> None:
        """Write one step and return when it is committed.

        Args:
          arrays: pytree of jax arrays.
          host: JSON-able record of everything that lives on the host.
        Raises:
          CheckpointError: the disk is full or not writable.
        """
        printed = io.StringIO()
        try:
            with contextlib.redirect_stderr(printed):  # after a failure each writer prints a trace
                self._manager.save(
                    step,
                    args=ocp.args.Composite(
                        arrays=ocp.args.StandardSave(arrays), host=ocp.args.JsonSave(host)
                    ),
                    force=True,
                )
                self._manager.wait_until_finished()
        except (OSError, ValueError) as error:
            cause = str(error).split(" [tensorstore_spec")[0]  # which is long
            raise CheckpointError(
                f"Could not save step {step} to {self.folder}: {cause}. Earlier steps are intact. "
                "Free disk space or fix its permissions, then run the same command again."
            ) from error
        sys.stderr.write(printed.getvalue())

    def restore(self, step: int, like: Any) -> tuple[Any, dict]:
        """Read one step onto the devices and shardings of `like`.

        Raises:
          CheckpointError: the step is damaged or belongs to another model.
        """
        target = jax.tree.map(_abstract, like)
        try:
            found = self._manager.restore(
                step,
                args=ocp.args.Composite(
                    arrays=ocp.args.StandardRestore(target), host=ocp.args.JsonRestore()
                ),
            )
        except Exception as error:  # Orbax raises many kinds; each means the step is unusable
            raise CheckpointError(self._damaged(step, error)) from error
        return found["arrays"], found["host"]

    def close(self) -> None:
        self._manager.close()

    def _damaged(self, step: int, error: Exception) -> str:
        others = [other for other in self.steps() if other != step]
        remedy = (
            f"Remove {self.folder / str(step)} to continue from step {others[-1]}"
            if others
            else f"Remove {self.folder} to start the run again"
        )
        cause = str(error).strip().splitlines()[0][:300] if str(error).strip() else ""
        return (
            f"Checkpoint step {step} in {self.folder} cannot be restored "
            f"({type(error).__name__}: {cause}). It is damaged, or the model configuration differs "
            f"from the one that wrote it. {remedy}, or restore the configuration."
        )


def _abstract(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
    return leaf
