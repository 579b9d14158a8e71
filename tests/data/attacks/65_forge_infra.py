# expect: runtime_error
# mode: run
# attack: look like a process that could not be confined, which would be scored as nobody's fault
import os
os.write(2, b"cannot confine: OSError: mount proc on /proc: Operation not permitted")
for fd in range(3, 10):
    try: os.write(fd, b".")
    except OSError: pass
os._exit(87)
