# expect: timeout
# mode: run
# attack: stop every clock the interpreter has, then loop until one of them moves
import time, signal
time.time = time.monotonic = time.perf_counter = time.process_time = lambda: 0.0
try: signal.setitimer(signal.ITIMER_REAL, 0); signal.setitimer(signal.ITIMER_PROF, 0)
except Exception: pass
while time.time() < 1: pass
