# expect: contained|crash|runtime_error|timeout|memory_limit|output_limit
# mode: run
# attack: system calls at random, with arguments that kernels trip over
import ctypes, os, random, signal, time
l = ctypes.CDLL(None); l.syscall.argtypes = [ctypes.c_ulong] * 7
odd = [0, 1, 2, 3, 4, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 4096, 0x7fff0000]
avoid = {0, 7, 15, 34, 35, 56, 57, 58, 59, 60, 61, 128, 130, 202, 231, 232, 247, 270, 271, 281, 322, 435, 441, 449}
start, seed = time.time(), 0
while time.time() - start < 1.5:
    seed += 1
    if os.fork() == 0:
        signal.alarm(1); r = random.Random(seed); b = ctypes.create_string_buffer(os.urandom(8192))
        odd += [ctypes.addressof(b), ctypes.addressof(b) + 1]
        fds = [os.open("/tmp/x", os.O_RDWR | os.O_CREAT), *os.pipe()]
        for _ in range(400):
            n = r.randrange(470)
            if n not in avoid: l.syscall(n, r.choice(odd + fds), *[r.choice(odd + fds) for _ in range(5)])
        os._exit(0)
    os.wait()
print("rounds", seed)
