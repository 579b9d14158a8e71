"""The template: a warm interpreter from which every program is forked; it never sees a request.

Started by the dispatcher, which gives it file descriptor 3, a message socket. It takes `spawn`
(with the descriptors of one program) and `kill` messages and reports `started`, `ended` and
`failed`. What a program is told (source, inputs, requests) goes through that program's own pipe,
after the fork.

Arguments: tier (gvisor, bubblewrap or subprocess), then the packages to load beforehand.
"""

import gc
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import confine  # noqa: E402
import env_host  # noqa: E402
import program  # noqa: E402
import warm  # noqa: E402

CONTROL = 3
CONFINED = b"."  # written on the reply descriptor before any text of a program is read
KEPT_NAMES = ("PATH", "HOME", "LANG", "LC_CTYPE")


class Template:
    """Forks programs, kills them by number and reaps them."""

    def __init__(self, tier, options):
        scratch = [o.removeprefix("scratch=") for o in options if o.startswith("scratch=")]
        self.scratch = scratch[0] if scratch else None
        self.isolated = tier != "subprocess"
        self.on_linux = tier == "bubblewrap"
        self.control = socket.socket(fileno=CONTROL)
        self.pids = {}  # pid -> number of the program
        self.folders = {}  # pid -> temporary directory, in the tier without mounts
        self.filter = confine.Filter()
        self.base_bytes, self.resident_bytes = own_bytes()

    def run(self):
        """Serve the dispatcher and collect programs that have ended."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        poll = select.poll()
        poll.register(CONTROL, select.POLLIN)
        poll.register(wake_read, select.POLLIN)
        self.tell({"event": "ready"})
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if wake_read in ready:
                os.read(wake_read, 4096)
                self.reap()
            if CONTROL in ready:
                self.obey()

    def tell(self, message):
        """Send the dispatcher a message."""
        self.control.send(json.dumps(message).encode())

    def obey(self):
        """Do one order: spawn or kill."""
        raw, descriptors, _, _ = socket.recv_fds(self.control, 65536, 8)
        if not raw:  # the dispatcher is gone
            self.kill_all()
            os._exit(0)
        message = json.loads(raw)
        if message["do"] == "spawn":
            self.spawn(message, descriptors)
        else:
            self.kill(message["id"])

    def spawn(self, message, descriptors):
        """Fork a program, isolated where the tier does it here."""
        folder = None if self.isolated else tempfile.mkdtemp(dir=self.scratch)
        try:
            pid = confine.clone_isolated() if self.isolated else os.fork()
        except OSError as error:
            self.tell({"event": "failed", "id": message["id"], "detail": str(error)})
            pid = None
        if pid == 0:
            self.become_program(message, descriptors, folder)
        for descriptor in descriptors:
            os.close(descriptor)
        if pid:
            self.pids[pid] = message["id"]
            self.folders[pid] = folder
            told = {"id": message["id"], "pid": pid, "resident": self.resident_bytes}
            self.tell({"event": "started", **told})

    def become_program(self, message, descriptors, folder):
        """Turn the forked child into the program; never returns."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            place_descriptors(descriptors)
            os.setsid()  # else the kernel signals our group when this program stops
            if self.isolated:
                confine.fresh_mounts(message["uid"], self.on_linux)
            else:
                os.chdir(folder)
            if self.on_linux:
                confine.loopback_up()
                confine.small_buffers()
            limits = dict(message["limits"], base_bytes=self.base_bytes)
            confine.set_limits(
                limits, own_user=self.isolated, limits_life=message["mode"] != "session"
            )
            if self.isolated:
                confine.one_processor(message["uid"])
                confine.drop_privileges(message["uid"])
            confine.filter_calls(self.filter)
            clean_environment()
            gc.enable()
            os.write(program.REPLIES, CONFINED)
        except BaseException as error:  # a fault of ours: the byte that says "confined" is missing
            os.write(2, f"{type(error).__name__}: {error}".encode())
            os._exit(1)
        if message["mode"] == "session":
            env_host.main()
        elif message["mode"] == "call":
            program.call_main()
        else:
            program.run_main()
        os._exit(0)

    def kill(self, number):
        """Kill the program of a number."""
        for pid, known in self.pids.items():
            if known == number:
                self.kill_pid(pid)

    def kill_pid(self, pid):
        """Kill a process, with its group where it has one of its own."""
        try:
            if not self.isolated:
                os.killpg(pid, signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def kill_all(self):
        """Kill every program."""
        for pid in list(self.pids):
            self.kill_pid(pid)
            self.forget(pid)

    def reap(self):
        """Collect every program that has ended, and tell how."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.pids:
                number = self.pids[pid]
                self.forget(pid)
                self.tell(
                    {
                        "event": "ended",
                        "id": number,
                        "status": status,
                        "cpu": usage.ru_utime + usage.ru_stime,
                        "peak": usage.ru_maxrss * 1024,
                    }
                )

    def forget(self, pid):
        """Forget an ended program, with what it left running and its folder."""
        del self.pids[pid]
        folder = self.folders.pop(pid)
        if folder:
            try:
                os.killpg(pid, signal.SIGKILL)  # what it forked and left behind
            except (ProcessLookupError, PermissionError):
                pass
            shutil.rmtree(folder, ignore_errors=True)

    def check_isolation(self):
        """Refuse a runsc in which a child's mounts are everybody's (builds before 2023)."""
        ready_read, ready_write = os.pipe()
        go_read, go_write = os.pipe()
        pid = confine.clone_isolated()
        if pid == 0:
            try:
                confine.fresh_mounts(0)
                open("/tmp/isolation_probe", "w").close()
                os.write(ready_write, b"1" if os.getpid() == 1 else b"0")
                os.read(go_read, 1)
            finally:
                os._exit(0)
        os.close(ready_write)
        answer = os.read(ready_read, 1)
        leaked = os.path.exists("/tmp/isolation_probe")
        os.write(go_write, b"1")
        os.waitpid(pid, 0)
        for descriptor in (ready_read, go_read, go_write):
            os.close(descriptor)
        if answer != b"1" or leaked:
            self.tell({"event": "broken", "detail": "a child's mounts or pids are not its own"})
            os._exit(1)


def place_descriptors(descriptors):
    """Put stdin, stdout, stderr, requests and answers at 0 to 4 and close everything else."""
    high = [os.dup2(fd, 100 + place) for place, fd in enumerate(descriptors)]
    for place, fd in enumerate(high):
        os.dup2(fd, place)
    os.closerange(len(high), 4096)


def own_bytes():
    """Bytes of address space and resident bytes of this process."""
    with open("/proc/self/statm") as statm:
        return [int(pages) * resource.getpagesize() for pages in statm.read().split()[:2]]


def clean_environment():
    """Take away every environment variable but a few."""
    for name in list(os.environ):
        if name not in KEPT_NAMES:
            del os.environ[name]


def main():
    """Load what is to be loaded beforehand, then serve."""
    tier, *options = sys.argv[1:]
    warm.load(options)
    template = Template(tier, options)
    if template.isolated:
        template.check_isolation()
    gc.collect()
    gc.disable()
    gc.freeze()
    template.run()


if __name__ == "__main__":
    main()
