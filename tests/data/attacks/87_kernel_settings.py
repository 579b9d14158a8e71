# expect: contained
# mode: run
# attack: settings of the kernel and of processes under /proc, and terminals
import os, pty
hits = []
def write(p, text):
    f = os.open(p, os.O_WRONLY)
    try: os.write(f, text.encode())
    finally: os.close(f)
for top, _, files in os.walk("/proc/sys"):
    for f in files:
        p = f"{top}/{f}"
        try: write(p, open(p).read()); hits.append(p)
        except (OSError, UnicodeError): pass
for p, text in (("/proc/self/uid_map", "0 0 1"), ("/proc/sysrq-trigger", "h"), ("/dev/kmsg", "x"), ("/dev/mem", "x")):
    try: write(p, text); hits.append(p)
    except OSError: pass
try: m, s = pty.openpty(); import fcntl, termios; fcntl.ioctl(s, termios.TIOCSTI, b"x"); 
except OSError: pass
print("LEAK" if hits else "clean", hits)
