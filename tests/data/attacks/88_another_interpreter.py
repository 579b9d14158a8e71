# expect: memory_limit|runtime_error
# mode: run
# attack: become another program, planted files around it, and take the memory there
import os, sys
open("/tmp/sitecustomize.py", "w").write("import os; os.environ['X'] = '1'")
os.chdir("/tmp"); os.symlink(sys.executable, "/tmp/python")
code = "import os\nkeep = []\nfor _ in range(8): os.fork()\nwhile True: keep.append(bytearray(1 << 22))"
os.execve("/tmp/python" if os.path.exists("/tmp/python") else sys.executable, ["python", "-c", code], {"PYTHONPATH": "/tmp", "LD_PRELOAD": "/tmp/x.so"})
