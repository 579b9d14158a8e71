"""What every training door does first: process set-up, typed configuration, errors for people."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import faulthandler
import pathlib
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator

from absl import logging

ROOT = pathlib.Path(__file__).resolve().parent.parent  # where experiments/ stands
CACHE = ROOT / ".cache" / "jax"
SILENCE_SECONDS = 3600  # JAX ends those whose first process stands still as long; the run is faster
BUCKETS = ("gcsfs", "s3fs", "google.cloud")  # packages without which a bucket cannot be reached
REMEDIES = {  # of errors of the operating system that say no remedy themselves
    errno.ENOSPC: "Free disk space, then run the same command again.",
    errno.EDQUOT: "Free disk space, then run the same command again.",
    errno.EFBIG: "Raise the limit on file sizes (ulimit -f), then run the same command again.",
    errno.EACCES: "Mend its permissions, or name another path.",
    errno.EPERM: "Mend its permissions, or name another path.",
    errno.ENOENT: "Name a path that exists.",
    errno.EROFS: "It lies on a read-only file system: name another path.",
    errno.ENOTDIR: "A part of the path is a file: name another path.",
    errno.EEXIST: "A file stands where a directory is needed: name another path.",
}


def set_up() -> None:
    """Prepare the process: stack dumps on a crash, quiet libraries, compiled programs kept."""
    faulthandler.enable()
    logging.set_verbosity(logging.FATAL)  # Orbax logs every save, and errors that it raises too
    sys.unraisablehook = _hook(sys.unraisablehook)
    import jax

    if jax.config.jax_compilation_cache_dir is None:  # else the operator chose one
        jax.config.update("jax_compilation_cache_dir", str(CACHE))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def join_cluster(coordinator: str, processes: int, index: int) -> None:
    """Become one of the processes of a run, before any device is touched.

    Args:
      coordinator: "auto" asks the surroundings (TPU slices, Slurm, Open MPI); "" is one process;
        else HOST:PORT of the first process, with the number of processes and this one's index.
    Raises:
      ValueError: an address without a number of processes, or an index outside of them.
    """
    if not coordinator:
        if processes != 1 or index != 0:
            raise ValueError(
                f"--processes={processes} --process={index} without --coordinator: name HOST:PORT "
                "of the first process, or auto."
            )
        return
    import jax

    # A lost process is named by the heartbeats of the run (`spade_jax.hosts`), not by JAX.
    jax.config.update("jax_enable_recoverability", True)
    if coordinator == "auto":
        jax.distributed.initialize(heartbeat_timeout_seconds=SILENCE_SECONDS)
        return
    if processes < 1 or not 0 <= index < processes:
        raise ValueError(
            f"--process={index} of --processes={processes}: give every process the same number of "
            "processes, and its own index below it."
        )
    jax.distributed.initialize(
        coordinator, processes, index, heartbeat_timeout_seconds=SILENCE_SECONDS
    )


def settings_of(values):
    """Turn the flags' ConfigDict into the frozen configuration of a run.

    Relative paths in it are read from the project's root, so that doors work from any directory.

    Raises:
      config.ConfigError: a value that its room refuses.
    """
    from spade_jax import config, settings

    built = config.build(settings.RunConfig, values)
    policy = dataclasses.replace(
        built.policy,
        tokenizer=_absolute(built.policy.tokenizer),
        weights=_absolute(built.policy.weights),
    )
    corpus = built.corpus
    if corpus is not None:
        corpus = dataclasses.replace(corpus, paths=tuple(map(_absolute, corpus.paths)))
    return dataclasses.replace(
        built,
        policy=policy,
        corpus=corpus,
        seed_environments=_absolute(built.seed_environments),
        pool_folder=_absolute(built.pool_folder),
    )


@contextlib.contextmanager
def one_paragraph() -> Iterator[None]:
    """Print errors that a user can mend as one paragraph, and exit with 1 (130 if interrupted, 75
    if the machine is taken away: then the state is saved, and the same command goes on).

    Anything else is ours and keeps its traceback, also a ValueError that no `raise` of ours made.
    """
    from sandbox import records as sandbox_records
    from spade_jax import checkpoint, config, ledger, preemption

    expected = (
        config.ConfigError,
        checkpoint.CheckpointError,
        ledger.DivergedError,
        ledger.LedgerError,
        sandbox_records.SandboxUnavailable,
        OSError,
    )
    try:
        yield
    except KeyboardInterrupt:
        print("\nInterrupted. The same command again continues the run.", file=sys.stderr)
        sys.exit(130)
    except preemption.Preempted as error:
        print(f"\n{error}", file=sys.stderr)
        sys.exit(preemption.EXIT_CODE)
    except expected as error:
        _tell(error)
    except ImportError as error:
        if not any(name in str(error) for name in BUCKETS):
            raise
        extra = "'etils[epath-gcs]', or 'etils[epath-s3]' for s3://"
        _tell(ImportError(f"{error}. A path in a bucket needs more packages: pip install {extra}."))
    except ValueError as error:
        if not _raised_by_us(error):
            raise
        _tell(error)


def _absolute(path: str) -> str:
    """Read a path from the project's root; an empty one and one in a bucket stay as they are."""
    return str(ROOT / path) if path and "://" not in path else path


def _hook(told: Callable[..., None]) -> Callable[..., None]:
    """Leave out what says nothing: when one write of a save fails, Orbax closes the event loop
    under the others, and each of these prints that, before the failure itself is told."""

    def hook(raised) -> None:
        frames = traceback.extract_tb(raised.exc_traceback)
        late = bool(frames) and frames[0].name == "call_soon_threadsafe"
        if not (late and raised.exc_type is RuntimeError):
            told(raised)

    return hook


def _raised_by_us(error: Exception) -> bool:
    """Tell a refusal, which a `raise` statement of ours made, from a fault inside a call."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    file = pathlib.Path(last.filename)
    ours = any(file.is_relative_to(ROOT / name) for name in ("spade_jax", "launch", "sandbox"))
    return ours and (last.line or "").startswith("raise")


def _tell(error: Exception) -> None:
    warnings.simplefilter("ignore")  # of what libraries leave unfinished behind the error
    remedy = REMEDIES.get(getattr(error, "errno", None), "")
    print(f"\n{type(error).__name__}: {error}{remedy and '. '}{remedy}", file=sys.stderr)
    sys.exit(1)
