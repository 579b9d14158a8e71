# expect: contained
# mode: run
# attack: take the processor from the others: real-time classes, priority (gVisor grants it and gives nothing), locked memory
import ctypes, os
l = ctypes.CDLL(None); hits = []
for name, call in (("nice", lambda: os.nice(-20)), ("fifo", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))), ("rr", lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))), ("all", lambda: os.setpriority(os.PRIO_USER, 0, -20))):
    try: call()
    except OSError: continue
    if (os.getpriority(os.PRIO_PROCESS, 0) < 0 and os.uname().release != "4.4.0") or os.sched_getscheduler(0) != os.SCHED_OTHER: hits.append(name)
if l.syscall(251, 1, 0, 1 << 13) == 0: hits.append("io")
if l.mlockall(3) == 0:
    try: keep = bytearray(200 << 20); hits += ["lock"] if int(next(r for r in open("/proc/self/status") if r.startswith("VmLck")).split()[1]) > 100 << 10 else []
    except (MemoryError, StopIteration): pass
print("LEAK" if hits else "clean", hits)
