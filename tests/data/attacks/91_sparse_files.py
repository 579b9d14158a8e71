# expect: contained|crash
# mode: run
# attack: files larger than the file system, mapped and written through the map
import mmap, os
n = 0
for i in range(20):
    f = os.open(f"/tmp/{i}", os.O_RDWR | os.O_CREAT)
    try: os.ftruncate(f, 60 << 20)
    except OSError: break
    m = mmap.mmap(f, 60 << 20); os.close(f)
    for at in range(0, 60 << 20, 4096): m[at] = 1; n += 1
print("LEAK" if n > 300 << 8 else "clean", n >> 8, "MiB")
