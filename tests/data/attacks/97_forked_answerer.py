# expect: wrong_answer|no_answer
# mode: call
# attack: two processes answer; the second goes on when the first has left
import os
if os.fork() == 0: os.setsid()
def solve(xs):
    if os.getpid() != 1: return 0
    os._exit(0)
