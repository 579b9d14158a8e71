# expect: timeout|contained
# mode: run
# attack: stop instead of ending; the first process of a pid namespace of Linux cannot
import os, signal
if os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)
os.kill(os.getpid(), signal.SIGSTOP)
print("went on")
