# expect: contained|memory_limit
# mode: run
# attack: connections that are filled and closed before anybody accepts them: no descriptor is left
import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(4096); total, start = 0, time.time()
try:
    while time.time() - start < 1.5:
        c = socket.socket(); c.settimeout(0.2); c.connect(s.getsockname()); c.setblocking(False)
        try:
            while True: total += c.send(b"x" * 65536)
        except OSError: pass
        c.close()
except OSError as e: print(e)
print("LEAK" if total > 512 << 20 else "clean", total >> 20, "MiB")
