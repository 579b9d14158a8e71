"""Confine one program: own namespaces and file systems, own user, limits, a system-call filter.

Used by the template, as root of the box, in the child that will become the program. Order matters:
namespaces by `clone_isolated`, then `fresh_mounts`, `set_limits`, `drop_privileges`,
`filter_calls`.
"""

import ctypes
import fcntl
import math
import os
import platform
import resource
import signal
import socket
import struct

LIBC = ctypes.PyDLL(None, use_errno=True)  # PyDLL keeps the interpreter lock over clone()
LIBC.syscall.restype = ctypes.c_long
NEW_MOUNTS, NEW_IPC, NEW_USER, NEW_PIDS, NEW_NET = (
    0x20000,
    0x8000000,
    0x10000000,
    0x20000000,
    1 << 30,
)
NEW_UTS, NEW_CGROUP = 0x4000000, 0x2000000
NOSUID, NODEV, NOEXEC, REC, PRIVATE = 2, 4, 8, 16384, 1 << 18
FILE_BYTES = 64 << 20
OPEN_FILES = 64  # of one process: each may be a buffer in the kernel, which no limit counts
TCP_BYTES = b"4096 16384 65536"  # least, first and most of a connection's buffers, each way
INODES = 32768  # of /tmp and /dev/shm, where the kernel can bound them

# Denied calls by name. Among them what holds memory in the kernel that no limit counts: descriptors
# sent to nobody, attributes of files, and connections, which keep megabytes in gVisor when closed.
# Below, numbers per machine in the same order: architecture, clone, denied, GUARDED without clone.
DENIED = (
    "memfd_create shmget semget msgget mq_open unshare setns mount umount2 pivot_root chroot "
    "ptrace process_vm_readv process_vm_writev bpf perf_event_open keyctl add_key request_key "
    "userfaultfd io_uring_setup kexec_load init_module finit_module delete_module swapon "
    "swapoff reboot settimeofday clock_settime adjtimex clock_adjtime sethostname "
    "setdomainname acct quotactl open_by_handle_at name_to_handle_at fanotify_init "
    "pidfd_getfd pidfd_open move_mount fsopen fsmount open_tree mount_setattr personality "
    "kcmp syslog memfd_secret sendmsg sendmmsg "
    "setxattr lsetxattr fsetxattr connect"
).split()
NUMBERS = {
    "x86_64": (
        0xC000003E,
        56,
        "319 29 64 68 240 272 308 165 166 155 161 101 310 311 321 298 250 248 249 323 425 246 175 "
        "313 176 167 168 169 164 227 159 305 170 171 163 179 304 303 300 438 434 429 430 432 428 "
        "442 135 312 103 447 46 307 188 189 190 42",
        "9 72 54 160 302",
    ),
    "aarch64": (
        0xC00000B7,
        220,
        "279 194 190 186 180 97 268 40 39 41 51 117 270 271 280 241 219 217 218 282 425 104 105 "
        "273 106 224 225 142 170 112 171 266 161 162 89 60 265 264 262 438 434 429 430 432 428 442 "
        "92 272 116 447 211 269 5 6 7 203",
        "222 25 208 164 261",
    ),
}
# Calls refused for some arguments: (argument, test, values), each holding for one of its values.
# Namespaces; memory that stays when it is unmapped; larger buffers in the kernel; dumps of memory,
# which a handler of the host may keep.
BITS, EQUAL = 0x45, 0x15
NAMESPACES = NEW_MOUNTS | NEW_IPC | NEW_USER | NEW_PIDS | NEW_NET | NEW_UTS | NEW_CGROUP
GUARDED = {
    "clone": ((0, BITS, (NAMESPACES,)),),
    "mmap": ((3, BITS, (0x20,)), (3, BITS, (0x01,))),  # MAP_ANONYMOUS, MAP_SHARED
    "fcntl": ((1, EQUAL, (1031,)),),  # F_SETPIPE_SZ
    "setsockopt": ((1, EQUAL, (1,)), (2, EQUAL, (7, 8))),  # SO_SNDBUF, SO_RCVBUF
    "setrlimit": ((0, EQUAL, (resource.RLIMIT_CORE,)),),
    "prlimit64": ((1, EQUAL, (resource.RLIMIT_CORE,)),),
}
CLONE3 = 435  # on every machine; its flags lie in memory, so it is refused and libc falls back
EPERM, ENOSYS = 1, 38
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


def clone_isolated():
    """Fork into new pid, mount, ipc and network namespaces; 0 in the child, else its pid."""
    flags = NEW_PIDS | NEW_MOUNTS | NEW_IPC | NEW_NET | signal.SIGCHLD
    number = NUMBERS[platform.machine()][1]
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = LIBC.syscall(number, flags, 0, 0, 0, 0)
    error = ctypes.get_errno()
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(error, f"clone with new namespaces: {os.strerror(error)}")
    return pid


def fresh_mounts(uid, on_linux=False):
    """Mount an empty /tmp and /dev/shm, owned by `uid`, and the /proc of the new pid namespace."""
    mount(b"none", b"/", b"", REC | PRIVATE, b"")
    owned = b"mode=1777,uid=%d,gid=%d," % (uid, uid)
    owned += b"nr_inodes=%d,size=" % INODES if on_linux else b"size="
    mount(b"tmpfs", b"/tmp", b"tmpfs", NOSUID | NODEV, owned + b"64m")
    mount(b"tmpfs", b"/dev/shm", b"tmpfs", NOSUID | NODEV, owned + b"16m")
    mount(b"proc", b"/proc", b"proc", NOSUID | NODEV | NOEXEC, b"")
    os.chdir("/tmp")


