# expect: wrong_answer
# mode: call
# attack: answers that are equal only to a lenient judge
def solve(xs): return {1: True, 3: "14", 0: False, 4: 16.0}.get(len(xs), [25])
