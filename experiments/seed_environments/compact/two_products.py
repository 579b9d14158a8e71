"""Evaluate a sum of two products; the hint is the two products.

family: two_products
skill: Mathematical Reasoning
setting: compact
kind: single_turn
split: held_out
knobs: 9 -> 5 9 12
"""


class ProductsEnv(QAEnv):
    def task(self, rng):
        a, b, c, d = [rng.randint(2, 9) for _ in range(4)]
        w = [a * b, c * d]
        return f"calc {a}*{b}+{c}*{d}", sum(w), w
