# expect: crash|contained
# mode: run
# attack: die by the signal of the processor limit, without having used it; Linux keeps it from pid 1
import os, signal
os.kill(os.getpid(), signal.SIGXCPU)
print("went on")
