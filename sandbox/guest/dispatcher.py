"""The dispatcher: pid 1 of a box. It starts programs, watches their clocks and output, and never
runs them.

Frames on stdin and stdout: two big-endian 32-bit lengths, a JSON head, a payload. Orders: `spawn`
(payload: first line for the program), `stdin`, `batch` (payload: a line of requests), `close`,
`ping`. Reports: `ready`, `batch` (payload: answer lines), `end` (payload: answer lines, stdout,
stderr), `broken`. It leaves when stdin closes, and the kernel of the box takes every program with
it.

Arguments: tier, then options for the templates (`path=DIR`; `preload=NAME` for kind `l`).
"""

import json
import os
import select
import signal
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import watch  # noqa: E402
from child import Child  # noqa: E402

HEAD = struct.Struct(">II")
FRAME_BYTES = 256 << 20
READ_BYTES = 1 << 16  # more makes malloc map and unmap memory for each read
SWEEP_SECONDS = 0.1
FIRST_UID = 100000  # of the programs; each gets the next one
# First letter of a kind -> packages; `l` has those of the `preload=` options.
PRELOADED = {"n": ("numpy",), "m": ("numpy", "math_verify")}


class Dispatcher:
    """Holds the templates, the programs and the one event loop."""

    def __init__(self, tier, options):
        self.tier, self.options = tier, options
        self.poll = select.epoll()
        self.templates = {}  # kind -> message socket
        self.kinds = {}  # descriptor of a message socket -> kind
        self.children = {}  # number -> Child
        self.owners = {}  # descriptor -> (Child, handler)
        self.inbox = b""
        self.next_uid = FIRST_UID
        if tier == "bubblewrap":  # the kernel counts processes by user over all boxes of the host
            self.next_uid += int.from_bytes(os.urandom(2), "big") << 14
        self.watch = watch.Watch(tier)

    def run(self):
        """Serve orders, templates and programs until the host closes the pipe."""
        self.register(0, select.EPOLLIN)
        self.template("0")
        while True:
            for fd, _ in self.poll.poll(self.wait_seconds()):
                if fd == 0:
                    self.read_orders()
                elif fd in self.kinds:
                    self.hear(fd)
                elif fd in self.owners:
                    child, handler = self.owners[fd]
                    handler()
                    self.settle(child)
            self.check_clocks()

    def wait_seconds(self):
        """Say how long to wait for news before the clocks are looked at."""
        deadlines = [c.deadline for c in self.children.values() if c.deadline]
        until = min(deadlines, default=time.monotonic() + 2.0) - time.monotonic()
        return max(0.0, min(until, SWEEP_SECONDS if deadlines else 2.0))

    # -- the host -------------------------------------------------------------------------------

    def read_orders(self):
        """Read what the host sends and obey every whole order."""
        chunk = os.read(0, READ_BYTES)
        if not chunk:
            self.leave()
        self.inbox += chunk
        while len(self.inbox) >= 8:
            head, body = HEAD.unpack_from(self.inbox)
            if len(self.inbox) < 8 + head + body:
                return
            order = json.loads(self.inbox[8 : 8 + head])
            payload = self.inbox[8 + head : 8 + head + body]
            self.inbox = self.inbox[8 + head + body :]
            self.obey(order, payload)

    def leave(self):
        """End with the host: templates end as their sockets close."""
        for link in self.templates.values():
            link.close()
        if self.tier != "gvisor":
            time.sleep(0.05)  # the templates kill their programs when their socket closes
        os._exit(0)

    def obey(self, order, payload):
        """Do one order: spawn, ping, batch or close."""
        do, number = order["do"], order.get("id")
        if do == "spawn":
            self.spawn(order, payload)
        elif do == "ping":
            self.report({"event": "pong", "id": number})
        elif number in self.children:
            child = self.children[number]
            if do == "batch":
                child.begin(payload, order["lines"], order["wall"])
                self.settle(child)
            elif do == "close":
                self.kill(child, "closed")

    def report(self, head, *parts):
        """Send the host a frame: a head as JSON, and bytes."""
        raw = json.dumps(head).encode()
        size = sum(len(part) for part in parts)
        frame = b"".join((HEAD.pack(len(raw), size), raw, *parts))
        while frame:
            frame = frame[os.write(1, frame) :]

    # -- the templates --------------------------------------------------------------------------

    def template(self, kind):
        """Start the template of a kind (hash seed, a letter of PRELOADED before it) or find it."""
        if kind not in self.templates:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            start_template(theirs, self.tier, kind, self.options)
            theirs.close()
            self.templates[kind] = ours
            self.kinds[ours.fileno()] = kind
            self.register(ours.fileno(), select.EPOLLIN)
        return self.templates[kind]

    def hear(self, fd):
        """Take in one message of a template."""
        kind = self.kinds[fd]
        raw = self.templates[kind].recv(65536)
        if not raw:
            self.report({"event": "broken", "detail": f"template {kind} died"})
            os._exit(1)
        message = json.loads(raw)
        event, child = message["event"], self.children.get(message.get("id"))
        if event == "ready" and kind == "0":
            self.report({"event": "ready", "kernel": os.uname().release, "python": sys.version})
        elif event == "broken":
            self.report(message)
            os._exit(1)
        elif child and event == "started":
            child.pid, child.base_bytes = message["pid"], message["resident"]
            if child.reason:  # closed before it began
                self.tell(child, {"do": "kill", "id": child.number})
        elif child and event == "ended":
            child.ended = message
            self.settle(child)
        elif child and event == "failed":
            child.reason, child.ended = "infra", {"detail": message["detail"]}
            self.settle(child)

    def tell(self, child, message, descriptors=()):
        """Send a program's template a message, with descriptors."""
        raw = json.dumps(message).encode()
        socket.send_fds(self.templates[child.kind], [raw], descriptors)

    def kill(self, child, reason):
        """End a program for a reason; the first one stands."""
        if child.reason is None:
            child.reason = reason
            child.deadline = None
            if child.pid:
                self.tell(child, {"do": "kill", "id": child.number})

    # -- the programs ---------------------------------------------------------------------------

    def spawn(self, order, payload):
        """Start a program from its template."""
        child = Child(order, payload, self)
        child.uid = self.next_uid
        self.next_uid += 1
        self.children[child.number] = child
        self.template(child.kind)
        message = {"do": "spawn", "id": child.number, "uid": child.uid, "mode": order["mode"]}
        message["limits"] = order["limits"]
        self.tell(child, message, child.descriptors)
        for fd in child.descriptors:
            os.close(fd)

    def own(self, fd, child, handler, events):
        """Call a handler when a descriptor of a program has news."""
        os.set_blocking(fd, False)
        self.owners[fd] = (child, handler)
        self.register(fd, events)

    def disown(self, fd):
        """Close a descriptor, if it is still owned."""
        if self.owners.pop(fd, None):
            self.poll.unregister(fd)
            os.close(fd)

    def register(self, fd, events):
        """Listen to a descriptor."""
        self.poll.register(fd, events)

    def settle(self, child):
        """Report a finished batch, or a finished program."""
        if child.number not in self.children:
            return
        if child.ended is not None:
            self.finish(child)
        elif child.reason is None and child.overflowed():
            self.kill(child, "output_limit")
        elif child.reason is None and child.unasked:
            self.kill(child, "unasked")
        elif child.complete() and child.reason is None:
            if child.mode == "call":
                self.kill(child, "complete")
            else:
                self.watch.charge(child)
                head, parts = child.take_batch()
                self.report(head, *parts)

    def finish(self, child):
        """Report the end of a program and forget it."""
        child.drain()
        if child.reason is None and child.overflowed():
            child.reason = "output_limit"
        child.close()
        del self.children[child.number]
        head, parts = child.take_end()
        self.report(head, *parts)

    def check_clocks(self):
        """End programs that are over their time or their share of memory and processor."""
        now = time.monotonic()
        for child in list(self.children.values()):
            if child.deadline and now >= child.deadline:
                self.kill(child, "timeout")
        for child, reason in self.watch.offenders(self.children, now):
            self.kill(child, reason)


def start_template(link, tier, kind, options):
    """Start a template process that is led over a socket, with a plain environment."""
    here = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-s", "-S", "-P", "-B", "-X", "utf8"]
    command += [os.path.join(here, "template.py"), tier, *options]
    if kind[0] == "l":
        command += [o.removeprefix("preload=") for o in options if o.startswith("preload=")]
    command += PRELOADED.get(kind[0], ())
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
        "PYTHONHASHSEED": kind[-1],
        "MALLOC_ARENA_MAX": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "NUMEXPR_NUM_THREADS": "1",
    }
    null = os.open("/dev/null", os.O_RDWR)
    moves = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, null, 1)]
    moves += [(os.POSIX_SPAWN_DUP2, link.fileno(), 3)]
    os.posix_spawn(sys.executable, command, environment, file_actions=moves)
    os.close(null)


def main():
    """Serve with the tier and options of the command line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the host's to handle
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    tier, *options = sys.argv[1:]
    Dispatcher(tier, options).run()


if __name__ == "__main__":
    main()
