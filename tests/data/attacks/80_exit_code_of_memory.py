# expect: runtime_error
# mode: run
# attack: leave with the code by which the harness tells that memory ran out
import os
os._exit(86)
