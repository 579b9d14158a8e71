# expect: memory_limit
# mode: run
# attack: hide from who counts by the owner of /proc files: not dumpable, then memory in children
import ctypes, os, time
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
for _ in range(6):
    if os.fork() == 0:
        keep = bytearray(120 << 20)
        for i in range(0, len(keep), 4096): keep[i] = 1
        time.sleep(30); os._exit(0)
time.sleep(8); print("LEAK")
