# expect: contained
# mode: run
# attack: memory in the kernel: socket pairs with the largest buffers, filled both ways
import os, socket, time
for _ in range(12):
    try:
        if os.fork() == 0: break
    except OSError: break
total, keep = 0, []
try:
    while True:
        pair = socket.socketpair(); keep.append(pair)
        for s in pair:
            s.setblocking(False)
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                try: s.setsockopt(socket.SOL_SOCKET, option, 1 << 24)
                except OSError: pass
            try:
                while True: total += s.send(b"x" * 65536)
            except OSError: pass
except OSError: pass
os.close(0); open(f"/tmp/{os.getpid()}", "w").write(str(total)); time.sleep(1)
if os.getpid() == 1:
    held = sum(int(open(f"/tmp/{p}").read() or 0) for p in os.listdir("/tmp"))
    print("LEAK" if held > 512 << 20 else "clean", held >> 20, "MiB")
