# expect: contained
# mode: run
# attack: unshare, setns, mount, chroot, pivot_root, become root
import ctypes, os
l = ctypes.CDLL(None, use_errno=True); hits = []
for flag in (0x20000, 0x10000000, 0x20000000, 0x40000000, 0x10020000):
    if l.unshare(flag) == 0: hits.append(("unshare", hex(flag)))
if l.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None) == 0: hits.append("mount")
if l.umount2(b"/tmp", 2) == 0: hits.append("umount")
if l.chroot(b"/tmp") == 0: hits.append("chroot")
if l.pivot_root(b"/tmp", b"/tmp") == 0: hits.append("pivot")
for f in (os.setuid, os.setgid):
    try: f(0); hits.append(f.__name__)
    except OSError: pass
try: os.setgroups([0]); hits.append("setgroups")
except OSError: pass
print("LEAK" if hits else "clean", hits)
