# expect: contained
# mode: run
# attack: a lock for every second byte: each is memory in the kernel
import fcntl, os, struct, time
f = os.open("/tmp/l", os.O_RDWR | os.O_CREAT); n = 0; start = time.time()
while time.time() - start < 1:
    try: fcntl.fcntl(f, fcntl.F_SETLK, struct.pack("hhqqi", 1, 0, 2 * n, 1, 0)); n += 1
    except OSError: break
print("locks", n)
