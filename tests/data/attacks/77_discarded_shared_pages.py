# expect: contained
# mode: run
# attack: shared pages that are dropped from the tables but not from memory, so that no process counts them
import mmap, os, time
kept, n = [], 0
try:
    for i in range(14):
        m = mmap.mmap(-1, 128 << 20); kept.append(m)
        for at in range(0, len(m), 8 << 20):
            m[at:at + (8 << 20)] = b"x" * (8 << 20); m.madvise(mmap.MADV_DONTNEED, at, 8 << 20); n += 8
except (OSError, MemoryError, ValueError) as e: print(type(e))
print("LEAK" if n > 512 else "clean", n)
