# expect: wrong_answer|crash|output_limit
# mode: call
# attack: answers of other inputs, of none, empty lines, and as many as a judge may choke on
import os
os.write(4, b"\n" * 60000)
def solve(xs): return 0
