"""The crew: warm boxes on this host, and the door through which programs reach them.

`Crew` owns the boxes. `run` executes a program, `call` calls one function on many inputs in one
process (both in `door.py`), `open` starts a session: one fresh process that hosts many plays of an
environment program. Each has a form that gives a future at once (`start_run`, `start_call`,
`Session.submit`) and one to be awaited (`run_async`, `call_async`, `Session.step_async`).
Cancelling a future or an awaited call ends the program. What a program does is an `Outcome`. Only a
sandbox that cannot be started raises.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import pathlib
import re
import time
from typing import Any

from sandbox import box, door, gate, pool, records, start, work

TIERS = ("gvisor", "gvisor_strict", "bubblewrap", "subprocess")
PLATFORMS = ("auto", "ptrace", "systrap", "kvm")
MENTIONS_NUMPY = re.compile(r"\b(numpy|np)\b")
MENTIONS_MATH = re.compile(r"\b(math_verify|sympy|latex2sympy2_extended|mpmath)\b")
QUEUE_FULL = "the queue of the sandbox was full until its deadline"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrewConfig:
    """How boxes are made."""

    # gvisor: boxes that programs share. gvisor_strict: a box restored for each program. bubblewrap
    # and subprocess: the kernel of the host; they must be asked for, nothing falls back to them.
    tier: str = "gvisor"
    boxes: int = 0  # 0: one per processor
    platform: str = "auto"  # auto: the faster of ptrace and systrap, measured once per machine
    window: int = 4  # orders under way in one box; more wait in its queue
    queue: int = 4096  # jobs and batches under way or waiting; then callers wait
    packages: tuple[str, ...] = (
        "numpy",
        "math_verify",
        "latex2sympy2_extended",
        "sympy",
        "mpmath",
        "antlr4",
    )  # importable in a box where installed here, beside the standard library
    preload: tuple[str, ...] = ()  # of those, loaded once a box for the programs that name them
    recycle_programs: int = 1000  # a box is replaced after so many, since its memory creeps up
    recycle_seconds: float = 1800.0  # and at this age
    recycle_growth_bytes: int = 512 << 20  # and when it holds so much that no program asked for
    box_memory_bytes: int = 0  # cgroup of a box, where it can be set; 0: a share of the machine's
    max_scale: float = 4.0  # limits grow up to so far on a slow machine; 1: never
    runsc: str = ""  # path of runsc; empty: RUNSC_PATH, then PATH
    state_folder: pathlib.Path = start.STATE_FOLDER  # run directories of crews, swept at start
    cache_folder: pathlib.Path = start.CACHE_FOLDER  # the measured platform of this machine

    def __post_init__(self):
        if self.tier not in TIERS:
            raise ValueError(f"crew.tier={self.tier!r}: choose one of {', '.join(TIERS)}.")
        if self.platform not in PLATFORMS:
            raise ValueError(f"crew.platform={self.platform!r}: choose one of {PLATFORMS}.")
        for name in ("boxes", "box_memory_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"crew.{name}={getattr(self, name)}: set it to 0 (own choice) up.")
        for name in ("window", "queue", "recycle_programs", "max_scale"):
            if getattr(self, name) < 1:
                raise ValueError(f"crew.{name}={getattr(self, name)}: set it to 1 or more.")
        for name in ("recycle_seconds", "recycle_growth_bytes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"crew.{name}={getattr(self, name)}: it must be positive.")


class Crew(door.Door):
    """Owns the boxes of one process.

    Raises:
      records.SandboxUnavailable: no box of the asked tier can be started here.
    """

    def __init__(self, config: CrewConfig | None = None):
        self.config = config or CrewConfig()
        self._ground = start.prepare(self.config)
        self.tier = self._ground.tier
        self._gate = gate.Gate(self.config.queue)
        try:
            self._pool = pool.make(self.config, self._ground)
        except BaseException:
            self._ground.remove()
            raise

    @property
    def boxes(self) -> list[box.Box]:
        """The boxes that take programs now; of `gvisor_strict` the warm spares."""
        return self._pool.boxes

    @property
    def scale(self) -> float:
        """How much longer wall and processor limits are here than on the machine of reference."""
        return self._pool.scale

    def box_budget(self) -> dict[str, str]:
        """What the kernel enforces on a whole box, read back: `enforced: N` or `not enforced: why`
        by controller (memory in bytes, pids in processes and threads)."""
        running = [one.process for one in self.boxes if one.process is not None]
        return self._ground.budget.verify(running[0].pid) if running else {}

    @property
    def recycled(self) -> dict[str, int]:
        """Boxes replaced so far, by reason: programs, age, memory, canary."""
        return dict(self._pool.recycled)

    def _start(
        self, mode: str, limits: records.Limits | None, *asked: Any
    ) -> concurrent.futures.Future[records.Outcome]:
        program = self._job(mode, limits, *asked)
        self._admitted(program, self._gate.enter(program.deadline))
        return program.future

    async def _finish(
        self, mode: str, limits: records.Limits | None, *asked: Any
    ) -> records.Outcome:
        program = self._job(mode, limits, *asked)
        self._admitted(program, await self._gate.enter_async(program.deadline))
        return await asyncio.wrap_future(program.future)

    def _job(
        self, mode: str, limits: records.Limits | None, source: str, *asked: Any
    ) -> work.Program:
        own = (limits or records.Limits()).scaled(self.scale)
        order: dict[str, Any] = {"source": source}
        if mode == "run":
            more = {"stdin": asked[0].encode("utf-8", "replace")}
        else:
            order |= {"function": asked[0], "inputs": asked[1]}
            more = {"lines": len(asked[1])}
        deadline = time.monotonic() + own.patience
        kind = template_kind(source, 0, self.config.preload)
        return work.new_job(mode, kind, own, order, deadline=deadline, **more)

    def _admitted(self, program: work.Program, entered: bool) -> None:
        """Place a job that came through the gate, and have it leave when it is done."""
        if not entered:
            program.give_up(QUEUE_FULL, self.tier)
            return

        def leave(future: concurrent.futures.Future) -> None:
            self._gate.leave()
            if future.cancelled() and program.home is not None:
                program.home.release(program, "it was cancelled")

        program.future.add_done_callback(leave)
        self._pool.place(program)

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
            kind=template_kind(source, hash_seed, self.config.preload),
            limits=(limits or records.Limits()).scaled(self.scale),
            first=work.request_line(order),
            key=hash(source),
        )
        self._pool.place(program)
        return Session(program, self._gate)

    def describe(self) -> str:
        """Say what runs programs here."""
        return f"{len(self.boxes)} boxes, {self.tier}"

    def close(self) -> None:
        """End every box and remove the run directory; what is still asked answers `infra`."""
        self._pool.close()
        self._ground.remove()


class Session:
    """One process with many plays of one environment program. It stays in its box to its end."""

    def __init__(self, program: work.Program, entrance: gate.Gate):
        self._home, self._program, self._gate = program.home, program, entrance

    def submit(self, requests: list[dict]) -> concurrent.futures.Future[list[records.Outcome]]:
        """Send a batch; the future gives one outcome per request, in order.

        The wall limit holds for the batch and starts when the box takes it up. When it runs out the
        process is killed: requests answered before keep their outcomes, all others get `timeout`,
        later ones too. Text the program printed stands in the last outcome of the batch. Waits
        while the crew's queue is full, so it is not for callbacks of futures. A cancelled batch
        ends the session.
        """
        deadline = time.monotonic() + self._program.limits.patience
        return self._send(requests, deadline, not requests or self._gate.enter(deadline))

    def step(self, requests: list[dict]) -> list[records.Outcome]:
        """As `submit`, waiting for the outcomes."""
        return self.submit(requests).result()

    async def step_async(self, requests: list[dict]) -> list[records.Outcome]:
        """As `step`, to be awaited."""
        deadline = time.monotonic() + self._program.limits.patience
        entered = not requests or await self._gate.enter_async(deadline)
        return await asyncio.wrap_future(self._send(requests, deadline, entered))

    def _send(
        self, requests: list[dict], deadline: float, entered: bool
    ) -> concurrent.futures.Future[list[records.Outcome]]:
        future: concurrent.futures.Future = concurrent.futures.Future()
        lost = records.Outcome(status=records.INFRA, detail=QUEUE_FULL, tier=self._home.tier)
        if not requests or not entered:
            future.set_result([lost] * len(requests))
            return future
        order = work.Order(
            program=self._program,
            wall=self._program.limits.wall_seconds,
            deadline=deadline,
            payload=work.request_line(requests),
            requests=len(requests),
            future=future,
        )

        def leave(done: concurrent.futures.Future) -> None:
            self._gate.leave()
            if done.cancelled():
                self._home.release(self._program, "one of its batches was cancelled")

        future.add_done_callback(leave)
        self._home.order(order)
        return future

    def close(self) -> None:
        """End the process. Closing twice is allowed."""
        self._home.release(self._program)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def template_kind(source: str, hash_seed: int, preload: tuple[str, ...] = ()) -> str:
    """Choose the template: what is slow to load is loaded beforehand, for programs that name it."""
    if hash_seed not in (0, 1):
        raise ValueError(f"hash_seed={hash_seed}: templates exist for hash seeds 0 and 1.")
    if any(re.search(rf"\b{re.escape(name)}\b", source) for name in preload):
        return f"l{hash_seed}"
    if MENTIONS_MATH.search(source):
        return f"m{hash_seed}"
    return f"n{hash_seed}" if MENTIONS_NUMPY.search(source) else str(hash_seed)
