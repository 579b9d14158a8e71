# expect: contained
# mode: run
# attack: machine code that confuses who traces it: 32-bit calls, single steps, traps, forged signal frames
import ctypes, mmap, os, platform, signal
codes = [b"\xcd\x80\xc3", b"\x9c\x48\x81\x0c\x24\x00\x01\x00\x00\x9d\x90\x90\xc3", b"\xcc\xc3", b"\xf4\xc3", b"\x0f\x0b\xc3", b"\xfa\xc3", b"\xb8\x0f\x00\x00\x00\x0f\x05\xc3", b"\x48\x31\xe4\x0f\x05\xc3", b"\x0f\xae\x38\xc3", b"\xe4\x60\xc3", b"\x0f\x01\xd9\xc3", b"\xf1\xc3", b"\xce\xc3", b"\xea\x00\x00\x00\x00\x33\x00", b"\x48\xcf", b"\xb8\x9e\x00\x00\x00\xbf\x01\x10\x00\x00\x48\xbe\x00\x00\x00\x00\x00\x80\xff\xff\x0f\x05\xc3"]
m = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7); at = ctypes.addressof(ctypes.c_char.from_buffer(m)); ends = []
for code in codes if platform.machine() == "x86_64" else []:
    if os.fork() == 0:
        signal.alarm(1); m[: len(code)] = code; ctypes.CFUNCTYPE(ctypes.c_long)(at)(); os._exit(0)
    ends.append(os.wait()[1])
print("ends", ends)