def mount(source, target, kind, flags, options):
    """Mount, or raise the OSError of it."""
    if LIBC.mount(source, target, kind, flags, options) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"mount {kind.decode()} on {target.decode()}: {os.strerror(error)}")


def small_buffers():
    """Bound what connections within the new network namespace hold in the kernel of Linux, where
    sending can connect."""
    for name in ("tcp_rmem", "tcp_wmem"):
        descriptor = os.open(f"/proc/sys/net/ipv4/{name}", os.O_WRONLY)
        os.write(descriptor, TCP_BYTES)
        os.close(descriptor)


def loopback_up():
    """Bring up the loopback of a new network namespace, as gVisor does by itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING))


def one_processor(number):
    """Let a program see and use one processor: numerical libraries count them by this."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[number % len(allowed)]})


def set_limits(limits, own_user, limits_life):
    """Set the kernel's limits.

    That on processes only where the user id is the program's own; that on processor time only where
    it holds for the whole life of the program, not for a batch of a session.
    """
    address_space = int(limits["memory_bytes"]) + limits["base_bytes"]
    limit(resource.RLIMIT_AS, address_space)
    limit(resource.RLIMIT_CORE, 1)  # Linux: 0 would still feed a handler of the host, 1 does not
    limit(resource.RLIMIT_FSIZE, FILE_BYTES)
    limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    if limits_life:
        seconds = max(1, math.ceil(limits["cpu_seconds"]))
        limit(resource.RLIMIT_CPU, seconds, seconds + 1)  # SIGXCPU first, so that the cause is told
    if own_user:
        limit(resource.RLIMIT_NPROC, int(limits["processes"]))


def limit(which, soft, hard=None):
    """Set a resource limit, as far as the hard limit allows."""
    _, ceiling = resource.getrlimit(which)
    values = (soft, soft if hard is None else hard)
    if ceiling != resource.RLIM_INFINITY:
        values = tuple(min(value, ceiling) for value in values)
    resource.setrlimit(which, values)


def drop_privileges(uid):
    """Become a user without rights, to whom its own /proc files still belong."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if LIBC.prctl(4, 1, 0, 0, 0) != 0:  # PR_SET_DUMPABLE: else Linux gives its /proc files to root
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE) failed")


def numbers(machine):
    """Give the architecture of a machine, the denied calls, and the guarded ones in order."""
    arch, clone, denied, guarded = NUMBERS[machine]
    return arch, [int(n) for n in denied.split()], [clone, *map(int, guarded.split())]


class Filter:
    """The system-call filter as the kernel takes it, made once, before any fork."""

    def __init__(self):
        code = filter_program(*numbers(platform.machine()))
        raw = b"".join(struct.pack("HBBI", *line) for line in code)
        self.code = ctypes.create_string_buffer(raw, len(raw))
        address = ctypes.addressof(self.code)
        self.head = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), address))
        self.pointer = ctypes.c_void_p(ctypes.addressof(self.head))


def filter_calls(calls):
    """Give up new privileges for good and refuse the calls in DENIED with EPERM."""
    if LIBC.prctl(38, 1, 0, 0, 0) != 0:  # PR_SET_NO_NEW_PRIVS
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS) failed")
    if LIBC.prctl(22, 2, calls.pointer, 0, 0) != 0:  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP) failed")


def filter_program(arch, denied, guarded):
    """Write the filter as (code, jump if true, jump if false, operand) lines of classic BPF.

    Short, since gVisor compiles it anew for each program: one line for each denied call, with a
    jump to the common answers at the end.
    """
    load, at_least, answer = 0x20, 0x35, 0x06
    answers = allow, refuse, missing, kill = 0x7FFF0000, 0x50000 | EPERM, 0x50000 | ENOSYS, 1 << 31
    guards = list(zip(guarded, GUARDED.values(), strict=True))
    sizes = [1 + sum(1 + len(values) for _, _, values in steps) for _, steps in guards]
    count = 5 + len(denied) + sum(sizes)  # lines before the answers; after the last comes `allow`

    def to(result, line):
        return count + answers.index(result) - line - 1

    lines = [(load, 0, 0, 4), (EQUAL, 0, to(kill, 1), arch), (load, 0, 0, 0)]
    lines += [(at_least, to(refuse, 3), 0, 0x40000000)]  # the x32 numbers
    lines += [(EQUAL, to(missing, 4), 0, CLONE3)]
    for number in denied:
        lines += [(EQUAL, to(refuse, len(lines)), 0, number)]
    for (number, steps), size in zip(guards, sizes, strict=True):
        lines += [(EQUAL, 0, size - 1, number)]
        for step, (argument, test, values) in enumerate(steps):
            lines += [(load, 0, 0, 16 + 8 * argument)]
            for place, value in enumerate(values):
                more = len(values) - place - 1
                holds = to(refuse, len(lines)) if step == len(steps) - 1 else more
                lines += [(test, holds, 0 if more else to(allow, len(lines)), value)]
    return lines + [(answer, 0, 0, result) for result in answers]
