# expect: contained
# mode: run
# not-on: ptrace
# attack: enter the kernel of the host as 32-bit code does: gVisor's next use of that thread on ptrace fails
import ctypes, mmap, os, platform
m = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7); m[:3] = b"\x0f\x34\xc3"
for _ in range(12 if platform.machine() == "x86_64" else 0):
    if os.fork() == 0: ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(m)))(); os._exit(0)
    os.wait()
print("done")
