# expect: output_limit|timeout|wrong_answer|no_answer
# mode: call
# attack: one answer a byte at a time: who sums the pieces up at each of them never ends
import os
def solve(xs):
    while True: os.write(4, b"x")
