# expect: contained
# mode: run
# attack: sockets that hold only each other: what counts references never frees them
import os, socket, time
n, start = 0, time.time()
try:
    while time.time() - start < 1.5:
        a, b = socket.socketpair(); a.setblocking(False)
        socket.send_fds(a, [b"x"], [a.fileno(), b.fileno()])
        try:
            while True: n += a.send(b"x" * 65536)
        except OSError: pass
        a.close(); b.close()
except OSError as e: print(e)
print("LEAK" if n > 512 << 20 else "clean", n >> 20, "MiB")
