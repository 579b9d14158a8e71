# expect: timeout
# mode: run
# attack: the program ends, its exit function does not
import atexit, time
atexit.register(lambda: time.sleep(10**6)); print("main done")
