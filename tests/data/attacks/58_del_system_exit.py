# expect: pass
# mode: call
# attack: control: right answers, then teardown that fails
import atexit, os
class D:
    def __del__(self): raise SystemExit(1)
keep = D(); atexit.register(lambda: os._exit(1))
def solve(xs): return sum(x * x for x in xs)
