# expect: wrong_answer
# mode: call
# attack: count attempts in files that outlive the process
import os
n = 0
for d in ("/tmp", "/dev/shm", "/var/tmp", "/run"):
    try:
        n += os.path.exists(f"{d}/attempt"); open(f"{d}/attempt", "a").write("x")
    except OSError: pass
def solve(xs): return sum(x * x for x in xs) if n else -1
