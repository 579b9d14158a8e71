# expect: crash
# mode: run
# attack: crash with much memory, after asking for dumps
import ctypes, os, resource
try: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (OSError, ValueError): pass
keep = bytearray(b"x" * (100 << 20))
os.chdir("/tmp"); ctypes.string_at(8)
