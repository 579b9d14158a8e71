# expect: crash
# mode: run
# attack: abort()
import os
os.abort()
