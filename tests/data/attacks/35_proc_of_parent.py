# expect: contained
# mode: run
# attack: environment, memory and descriptors of the processes above
import os
hits = []; me = str(os.getpid())
for p in os.listdir("/proc"):
    if not p.isdigit() or p == me: continue
    hits.append(p)
for p in ("1", str(os.getppid())):
    for f in ("environ", "maps", "mem"):
        try: d = open(f"/proc/{p}/{f}", "rb").read(64)
        except OSError: continue
        if p not in ("1", me): hits.append((p, f))
print("LEAK" if hits or os.getpid() != 1 else "clean", hits)
