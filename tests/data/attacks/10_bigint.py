# expect: timeout
# mode: run
# attack: one arithmetic operation that never ends and holds the interpreter
x = 9 ** (9 ** 7)
print(len(str(x ** 3)) if x else 0)
