# expect: timeout
# mode: run
# attack: every child stays under RLIMIT_CPU, a fresh one follows
import os
while True:
    p = os.fork()
    if p == 0:
        for _ in range(10**6): pass
        os._exit(0)
    os.waitpid(p, 0)
