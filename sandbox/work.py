"""What a box is asked to do, and how its reports become outcomes.

A `Program` is one process in a box: a job (run or call, one order) or a session (many orders, each
a batch of requests). Only the thread of its box touches it after it was handed over.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import math
import os
import signal
from typing import Any

from sandbox import frames, records

MEMORY_FAILED = 86  # exit code of guest/program.py
UNASKED = "unasked"  # why the dispatcher ended a session that answered nobody
UNREADABLE = "unreadable"


@dataclasses.dataclass(kw_only=True)
class Order:
    """One thing asked of a program: a whole job, or one batch of a session."""

    program: Program
    wall: float
    deadline: float  # on the monotonic clock; passed: the answer is `infra`
    payload: bytes = b""
    requests: int = 0
    future: concurrent.futures.Future | None = None  # of a batch
    sent: float = 0.0
    meter: tuple[float, float] | None = None  # clock and CPU seconds of the box, a moment later


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """One report of the dispatcher, its head type-checked."""

    lines: list[bytes]
    out: str
    err: str
    cut: bool
    reason: str | None
    status: int | None  # wait status of the process
    confined: bool  # False: it ended before any text of the program was read
    charged: float  # CPU seconds of the job, or of the batch, as the kernel of the box counts
    box_charged: float  # the same for all programs of the box
    cpu: float  # CPU seconds of the job, or of the batch, as far as the host gave them
    peak: int
    wall: float
    detail: str


def read_report(head: dict, payload: bytes, most: int) -> Report:
    """Check and split a report.

    Args:
      most: answer lines that are of use; a program may have written millions.
    Raises:
      frames.ProtocolError: a field of the wrong type or a length that does not fit.
    """

    def field(name: str, kinds: tuple, default: Any) -> Any:
        value = head.get(name, default)
        if type(value) not in kinds:
            raise frames.ProtocolError(f"report field {name}={value!r:.100} has the wrong type")
        return value

    answers, out = field("answers", (int,), 0), field("out", (int,), 0)
    charged = float(field("cpu", (int, float), 0.0))
    if answers < 0 or out < 0 or answers + out > len(payload):
        raise frames.ProtocolError("report lengths do not fit the payload")
    return Report(
        lines=payload[:answers].split(b"\n", most)[:-1],
        out=payload[answers : answers + out].decode("utf-8", "replace"),
        err=payload[answers + out :].decode("utf-8", "replace"),
        cut=field("cut", (bool,), False),
        reason=field("reason", (str, type(None)), None),
        status=field("status", (int, type(None)), None),
        confined=field("confined", (bool,), True),
        charged=charged,
        box_charged=float(field("box_cpu", (int, float), 0.0)),
        cpu=charged,
        peak=field("peak", (int,), 0),
        wall=float(field("wall", (int, float), 0.0)),
        detail=field("detail", (str,), ""),
    )


@dataclasses.dataclass(kw_only=True, eq=False)
class Program:
    """One process in a box. `lost` holds the status of everything asked after its end."""

    mode: str  # run, call or session
    kind: str  # template: hash seed 0 or 1, after an n with NumPy, an m with math_verify
    limits: records.Limits
    first: bytes  # the first line it reads
    stdin: bytes = b""
    key: int = 0  # the same for all programs of one text
    lines: int = 0  # call: answers awaited
    future: concurrent.futures.Future | None = None  # of a job
    deadline: float = 0.0  # of a job, on the monotonic clock
    home: Any = None  # the box that holds it
    started: bool = False  # a job that waited for a box of its own has one
    tries_left: int = 2  # starts in another box after a fault of ours
    number: int = 0
    generation: int = 0
    lost: str = ""
    lost_detail: str = ""

    def spawn_head(self) -> dict:
        """Give the order that starts the program in a box."""
        return {
            "do": "spawn",
            "id": self.number,
            "mode": self.mode,
            "kind": self.kind,
            "limits": dataclasses.asdict(self.limits),
            "first": len(self.first),
            "lines": self.lines,
        }

    def job(self) -> Order:
        """The one order of a job."""
        return Order(program=self, wall=self.limits.wall_seconds, deadline=self.deadline)

    def may_retry(self, report: Report) -> bool:
        """Tell whether the end was a fault of ours after which another box may try."""
        status, _ = end_status(self.mode, report, self.lines, self.limits.cpu_seconds)
        ours = status == records.INFRA and report.reason != "closed"
        return ours and self.mode != "session" and self.tries_left > 0

    def batch_head(self, order: Order) -> dict:
        """Give the order that sends a session its next batch."""
        return {"do": "batch", "id": self.number, "lines": order.requests, "wall": order.wall}

    def finish_batch(self, order: Order, report: Report, tier: str) -> str:
        """Resolve a batch; say what is wrong where the answers do not fit the requests."""
        outcomes = read_answers(report, tier)
        bad = len(outcomes) != order.requests or None in outcomes
        if bad:
            fault = "the program wrote on the answer channel"
            good = outcomes[: outcomes.index(None)] if None in outcomes else []
            outcomes = fill(good, order.requests, records.CRASH, fault, tier, report)
        resolve(order.future, attach(outcomes, report))
        return fault if bad else ""

    def end(self, order: Order | None, report: Report, tier: str) -> None:
        """The process ended: resolve what it was doing and note what later requests will get."""
        status, detail = end_status(self.mode, report, self.lines, self.limits.cpu_seconds)
        self.lost, self.lost_detail = status, detail
        if self.mode == "session":
            if order is not None:
                given = [] if report.reason == UNASKED else read_answers(report, tier)
                given = given[: given.index(None)] if None in given else given
                outcomes = fill(
                    given[: order.requests], order.requests, status, detail, tier, report
                )
                resolve(order.future, attach(outcomes, report))
            return
        if self.mode == "call":
            value, status, detail = read_call(report.lines[: self.lines or 1], status, detail)
        else:
            value = exit_code(report.status)
        resolve(
            self.future,
            records.Outcome(
                status=status,
                value=value,
                stdout=report.out,
                stderr=report.err,
                detail=detail,
                truncated=report.cut,
                cpu_seconds=report.cpu,
                wall_seconds=report.wall,
                peak_bytes=report.peak,
                tier=tier,
            ),
        )

    def give_up(self, why: str, tier: str) -> None:
        """Resolve a job that no box has."""
        self.lost, self.lost_detail = records.INFRA, why
        self.fail(self.job(), tier)

    def fail(self, order: Order, tier: str) -> None:
        """Resolve an order that will never be carried out."""
        if order.future is not None:
            resolve(order.future, fill([], order.requests, self.lost, self.lost_detail, tier))
        elif self.future is not None:
            resolve(
                self.future,
                records.Outcome(status=self.lost, detail=self.lost_detail, tier=tier),
            )


def new_job(
    mode: str,
    kind: str,
    limits: records.Limits,
    order: dict,
    *,
    deadline: float,
    stdin: bytes = b"",
    lines: int = 0,
) -> Program:
    """Make a program that is run or called once."""
    return Program(
        mode=mode,
        kind=kind,
        limits=limits,
        first=request_line(order),
        stdin=stdin,
        key=hash(order["source"]),
        lines=lines,
        deadline=deadline,
        future=concurrent.futures.Future(),
    )


def resolve(future: concurrent.futures.Future | None, value: Any) -> bool:
    """Set a result unless the caller cancelled or has it already; tell whether it was set."""
    if future is None or future.done() or not future.set_running_or_notify_cancel():
        return False
    future.set_result(value)
    return True


def fill(
    given: list[records.Outcome],
    count: int,
    status: str,
    detail: str,
    tier: str,
    report: Report | None = None,
) -> list[records.Outcome]:
    """Answer what was not answered; each of these carries the time that the batch took."""
    missing = records.Outcome(
        status=status,
        detail=detail,
        cpu_seconds=report.cpu if report else 0.0,
        wall_seconds=report.wall if report else 0.0,
        tier=tier,
    )
    return given + [missing] * (count - len(given))


def attach(outcomes: list[records.Outcome], report: Report) -> list[records.Outcome]:
    """Put what is measured and printed in a batch as a whole into its last outcome."""
    if outcomes:
        outcomes[-1] = dataclasses.replace(
            outcomes[-1],
            stdout=report.out,
            stderr=report.err,
            truncated=report.cut,
            cpu_seconds=report.cpu,
            peak_bytes=report.peak,
        )
    return outcomes


def read_answers(report: Report, tier: str) -> list[records.Outcome | None]:
    """Read the answers of a batch. None took longer than the batch, whatever it says."""
    answers = [read_answer(line, i, tier) for i, line in enumerate(report.lines)]
    return [
        answer and dataclasses.replace(answer, wall_seconds=min(answer.wall_seconds, report.wall))
        for answer in answers
    ]


def read_answer(line: bytes, index: int, tier: str) -> records.Outcome | None:
    """Turn one answer line of a session into an outcome; None where it is not one."""
    try:
        told = frames.strict_json(line)
    except frames.ProtocolError:
        return None
    if type(told) is not dict or told.get("i") != index:
        return None
    status, value, detail = told.get("s"), told.get("v"), told.get("d")
    wall = told.get("w")
    fits = (status == records.OK and type(value) is dict) or (
        status in (records.ERROR, records.MEMORY) and value is None
    )
    if not fits or type(detail) is not str or type(wall) is not float or wall < 0:
        return None
    return records.Outcome(status=status, value=value, detail=detail, wall_seconds=wall, tier=tier)


def end_status(mode: str, report: Report, lines: int, cpu_seconds: float) -> tuple[str, str]:
    """Say what the end of a process means."""
    told = {
        "timeout": (records.TIMEOUT, "the wall clock ran out"),
        "cpu": (records.TIMEOUT, "the processor limit ran out"),
        "memory": (records.MEMORY, "over the memory limit"),
        "output_limit": (records.OUTPUT_LIMIT, "over the output limit"),
        "idle_cpu": (records.TIMEOUT, "it used the processor while nothing was asked of it"),
        UNASKED: (records.CRASH, "it wrote on the answer channel while nothing was asked of it"),
        "infra": (records.INFRA, report.detail),
        "closed": (records.INFRA, "the session is closed"),
    }
    if report.reason in told:
        return told[report.reason]
    if not report.confined:
        return records.INFRA, f"it ended before it was confined: {report.err[:500]}"
    if report.status is None:
        return records.INFRA, report.detail or "the box did not say how the program ended"
    if mode == "call" and len(report.lines) >= lines:
        return records.OK, ""
    if os.WIFSIGNALED(report.status):
        number = os.WTERMSIG(report.status)
        spent = {signal.SIGXCPU: cpu_seconds / 2, signal.SIGKILL: cpu_seconds}  # else it was sent
        if report.charged >= spent.get(number, math.inf):
            return records.TIMEOUT, "the processor limit ran out"
        return records.CRASH, f"killed by signal {number}"
    code = os.waitstatus_to_exitcode(report.status)
    if mode == "session":
        return records.CRASH, f"the process left with exit code {code}"
    if mode == "call":
        return records.NO_ANSWER, f"it left with exit code {code} before every answer was given"
    if code == MEMORY_FAILED and ("MemoryError" in report.err or report.cut):
        return records.MEMORY, "MemoryError"
    last = report.err.strip().rpartition("\n")[2]
    return (records.OK, "") if code == 0 else (records.ERROR, last[:500] or f"exit code {code}")


def read_call(lines: list[bytes], status: str, detail: str) -> tuple[list, str, str]:
    """Read the answers of a call; an unreadable one is an answer that equals nothing."""
    answers: list[Any] = []
    for line in lines:
        try:
            told = frames.strict_json(line)
        except frames.ProtocolError as error:
            told = {"r": {UNREADABLE: str(error)}}
        if type(told) is not dict or not told.keys() & {"r", "e", "x"}:
            told = {"r": {UNREADABLE: "the line is not an answer"}}
        if "r" in told:
            answers.append(told["r"])
            continue
        raised = str(told.get("e", told.get("x")))
        if status in (records.OK, records.NO_ANSWER):
            status = records.MEMORY if told.get("memory") is True else records.ERROR
            detail = raised if "x" in told else f"input {len(answers)}: {raised}"
        if "x" not in told:
            answers.append(None)
    return answers, status, detail


def exit_code(status: int | None) -> int | None:
    """The exit code of a job, negative for a signal, None where it was never reaped."""
    return None if status is None else os.waitstatus_to_exitcode(status)


def request_line(value: Any) -> bytes:
    """Encode what a program reads as one line."""
    return json.dumps(value).encode() + b"\n"
