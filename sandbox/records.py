"""What goes into the sandbox and what comes out of it: limits, outcomes, and the one error it
raises.

What a program does is an `Outcome`, never an exception. `SandboxUnavailable` is our own fault or
the operator's: no sandbox of the asked tier can be started here.
"""

from __future__ import annotations

import dataclasses
from typing import Any

OK = "ok"  # the program ran to its end, the call answered, the request returned
ERROR = "error"  # the program raised (SystemExit inside a call included), or left with a code not 0
CRASH = "crash"  # the process died by a signal, or left in the middle of a session
TIMEOUT = "timeout"  # the wall clock or the processor limit ended it
MEMORY = "memory"  # MemoryError, or the resident-memory watch ended it
OUTPUT_LIMIT = "output_limit"  # it wrote more than `output_bytes`
NO_ANSWER = "no_answer"  # it left quietly before every answer was given
INFRA = "infra"  # the sandbox failed, or its queue: says nothing about the program, never a score
STATUSES = (OK, ERROR, CRASH, TIMEOUT, MEMORY, OUTPUT_LIMIT, NO_ANSWER, INFRA)
MOST = 1e15  # of any limit
PATIENCE_SECONDS = 600.0  # what waiting and starting may take where no deadline is given


class SandboxUnavailable(RuntimeError):
    """No sandbox of the asked tier can be started on this machine; the message names the remedy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What one program may use. In a session wall, processor and output limits hold per submit.

    Processor time is what the kernel of the box charges to all processes of the program together.
    gVisor charges a thread for waiting for a busy processor too, so that the limit never falls
    before `cpu_seconds` of wall clock for a program of one thread: it bounds many threads and
    processes, the wall clock bounds one. `Outcome.cpu_seconds` tells looping from starving.
    """

    wall_seconds: float = 10.0  # enforced outside the program, by SIGKILL; runs once it is confined
    cpu_seconds: float = 10.0  # all its processes together; RLIMIT_CPU too for `run` and `call`
    memory_bytes: int = 512 << 20  # resident memory of all its processes, and address space of each
    output_bytes: int = 1 << 20  # stdout and stderr together; also the length of one answer
    processes: int = 16  # processes and threads together
    # From the request to its outcome: waiting, starting, running and collecting. What is not
    # answered by then is `infra`. 0: wall_seconds and PATIENCE_SECONDS more.
    deadline_seconds: float = 0.0

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not value < MOST:
                raise ValueError(f"limits.{field.name}={value}: at most {MOST:.0g}.")
            if not (value > 0 or (value == 0 and field.name == "deadline_seconds")):
                raise ValueError(f"limits.{field.name}={value}: a limit must be positive.")
        if 0 < self.deadline_seconds < self.wall_seconds:
            raise ValueError(
                f"limits.deadline_seconds={self.deadline_seconds} is shorter than wall_seconds="
                f"{self.wall_seconds}, so no program could use what it is given; set it higher, "
                f"or 0 for wall_seconds + {PATIENCE_SECONDS:g}."
            )
        if self.wall_seconds > 86400:
            raise ValueError(
                f"limits.wall_seconds={self.wall_seconds}: at most 86400 (one day); "
                "a program without a deadline would hold its slot for ever."
            )

    @property
    def patience(self) -> float:
        """Seconds from the request to its outcome."""
        return self.deadline_seconds or self.wall_seconds + PATIENCE_SECONDS

    def scaled(self, scale: float) -> Limits:
        """The same limits on a machine that takes `scale` times as long for the same work."""
        more = self.wall_seconds * (scale - 1.0)
        return dataclasses.replace(
            self,
            wall_seconds=min(86400.0, self.wall_seconds + more),
            cpu_seconds=self.cpu_seconds * scale,
            deadline_seconds=self.deadline_seconds + more if self.deadline_seconds else 0.0,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one program, one call or one request of a session."""

    status: str  # one of STATUSES
    value: Any = None  # call: list of answers; session: the request's dict; run: exit code
    stdout: str = ""  # session: stands in the last outcome of a submit
    stderr: str = ""
    detail: str = ""  # one line for a person: what happened
    truncated: bool = False  # stdout or stderr stop at the limit
    # Processor time as seen from outside. Session: of the whole submit, in its last outcome and in
    # all that were not answered. Far below wall_seconds after a timeout: the machine was busy, or
    # the program slept. Under gVisor the part that the host gave, where the order took over 0.2 s.
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0  # of one request where it was answered, else of the submit
    peak_bytes: int = 0  # highest resident memory seen; 0 where it was not measured
    tier: str = ""  # gvisor-PLATFORM, gvisor_strict-PLATFORM[-cold], bubblewrap or subprocess
