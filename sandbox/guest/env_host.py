"""The session host: one process that hosts many plays of one environment program.

First line of the request descriptor: {"source", "modules", "prelude", "seed", "clock_shift"}. Every
further line is a list of requests; each request is answered by one line {"i", "s", "v", "d", "w"}
(index, status, value, detail, wall seconds), at once, so that a later request that hangs takes no
answer with it. Processor time is measured outside. Each play has its own module namespace,
its own copies of the helper modules and its own `random` and NumPy state; all are swapped in before
each call.
"""

import random
import sys
import time

import plays
import program

NOW = time.perf_counter


def main():
    """Serve requests until the request descriptor closes; never returns."""
    lines = program.Lines()
    order = lines.next()
    if order is None:
        program.EXIT(0)
    if order["clock_shift"]:
        shift_clocks(order["clock_shift"])
    random.seed(order["seed"])
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(order["seed"] % 2**32)
    stage = plays.Stage(order["source"], order["modules"], order["prelude"])
    while True:
        requests = lines.next()
        if requests is None:
            program.EXIT(0)
        for index, request in enumerate(requests):
            last = index == len(requests) - 1
            answer_one(stage, index, request, last)


def answer_one(stage, index, request, last):
    """Answer one request; the program's printed text is flushed before the last line of a batch."""
    started = NOW()
    status, value, detail = "ok", None, ""
    line = None
    try:
        value = stage.answer(request)
        line = program.encode({"i": index, "s": status, "v": value, "d": detail})
    except MemoryError as error:
        status, value, detail = "memory", None, program.describe(error)
    except BaseException as error:
        status, value, detail = "error", None, program.describe(error)
    if line is None:
        line = program.encode({"i": index, "s": status, "v": None, "d": detail})
    if last:
        program.flush()
    used = f',"w":{NOW() - started:.6f}}}\n'
    raw = (line[:-1] + used).encode("ascii")
    while raw:
        raw = raw[program.WRITE(program.REPLIES, raw) :]


def shift_clocks(shift):
    """Move every clock that Python programs read by `shift` seconds."""
    shift_time_module(shift)
    shift_datetime_module(shift)


def shift_time_module(shift):
    nanos = int(shift * 1e9)
    for name in ("time", "monotonic", "perf_counter"):
        setattr(time, name, later(getattr(time, name), shift))
        setattr(time, f"{name}_ns", later(getattr(time, f"{name}_ns"), nanos))
    clock = time.time
    for name in ("localtime", "gmtime", "ctime"):
        original = getattr(time, name)
        setattr(time, name, lambda secs=None, f=original: f(clock() if secs is None else secs))
    local, asctime, strftime = time.localtime, time.asctime, time.strftime
    time.asctime = lambda t=None: asctime(local() if t is None else t)
    time.strftime = lambda form, t=None: strftime(form, local() if t is None else t)


def later(clock, shift):
    return lambda: clock() + shift


def shift_datetime_module(shift):
    import datetime

    real, real_date = datetime.datetime, datetime.date
    step = datetime.timedelta(seconds=shift)

    class Shifted(real):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls):
            moved = real.utcnow() + step
            return cls(*moved.timetuple()[:6], moved.microsecond)

        @classmethod
        def today(cls):
            return cls.now()

    class ShiftedDate(real_date):
        @classmethod
        def today(cls):
            moved = (real.now() + step).date()
            return cls(moved.year, moved.month, moved.day)

    Shifted.__name__ = Shifted.__qualname__ = "datetime"
    ShiftedDate.__name__ = ShiftedDate.__qualname__ = "date"
    datetime.datetime, datetime.date = Shifted, ShiftedDate
