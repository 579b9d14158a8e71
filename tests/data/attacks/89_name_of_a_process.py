# expect: memory_limit
# mode: run
# attack: names that break who reads the table of processes, then memory in children with such names
import ctypes, os, time
l = ctypes.CDLL(None)
for i in range(6):
    if os.fork() == 0:
        l.prctl(15, [b") R 0 0 0", b"\n) S 1\n", b"(((", b"))) 0", b"\xff\xfe", b""][i], 0, 0, 0)
        keep = bytearray(b"x" * (100 << 20)); time.sleep(30); os._exit(0)
time.sleep(9); print("LEAK")
