# expect: wrong_answer
# mode: call
# attack: answers that are read as infinity, which is larger than any bound
import os
def solve(xs):
    os.write(4, b'{"r": 1e999}\n'); return None
