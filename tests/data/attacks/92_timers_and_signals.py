# expect: timeout
# mode: run
# attack: timers that never stop interrupting, and every signal that can be caught
import itertools, os, signal
for n in range(1, 65):
    try: signal.signal(n, lambda *a: None)
    except (OSError, ValueError): pass
for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF): signal.setitimer(which, 1e-5, 1e-5)
for i in itertools.count(): os.kill(os.getpid(), 34 + i % 30)
