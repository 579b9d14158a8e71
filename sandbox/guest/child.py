"""One program as the dispatcher sees it: its pipes, its clock, what it wrote and why it ended."""

import fcntl
import os
import select
import time

BATCH_BYTES = 64 << 20  # all answers of one batch together
CHUNK = 1 << 16
WINDOW_BYTES = 1 << 16  # memory in which a session keeps answers that it has not sent yet


class Child:
    """Pipes and state of one program. `descriptors` are the program's ends, in order from 0."""

    def __init__(self, order, payload, dispatcher):
        self.number, self.mode, self.kind = order["id"], order["mode"], order["kind"]
        self.limits, self.lines_wanted = order["limits"], order.get("lines", 0)
        self.dispatcher = dispatcher
        self.pid = self.uid = self.reason = self.ended = self.deadline = None
        self.confined = False  # before it is, nothing but our own code has run
        self.batch_wall = self.started = None
        self.idle_cpu = None  # CPU seconds at the last look while idle; None since a batch
        self.idle_strikes = 0  # looks in a row at which it worked while idle
        self.batches = 0  # answered so far
        self.peak = self.base_bytes = 0  # resident: the highest seen; shared with the template
        self.spent = self.others = 0.0  # CPU seconds: of all its processes; of all but the first
        self.spent_before = self.box_before = 0.0  # at the start of the batch: its own; of the box
        self.answers, self.line_count, self.partial = bytearray(), 0, 0
        self.unasked = False  # a session answered while nothing was asked of it
        self.out, self.err = bytearray(), bytearray()
        self.pending = {}  # descriptor -> bytes still to write
        self.open_pipes(order, payload)

    def open_pipes(self, order, payload):
        """Make the pipes of a program, hear its ends, and send what it is given first."""
        first, stdin = payload[: order["first"]], payload[order["first"] :]
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(5)]
        (in_r, in_w), (out_r, out_w), (err_r, err_w), (ask_r, ask_w), (say_r, say_w) = pipes
        self.descriptors = [in_r, out_w, err_w, ask_r, say_w]
        self.window = sealed_memory() if self.mode == "session" else None
        if self.window is not None:
            self.descriptors.append(os.dup(self.window))
        self.ask, self.said = ask_w, say_r
        own = self.dispatcher.own
        own(out_r, self, lambda: self.read_text(out_r, self.out), select.EPOLLIN)
        own(err_r, self, lambda: self.read_text(err_r, self.err), select.EPOLLIN)
        own(say_r, self, lambda: self.read_answers(say_r), select.EPOLLIN)
        self.readers = {out_r: self.out, err_r: self.err, say_r: None}
        self.write(ask_w, first, keep=self.mode == "session")
        self.write(in_w, stdin, keep=False)

    def write(self, fd, raw, keep):
        """Queue bytes for a pipe; it closes after the last unless `keep`."""
        os.set_blocking(fd, False)
        if fd in self.pending:
            self.pending[fd] += raw
            return
        try:
            raw = raw[os.write(fd, raw) :] if raw else raw
        except BlockingIOError:
            pass
        except BrokenPipeError:
            raw = b""
        if raw:
            self.pending[fd] = raw
            self.dispatcher.own(fd, self, lambda: self.write_more(fd, keep), select.EPOLLOUT)
        elif not keep:
            os.close(fd)

    def write_more(self, fd, keep):
        """Send on what a pipe had no room for; `keep` leaves it open at the end."""
        raw = self.pending[fd]
        try:
            raw = raw[os.write(fd, raw[: 1 << 20]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            raw = b""
        self.pending[fd] = raw
        if not raw:
            del self.pending[fd]
            del self.dispatcher.owners[fd]
            self.dispatcher.poll.unregister(fd)
            if not keep:
                os.close(fd)

    def begin(self, payload, lines, wall):
        """Start a batch: its clock runs from here, or from the program's start if that is later."""
        self.read_answers(self.said)  # what is there already answers nothing
        self.lines_wanted, self.batch_wall = lines, wall
        self.idle_cpu, self.idle_strikes = None, 0
        if self.confined:
            self.start_clock()
        self.write(self.ask, payload, keep=True)

    def start_clock(self):
        """Begin to measure a batch, with its deadline on the wall clock."""
        watch = self.dispatcher.watch
        watch.charge(self)
        self.spent_before, self.box_before = self.spent, watch.box_seconds
        self.started = time.monotonic()
        wall = self.batch_wall if self.mode == "session" else self.limits["wall_seconds"]
        if wall:
            self.deadline = self.started + wall

    def read_text(self, fd, buffer):
        """Take in output, up to the limit and one byte more."""
        chunk = self.read(fd)
        room = self.limits["output_bytes"] + 1 - len(buffer)
        if chunk and room > 0:
            buffer += chunk[:room]

    def read_answers(self, fd):
        """Take in answers; the first byte says that the program is confined."""
        chunk = self.read(fd)
        if chunk and not self.confined:
            self.confined, chunk = True, chunk[1:]
            self.start_clock()
        if chunk:
            self.unasked |= self.mode == "session" and not self.lines_wanted
            self.answers += chunk
            self.line_count += chunk.count(b"\n")
            tail = len(chunk) - 1 - chunk.rfind(b"\n")
            self.partial = tail if b"\n" in chunk else self.partial + tail

    def read(self, fd):
        """Read a pipe: its bytes, none at its end, None where nothing is there yet."""
        if fd not in self.dispatcher.owners:
            return b""
        try:
            chunk = os.read(fd, CHUNK)
        except BlockingIOError:
            return None
        if not chunk:
            self.dispatcher.disown(fd)
            del self.readers[fd]
        return chunk

    def overflowed(self):
        """Say whether output or answers are over their limits."""
        limit = self.limits["output_bytes"]
        text, answers = len(self.out) + len(self.err), len(self.answers)
        return text > limit or self.partial > limit or answers > BATCH_BYTES

    def complete(self):
        """Say whether every answer of the batch is there."""
        return self.lines_wanted > 0 and self.line_count >= self.lines_wanted

    def drain(self):
        """Take what is still in the pipes of an ended program."""
        for fd, buffer in list(self.readers.items()):
            while not self.overflowed():
                chunk = self.read(fd)
                if not chunk:
                    break
                if buffer is None and not self.confined:
                    self.confined, chunk = True, chunk[1:]
                if buffer is None:
                    self.answers += chunk
                    self.line_count += chunk.count(b"\n")
                else:
                    buffer += chunk
        if self.window is not None:
            raw = os.pread(self.window, WINDOW_BYTES, 0)
            self.answers += raw[4 : 4 + int.from_bytes(raw[:4], "little")]

    def close(self):
        """Close what is still open."""
        for fd in list(self.readers):
            self.dispatcher.disown(fd)
        for fd in list(self.pending):
            self.dispatcher.disown(fd)
        if self.mode == "session" and self.ask not in self.pending:
            os.close(self.ask)
        if self.window is not None:
            os.close(self.window)

    def take_batch(self):
        """Give head and payload of a finished batch and make ready for the next."""
        for fd, buffer in list(self.readers.items()):
            if buffer is not None:
                self.read_text(fd, buffer)
        self.batches += 1
        return self.take("batch")

    def take_end(self):
        """Give the last report: how the program ended and what it said since the last."""
        self.dispatcher.watch.charge(self, self.ended.get("cpu", 0.0))
        head, parts = self.take("end")
        head.update(reason=self.reason, confined=self.confined)
        head.update({k: self.ended[k] for k in ("status", "detail") if k in self.ended})
        head["peak"] = max(self.peak, self.ended.get("peak", 0))
        return head, parts

    def take(self, event):
        """Give what the program said since the last report, and begin anew."""
        limit = self.limits["output_bytes"]
        lines = bytes(self.answers)
        out = bytes(self.out[:limit])
        err = bytes(self.err[: limit - len(out)])
        head = {"event": event, "id": self.number, "answers": len(lines), "out": len(out)}
        head.update(err=len(err), cut=len(self.out) + len(self.err) > limit, peak=self.peak)
        head["wall"] = time.monotonic() - self.started if self.started else 0.0
        head["cpu"] = self.spent - self.spent_before
        head["box_cpu"] = self.dispatcher.watch.box_seconds - self.box_before
        self.answers, self.line_count, self.partial = bytearray(), 0, 0
        self.out.clear()
        self.err.clear()
        self.lines_wanted, self.deadline = 0, None
        return head, (lines, out, err)


def sealed_memory():
    """Make shared memory whose size nobody can change."""
    fd = os.memfd_create("answers", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, WINDOW_BYTES)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd
