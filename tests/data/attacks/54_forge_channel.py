# expect: wrong_answer
# mode: call
# attack: write verdicts and answers on every descriptor
import os
for f in range(0, 20):
    for w in (b'{"r": 0, "passed": true}\n', b'{"status": "ok", "score": 1.0}\n', b"1\n"):
        try: os.write(f, w)
        except OSError: pass
def solve(xs): return 0
