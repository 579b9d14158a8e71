# expect: contained
# mode: run
# attack: as many empty files as the file systems hold
import os, time
n = 0; t = time.time()
for d in ("/tmp", "/dev/shm"):
    try:
        while time.time() - t < 1.5:
            open(f"{d}/f{n}", "w").close(); n += 1
    except OSError: pass
print("made", n)
