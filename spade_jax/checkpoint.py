"""Save and restore the whole progress of a run with Orbax.

In: `Progress`, which holds everything that evolves. Out: one atomic step directory under
`workdir/checkpoints`, with a digest of every array and of the host's record. A step that was not
committed is never restored, and one whose digests differ is damaged.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import orbax.checkpoint as ocp
from etils import epath

from spade_jax import digests, files

HOST = "host"  # name of the digest of everything that is no array
DAMAGED = "damaged"  # folder beside the checkpoints, for steps that could not be read


class CheckpointError(RuntimeError):
    """A checkpoint could not be read or written; the message says what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When a run is saved, and what stays on disk."""

    every: int = 1  # iterations between saves
    keep: int = 2  # newest steps that stay on disk
    keep_period: int | None = None  # steps that are multiples of it stay for good
    saves: Literal["blocking", "async"] = "blocking"  # async writes while the run goes on: a
    # failure shows at the next save, and a kill loses the step that was being written

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

    def __init__(self, workdir: epath.PathLike, config: CheckpointConfig, read_only: bool = False):
        self.folder = files.at(workdir) / "checkpoints"
        self._async = config.saves == "async" and not read_only
        self._manager = ocp.CheckpointManager(
            self.folder,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=None if read_only else config.keep,
                keep_period=None if read_only else config.keep_period,
                enable_async_checkpointing=self._async,
                cleanup_tmp_directories=not read_only,
                read_only=read_only,
            ),
        )

    def steps(self) -> list[int]:
        """List the committed steps, oldest first."""
        self._manager.reload()  # another process may have written or removed some
        return sorted(self._manager.all_steps())

    def save(self, step: int, arrays: Any, host: dict) -> None:
        """Write one step: committed when this returns or, where saves are async, when `wait` does.

        Args:
          arrays: pytree of jax arrays; may be donated as soon as this returns.
          host: JSON-able record of everything that lives on the host.
        Raises:
          CheckpointError: this step or the one before it: the disk is full or not writable.
        """
        self.wait()
        marks = digests.arrays(arrays) | {HOST: digests.values(host)}
        with self._told(step):
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    arrays=ocp.args.StandardSave(arrays),
                    host=ocp.args.JsonSave(copy.deepcopy(host) if self._async else host),
                    digests=ocp.args.JsonSave(marks),
                ),
                force=True,
            )
        if not self._async:
            self.wait()

    def wait(self) -> None:
        """Return when what was saved is committed.

        Raises:
          CheckpointError: it could not be written.
        """
        with self._told(self._manager.latest_step()):
            self._manager.wait_until_finished()

    @contextlib.contextmanager
    def _told(self, step: int | None):
        """Turn a failure to write into an error that says what to do."""
        try:
            yield
        except (OSError, ValueError) as error:
            cause = str(error).split(" [tensorstore_spec")[0]  # which is long
            raise CheckpointError(
                f"Could not save step {step} to {self.folder}: {cause}. Earlier steps are intact. "
                "Free disk space or fix its permissions, then run the same command again."
            ) from error

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
                    arrays=ocp.args.StandardRestore(target),
                    host=ocp.args.JsonRestore(),
                    digests=ocp.args.JsonRestore(),
                ),
            )
            marks = digests.arrays(found["arrays"]) | {HOST: digests.values(found["host"])}
        except Exception as error:  # Orbax raises many kinds; each means the step is unusable
            raise CheckpointError(self._damaged(step, error)) from error
        changed = digests.differing(found["digests"], marks)
        if changed:
            cause = ValueError(f"digests of {', '.join(changed[:3])} differ from those saved")
            raise CheckpointError(self._damaged(step, cause))
        return found["arrays"], found["host"]

    def restore_newest(self, like: Any, say: Callable[[str], None]) -> tuple[int, Any, dict]:
        """Read the newest step that can be read, and put damaged newer ones aside.

        Returns:
          its number, arrays and the host's record.
        Raises:
          CheckpointError: there is no step, or none that can be read.
        """
        first, damaged = None, []
        for step in reversed(self.steps()):
            try:
                arrays, host = self.restore(step, like)
            except CheckpointError as error:
                first, damaged = first or error, [*damaged, step]
                continue
            for bad in damaged:
                self._put_aside(bad, say)
            if damaged:
                say(f"FELL BACK to step {step}: {first}")
            return step, arrays, host
        raise first or CheckpointError(f"{self.folder} has no step to restore.")

    def _put_aside(self, step: int, say: Callable[[str], None]) -> None:
        """Move a step out of the way, so that its number can be written again."""
        aside = self.folder.parent / DAMAGED
        aside.mkdir(parents=True, exist_ok=True)
        taken = len(list(aside.glob(f"{step}.*")))
        (self.folder / str(step)).rename(aside / f"{step}.{taken}")
        say(f"step {step} cannot be read; it was moved to {aside / f'{step}.{taken}'}")
        self._manager.reload()

    def close(self) -> None:
        """Wait for saves under way, and let go of the directory."""
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
