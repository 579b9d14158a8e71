# expect: contained
# mode: run
# attack: polls that wait for each other, watches without readers, and events without end
import ctypes, os, select, time
l = ctypes.CDLL(None); e = [select.epoll() for _ in range(30)]
for a, b in zip(e, e[1:]):
    try: a.register(b.fileno(), 1)
    except OSError: pass
try: e[-1].register(e[0].fileno(), 1)
except OSError: pass
w = l.inotify_init1(0); l.inotify_add_watch(w, b"/tmp", 0xfff)
start = time.time(); n = 0
while time.time() - start < 1: open(f"/tmp/{n % 7}", "w").close(); os.rename(f"/tmp/{n % 7}", f"/tmp/y{n % 5}"); n += 1
e[0].poll(0); print("events", n)
