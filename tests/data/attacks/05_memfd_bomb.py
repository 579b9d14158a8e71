# expect: contained
# mode: run
# attack: memory that no process maps: memfd, System V shared memory, message queues
import ctypes, os
l = ctypes.CDLL(None, use_errno=True); hits = []
try:
    for i in range(64):
        f = os.memfd_create(f"m{i}"); hits.append("memfd")
        for _ in range(32): os.write(f, b"x" * (1 << 20))
except OSError: pass
if l.shmget(1, 1 << 20, 0o1600) >= 0: hits.append("shm")
if l.mq_open(b"/q", 0o102, 0o600, None) >= 0: hits.append("mq")
print("LEAK" if hits else "clean", hits)
