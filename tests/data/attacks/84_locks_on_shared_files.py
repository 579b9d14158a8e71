# expect: contained
# mode: run
# attack: lock, lease and watch the files that all programs read, and stay
import fcntl, glob, os, signal
hits = []
for p in glob.glob("/usr/lib/python3*/*.py")[:40] + ["/opt/guest/program.py", "/etc/passwd"]:
    try: f = os.open(p, os.O_RDONLY)
    except OSError: continue
    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for name, call in (("write lock", lambda: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)), ("lease", lambda: fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK))):
        try: call(); hits.append((name, p))
        except OSError: pass
print("LEAK" if hits else "clean", hits)
