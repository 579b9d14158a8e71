# expect: contained
# mode: run
# attack: memory of a file system that its size does not count: attributes of files
import os, time
total, i, start = 0, 0, time.time()
try:
    while time.time() - start < 1.5:
        p = f"/tmp/{i}"; open(p, "w").close(); i += 1
        try:
            for k in range(64): os.setxattr(p, f"user.a{k}", b"x" * 60000); total += 60000
        except OSError: 
            if not total: break
except OSError as e: print(e)
print("LEAK" if total > 256 << 20 else "clean", total >> 20, "MiB")
