# expect: contained
# mode: run
# attack: memory in the network of the box: loopback connections whose buffers grow and are never read
import os, socket, time
for _ in range(12):
    try:
        if os.fork() == 0: break
    except OSError: break
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(100); total, keep, start = 0, [s], time.time()
try:
    while time.time() - start < 2:
        c = socket.socket(); c.connect(s.getsockname()); d, _ = s.accept(); keep += [c, d]
        for e in (c, d):
            e.setblocking(False)
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                try: e.setsockopt(socket.SOL_SOCKET, option, 1 << 24)
                except OSError: pass
        for e in (c, d):
            try:
                while True: total += e.send(b"x" * 65536)
            except OSError: pass
except OSError: pass
os.close(0); open(f"/tmp/{os.getpid()}", "w").write(str(total)); time.sleep(1)
if os.getpid() == 1:
    held = sum(int(open(f"/tmp/{p}").read() or 0) for p in os.listdir("/tmp"))
    print("LEAK" if held > 512 << 20 else "clean", held >> 20, "MiB")
