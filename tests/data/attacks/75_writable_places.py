# expect: contained
# mode: run
# attack: any place outside the own file systems where something can be left for the next program
import os
hits = []
for top, folders, files in os.walk("/", followlinks=False):
    if top.startswith(("/proc", "/tmp", "/sys")) or top.count("/") > 2: folders.clear(); continue
    if top.startswith("/dev/shm"): continue
    try: open(top + "/left_x", "x").close(); hits.append(top); os.unlink(top + "/left_x")
    except OSError: pass
    for f in files:
        p = top + "/" + f
        if not os.path.islink(p) and os.access(p, os.W_OK) and not top.startswith("/dev"): hits.append(p)
print("LEAK" if hits else "clean", hits[:20])
