"""Turn errors that a user can mend into one paragraph and an exit code, and leave others alone."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def one_paragraph() -> Iterator[None]:
    """Print expected errors as a paragraph and exit with 1; anything else keeps its traceback."""
    from sandbox import records as sandbox_records
    from spade_jax import checkpoint, config, ledger

    expected = (
        config.ConfigError,
        checkpoint.CheckpointError,
        ledger.LedgerError,
        sandbox_records.SandboxUnavailable,
        FileNotFoundError,
        PermissionError,
        OSError,
        ValueError,
    )
    try:
        yield
    except KeyboardInterrupt:
        print("\nInterrupted. The same command again continues the run.", file=sys.stderr)
        sys.exit(130)
    except expected as error:
        print(f"\n{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)
