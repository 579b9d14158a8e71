# expect: contained
# mode: run
# attack: close every descriptor and leave quietly
import os
os.closerange(0, 1024); os._exit(0)
