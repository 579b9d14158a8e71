# expect: contained
# mode: run
# attack: raise its own limits, those of its parent, and allow dumps of memory
import os, resource
hits = []
for which in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU):
    soft, hard = resource.getrlimit(which)
    for value in ((-1, -1), (hard + 1, hard + 1), (soft, -1)):
        try: resource.setrlimit(which, value); hits += [(which, value)] if hard != -1 else []
        except (OSError, ValueError): pass
    for pid in (0, 1, 2, os.getppid()):
        if pid not in (0, os.getpid()) :
            try: resource.prlimit(pid, which); hits.append((which, pid))
            except OSError: pass
for value in (0, 1, -1):
    try: resource.setrlimit(resource.RLIMIT_CORE, (value, value)); hits.append(("core", value))
    except (OSError, ValueError): pass
print("LEAK" if hits else "clean", hits)
