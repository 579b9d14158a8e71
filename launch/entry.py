"""What every training door does first: process set-up, typed configuration, errors for people."""

from __future__ import annotations

import contextlib
import faulthandler
import pathlib
import sys
from collections.abc import Iterator

from absl import logging

CACHE = pathlib.Path(__file__).resolve().parent.parent / ".cache" / "jax"


def set_up() -> None:
    """Prepare the process: stack dumps on a crash, quiet libraries, compiled programs kept."""
    faulthandler.enable()
    logging.set_verbosity(logging.WARNING)  # Orbax tells every save at INFO
    import jax

    jax.config.update("jax_compilation_cache_dir", str(CACHE))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def settings_of(values):
    """Turn the flags' ConfigDict into the frozen configuration of a run.

    Raises:
      config.ConfigError: a value that its room refuses.
    """
    from spade_jax import config, settings

    return config.build(settings.RunConfig, values)


@contextlib.contextmanager
def one_paragraph() -> Iterator[None]:
    """Print errors that a user can mend as one paragraph, and exit with 1 (130 if interrupted).

    Anything else is ours and keeps its traceback.
    """
    from sandbox import records as sandbox_records
    from spade_jax import checkpoint, config, ledger

    expected = (
        config.ConfigError,
        checkpoint.CheckpointError,
        ledger.LedgerError,
        sandbox_records.SandboxUnavailable,
        OSError,
    )
    try:
        yield
    except KeyboardInterrupt:
        print("\nInterrupted. The same command again continues the run.", file=sys.stderr)
        sys.exit(130)
    except expected as error:
        print(f"\n{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)
    except ValueError as error:
        # Rooms refuse bad values at their doors with a ValueError; deeper down it is a fault.
        import traceback

        frames = traceback.extract_tb(error.__traceback__)
        if any("site-packages" in frame.filename for frame in frames[-3:]):
            raise
        print(f"\n{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)
