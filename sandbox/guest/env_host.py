"""The session host: one process that hosts many plays of one environment program.

First line of the request descriptor: {"source", "modules", "prelude", "seed", "clock_shift"}. Every
further line is a list of requests; each request is answered by one line {"i", "s", "v", "d", "w"}
(index, status, value, detail, wall seconds). Processor time is measured outside. Each play has its
own module namespace, its own copies of the helper modules and its own `random` and NumPy state; all
are swapped in before each call.
"""

import mmap
import os
import random
import sys
import time

import plays
import program

NOW = time.perf_counter
WINDOW = 5  # descriptor of memory shared with the dispatcher


class Answers:
    """Keeps the answers of a batch in shared memory and sends them with one write.

    A write costs a system call and wakes the dispatcher. Memory costs neither, and survives the
    program: the dispatcher reads it when a later request hangs or kills. Layout: four bytes of
    length, little-endian, then lines.
    """

    def __init__(self):
        self.room = os.fstat(WINDOW).st_size - 4
        self.memory = mmap.mmap(WINDOW, self.room + 4)
        os.close(WINDOW)
        self.used = 0

    def add(self, raw):
        """Keep one line; those kept go out first where there is no room."""
        if self.used + len(raw) > self.room:
            self.send()
        if len(raw) > self.room:
            self.write(raw)
            return
        self.memory[4 + self.used : 4 + self.used + len(raw)] = raw
        self.keep(self.used + len(raw))

    def send(self):
        """Send what is kept."""
        self.write(self.memory[4 : 4 + self.used])
        self.keep(0)

    def keep(self, used):
        """Note how many bytes are kept."""
        self.used = used
        self.memory[:4] = used.to_bytes(4, "little")

    def write(self, raw):
        """Write bytes to the dispatcher, all of them."""
        while raw:
            raw = raw[program.WRITE(program.REPLIES, raw) :]


def main():
    """Serve requests until the request descriptor closes; never returns."""
    lines, answers = program.Lines(), Answers()
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
            answers.add(answer_one(stage, index, request, last))
        answers.send()


def answer_one(stage, index, request, last):
    """Answer one request with a line; the program's printed text is flushed before the last."""
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
    return (line[:-1] + used).encode("ascii")


def shift_clocks(shift):
    """Move every clock that Python programs read by `shift` seconds."""
    shift_time_module(shift)
    shift_datetime_module(shift)


def shift_time_module(shift):
    """Move the clocks of `time` by some seconds."""
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
    """Give a clock that is ahead of another."""
    return lambda: clock() + shift


def shift_datetime_module(shift):
    """Move `now`, `utcnow` and `today` of `datetime` by some seconds."""
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
