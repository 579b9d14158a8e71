# expect: crash|runtime_error
# mode: run
# attack: compiled code that no compiler wrote, from a .pyc, and a pickle that runs it
import importlib.util, os, pickle, struct, sys
code = compile("x = 1", "x", "exec").replace(co_code=bytes([100, 255, 83, 0]) * 8, co_stacksize=1)
import marshal
open("/tmp/evil.pyc", "wb").write(importlib.util.MAGIC_NUMBER + b"\0" * 12 + marshal.dumps(code))
class Run:
    def __reduce__(self): return eval, ("__import__('evil')",)
sys.path.insert(0, "/tmp"); pickle.loads(pickle.dumps(Run()))
raise ValueError("it did not crash")
