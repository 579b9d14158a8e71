# expect: contained
# mode: run
# attack: directories within directories, so deep that who removes them runs out of stack
import os, time
n, start = 0, time.time()
try:
    while time.time() - start < 1.5: os.mkdir("d"); os.chdir("d"); n += 1
except OSError as e: print(e)
print("made", n)
