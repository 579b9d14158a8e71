# expect: contained
# mode: run
# attack: full pipes sent through a socket to nobody: no process holds them, no limit counts them
import os, socket, time
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.setblocking(False)
total, start = 0, time.time()
try:
    while time.time() - start < 1.5:
        r, w = os.pipe(); os.set_blocking(w, False)
        try:
            while True: total += os.write(w, b"x" * 65536)
        except OSError: pass
        try: socket.send_fds(a, [b"x"], [r, w])
        except BlockingIOError:
            a, b2 = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.setblocking(False)
            try: socket.send_fds(a, [b"x"], [b.fileno(), b2.fileno()])
            except OSError: break
            b = b2
        os.close(r); os.close(w)
except OSError as e: print(e)
print("LEAK" if total > 512 << 20 else "clean", total >> 20, "MiB")
