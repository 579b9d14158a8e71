# expect: wrong_answer|runtime_error|no_answer
# mode: call
# attack: trace the caller and change its variables
import sys
def tracer(frame, event, arg):
    for k in list(frame.f_locals): 
        try: frame.f_locals[k] = 1
        except Exception: pass
    return tracer
def solve(xs):
    f = sys._getframe()
    while f: f.f_trace = tracer; f = f.f_back
    sys.settrace(tracer); return -7
