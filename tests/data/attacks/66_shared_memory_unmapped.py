# expect: contained
# mode: run
# attack: shared anonymous memory outlives its unmapping: touch, unmap all but a page, again
import ctypes, time
l = ctypes.CDLL(None, use_errno=True); l.mmap.restype = ctypes.c_void_p
l.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
l.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
held, size, start = 0, 64 << 20, time.time()
for flags, path in ((0x21, None), (0x01, "/dev/zero")):
    while held < 3 << 30 and time.time() - start < 1.5:
        fd = -1
        try: fd = open(path, "r+b", buffering=0).fileno() if path else -1
        except OSError: break
        at = l.mmap(None, size, 3, flags, fd, 0)
        if at in (None, 2**64 - 1): break
        ctypes.memset(at, 1, size); held += size
        l.munmap(at + 4096, size - 4096)
print("LEAK" if held > 512 << 20 else "clean", held >> 20, "MiB")
