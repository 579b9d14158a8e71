"""The crew: warm boxes on this host, and the door through which programs reach them.

`Crew` owns the boxes. `run` executes a program, `call` calls one function on many inputs in one
process, `open` starts a session: one fresh process that hosts many plays of an environment program.
What a program does is an `Outcome`. Only a sandbox that cannot be started raises.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import os
import pathlib
import re
import threading
from typing import Any

from sandbox import box, records, start, work

TIERS = ("gvisor", "subprocess")
PLATFORMS = ("auto", "ptrace", "systrap", "kvm")
MENTIONS_NUMPY = re.compile(r"\b(numpy|np|math_verify|sympy)\b")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrewConfig:
    """How boxes are made."""

    tier: str = "gvisor"  # subprocess is no security boundary
    boxes: int = 0  # 0: one per processor
    platform: str = "auto"  # auto: the faster of ptrace and systrap, measured once per machine
    window: int = 4  # orders under way in one box; more wait in its queue
    packages: tuple[str, ...] = (
        "numpy",
        "math_verify",
        "latex2sympy2_extended",
        "sympy",
        "mpmath",
        "antlr4",
    )  # importable in a box where installed here, beside the standard library
    recycle_programs: int = 1000  # a box is replaced after so many, since its memory creeps up
    runsc: str = ""  # path of runsc; empty: RUNSC_PATH, then PATH
    state_folder: pathlib.Path = start.STATE_FOLDER  # run directories of crews, swept at start
    cache_folder: pathlib.Path = start.CACHE_FOLDER  # the measured platform of this machine

    def __post_init__(self):
        if self.tier not in TIERS:
            raise ValueError(f"crew.tier={self.tier!r}: choose one of {', '.join(TIERS)}.")
        if self.platform not in PLATFORMS:
            raise ValueError(f"crew.platform={self.platform!r}: choose one of {PLATFORMS}.")
        if self.boxes < 0 or self.window < 1 or self.recycle_programs < 1:
            raise ValueError(
                f"crew.boxes={self.boxes}, crew.window={self.window}, "
                f"crew.recycle_programs={self.recycle_programs}: set boxes >= 0 (0: one per "
                "processor), the others >= 1."
            )


class Crew:
    """Owns the boxes of one process.

    Raises:
      records.SandboxUnavailable: no box of the asked tier can be started here.
    """

    def __init__(self, config: CrewConfig | None = None):
        self.config = config or CrewConfig()
        self._ground = start.prepare(self.config)
        self.tier = self._ground.tier
        self._lock = threading.Lock()
        self._closed = False
        self._slots = itertools.count()
        self._retired: list[box.Box] = []
        count = self.config.boxes or len(os.sched_getaffinity(0))
        self.boxes = [self._new_box() for _ in range(count)]
        self._wait_until_ready()

    def _new_box(self) -> box.Box:
        return box.Box(
            launch=self._ground.launcher(next(self._slots)),
            tier=self.tier,
            window=self.config.window,
        )

    def _wait_until_ready(self) -> None:
        try:
            for one in self.boxes:
                one.ready.result()
        except RuntimeError as error:
            message = start.broken_message(self.tier, str(error), self._ground)
            self.close()
            raise records.SandboxUnavailable(message) from None

    def run(
        self, source: str, stdin: str = "", limits: records.Limits | None = None
    ) -> records.Outcome:
        """Execute a program in a fresh process with nothing but its stdio."""
        return self.start_run(source, stdin, limits).result()

    def call(
        self,
        source: str,
        function: str,
        inputs: list[Any],
        limits: records.Limits | None = None,
    ) -> records.Outcome:
        """Call `function(input)` for each input, all in one fresh process.

        Returns:
          an outcome whose value is the list of answers so far, as strict JSON. An input that raised
          has the answer None and makes the status `error`; an answer that is not readable JSON is
          {"unreadable": reason}, which equals nothing. Answers are compared by the caller
          (`equality.same`): what is expected never enters a box.
        """
        return self.start_call(source, function, inputs, limits).result()

    def start_run(
        self, source: str, stdin: str = "", limits: records.Limits | None = None
    ) -> concurrent.futures.Future[records.Outcome]:
        """As `run`, without waiting."""
        return self._start_job("run", source, {"source": source}, stdin.encode(), 0, limits)

    def start_call(
        self,
        source: str,
        function: str,
        inputs: list[Any],
        limits: records.Limits | None = None,
    ) -> concurrent.futures.Future[records.Outcome]:
        """As `call`, without waiting."""
        order = {"source": source, "function": function, "inputs": inputs}
        return self._start_job("call", source, order, b"", len(inputs), limits)

    def _start_job(
        self,
        mode: str,
        source: str,
        order: dict,
        stdin: bytes,
        lines: int,
        limits: records.Limits | None,
    ) -> concurrent.futures.Future[records.Outcome]:
        program = work.Program(
            mode=mode,
            kind=template_kind(source, 0),
            limits=limits or records.Limits(),
            first=work.request_line(order),
            stdin=stdin,
            lines=lines,
            future=concurrent.futures.Future(),
        )
        self._place(program)
        return program.future

    def open(
        self,
        source: str,
        *,
        modules: dict[str, str] | None = None,
        prelude: str = "",
        seed: int = 0,
        hash_seed: int = 0,
        clock_shift_seconds: float = 0.0,
        limits: records.Limits | None = None,
    ) -> Session:
        """Start a process that hosts plays of an environment program; never waits, never raises
        for what the program does. See `guest/plays.py` for the requests."""
        order = {
            "source": source,
            "modules": modules or {},
            "prelude": prelude,
            "seed": seed,
            "clock_shift": clock_shift_seconds,
        }
        program = work.Program(
            mode="session",
            kind=template_kind(source, hash_seed),
            limits=limits or records.Limits(),
            first=work.request_line(order),
        )
        return Session(self._place(program), program)

    def _place(self, program: work.Program) -> box.Box:
        """Give a program to the box with the least to do; replace that box when it is worn."""
        with self._lock:
            alive = [b for b in self.boxes if not b.failure] or self.boxes
            home = min(alive, key=lambda b: b.load)
            home.add(program)
            if home.given >= self.config.recycle_programs and not self._closed:
                self.boxes[self.boxes.index(home)] = self._new_box()
                self._retired = [b for b in self._retired if not b.finished] + [home]
                home.retire()
            return home

    def close(self) -> None:
        """End every box and remove the run directory; what is still asked answers `infra`."""
        with self._lock:
            self._closed = True
        for one in self.boxes + self._retired:
            one.close()
        self._ground.remove()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Session:
    """One process with many plays of one environment program."""

    def __init__(self, home: box.Box, program: work.Program):
        self._home, self._program = home, program

    def submit(self, requests: list[dict]) -> concurrent.futures.Future[list[records.Outcome]]:
        """Send a batch; the future gives one outcome per request, in order.

        The wall limit holds for the batch and starts when the box takes it up. When it runs out the
        process is killed: requests answered before keep their outcomes, all others get `timeout`,
        later ones too. Text the program printed stands in the last outcome of the batch.
        """
        future: concurrent.futures.Future = concurrent.futures.Future()
        if not requests:
            future.set_result([])
            return future
        order = work.Order(
            program=self._program,
            wall=self._program.limits.wall_seconds,
            payload=work.request_line(requests),
            requests=len(requests),
            future=future,
        )
        self._home.order(order)
        return future

    def step(self, requests: list[dict]) -> list[records.Outcome]:
        """As `submit`, waiting for the outcomes."""
        return self.submit(requests).result()

    def close(self) -> None:
        """End the process. Closing twice is allowed."""
        self._home.release(self._program)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def template_kind(source: str, hash_seed: int) -> str:
    """Choose the template: NumPy is loaded beforehand only for programs that name it."""
    if hash_seed not in (0, 1):
        raise ValueError(f"hash_seed={hash_seed}: templates exist for hash seeds 0 and 1.")
    numpy = "n" if MENTIONS_NUMPY.search(source) else ""
    return f"{numpy}{hash_seed}"
