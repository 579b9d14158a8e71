"""A shopper has a cart changed, a coupon used and the order placed.

family: shopping_cart
skill: State Modification
setting: tool_use
kind: multi_turn
split: train
variant: execute
"""

import random

GOODS = ["apples", "bread", "coffee", "eggs", "flour", "honey", "juice", "lentils", "milk", "rice"]
SPEEDS = ["standard", "express", "pickup"]


class ShoppingCartEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=12):
        super().__init__(max_turns=max_turns)

    def reset(self, seed=None):
        rng = random.Random(seed)
        names = rng.sample(GOODS, 7)
        prices = {name: rng.randint(2, 9) for name in names}
        self.dropped, self.changed, self.kept = names[:3]
        self.added = names[3]
        cart = {name: rng.randint(1, 3) for name in names[:3]}
        self.count, self.more = rng.randint(4, 9), rng.randint(2, 6)
        self.wanted = {self.changed: self.count, self.kept: cart[self.kept], self.added: self.more}
        total = sum(prices[name] * count for name, count in self.wanted.items())
        self.codes = {f"SAVE{n}": n for n in sorted(rng.sample(range(5, 40), 3))}
        least = {code: rng.randint(1, total) for code in self.codes}
        worthy = max(self.codes, key=self.codes.get)
        least[worthy] = total + rng.randint(20, 60)  # the largest coupon is out of reach
        self.least = least
        usable = [code for code in self.codes if least[code] <= total]
        self.coupon = max(usable, key=self.codes.get)
        self.speed = rng.choice(SPEEDS)
        self._state = {"prices": prices, "cart": cart, "coupon": None, "ordered": None}
        self._tools = {
            "view_cart": self._tool("Show the cart with counts, prices and total."),
            "set_count": self._tool(
                "Set how many of a product are in the cart; 0 takes it out.",
                product="string",
                count="integer",
            ),
            "list_coupons": self._tool("Show coupons, their value and the least total they need."),
            "use_coupon": self._tool("Use one coupon; a later one replaces it.", code="string"),
            "place_order": self._tool("Order what is in the cart.", delivery=SPEEDS),
            "save_for_later": self._tool("Put a product on the wish list.", product="string"),
        }
        self._user_messages = [
            f"Take the {self.dropped} out of my cart and make it {self.count} of {self.changed}.",
            f"Put in {self.more} of {self.added} as well.",
            "Use the coupon that saves most and is allowed for this cart.",
            f"Place the order with {self.speed} delivery.",
        ]
        first = {self.changed: self.count, self.kept: cart[self.kept]}
        self._message_criteria = [
            lambda s: (
                all(s["cart"].get(k) == v for k, v in first.items())
                and self.dropped not in s["cart"]
            ),
            lambda s: s["cart"] == self.wanted,
            lambda s: s["cart"] == self.wanted and s["coupon"] == self.coupon,
            lambda s: s["ordered"] == (self.wanted, self.coupon, self.speed),
        ]
        self._expected_answer = "done"
        return self._build_observation(), {}

    def tool_view_cart(self):
        lines = [
            f"{count} {name} at {self._state['prices'][name]}"
            for name, count in self._state["cart"].items()
        ]
        return f"{', '.join(lines) or 'empty'}; total {self._total()} dollars"

    def tool_set_count(self, product, count):
        if product not in self._state["prices"]:
            return "Error: the shop does not sell that"
        if not 0 <= int(count) <= 20:
            return "Error: between 0 and 20"
        self._state["cart"].pop(product, None)
        if int(count):
            self._state["cart"][product] = int(count)
        return "Cart changed"

    def tool_list_coupons(self):
        return "; ".join(
            f"{code} saves {value} from a total of {self.least[code]}"
            for code, value in self.codes.items()
        )

    def tool_use_coupon(self, code):
        if code not in self.codes or self.least[code] > self._total():
            return "Error: that coupon cannot be used for this cart"
        self._state["coupon"] = code
        return "Coupon noted"

    def tool_place_order(self, delivery):
        if delivery not in SPEEDS:
            return "Error: delivery must be one of " + ", ".join(SPEEDS)
        if self._current_msg < 3:
            return "Error: the user has not confirmed the order yet"
        self._state["ordered"] = (dict(self._state["cart"]), self._state["coupon"], delivery)
        return "Ordered"

    def tool_save_for_later(self, product):
        return "Error: the wish list is full"

    def solution(self):
        called = [entry["name"] for entry in self._call_history]
        if self._current_msg == 0 and self.dropped in self._state["cart"]:
            return self._call("set_count", product=self.dropped, count=0)
        if self._current_msg == 0:
            return self._call("set_count", product=self.changed, count=self.count)
        if self._current_msg == 1:
            return self._call("set_count", product=self.added, count=self.more)
        if self._current_msg == 2 and "view_cart" not in called:
            return self._call("view_cart")
        if self._current_msg == 2 and "list_coupons" not in called:
            return self._call("list_coupons")
        if self._current_msg == 2:
            return self._call("use_coupon", code=self.coupon)
        if self._current_msg == 3:
            return self._call("place_order", delivery=self.speed)
        return self._answer()

    def hint(self):
        return (
            "Change the cart product by product. Compare the cart's total with what each coupon "
            "demands before using one; the largest is not always allowed."
        )

    def _total(self):
        return sum(self._state["prices"][n] * count for n, count in self._state["cart"].items())
