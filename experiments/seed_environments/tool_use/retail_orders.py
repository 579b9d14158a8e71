"""A customer of a shop has an order looked up, moved and partly returned.

family: retail_orders
skill: Multi-Step Workflows
setting: tool_use
kind: multi_turn
split: train
variant: execute
"""

import random

GOODS = ["lamp", "kettle", "backpack", "keyboard", "blanket", "teapot", "headset", "mirror"]
STREETS = ["Elm Street", "Oak Lane", "Mill Road", "Quay Side", "Park Row", "Hill Close"]
REASONS = ["damaged", "wrong_item", "too_small", "changed_mind"]


class RetailOrdersEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=12):
        super().__init__(max_turns=max_turns)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.customer = f"C{rng.randint(100, 999)}"
        numbers = rng.sample(range(1000, 9999), 4)
        orders = {}
        for place, number in enumerate(numbers):
            prices = rng.sample(range(8, 90), 3)
            orders[f"O{number}"] = {
                "customer": self.customer if place < 3 else "C000",
                "status": ["delivered", "pending", "cancelled", "pending"][place],
                "items": dict(zip(rng.sample(GOODS, 3), prices)),
                "address": f"{rng.randint(1, 99)} {rng.choice(STREETS)}",
            }
        self.delivered, self.pending = f"O{numbers[0]}", f"O{numbers[1]}"
        orders = dict(sorted(orders.items()))
        self.address = f"{rng.randint(100, 199)} {rng.choice(STREETS)}"
        items = orders[self.delivered]["items"]
        self.dearest = max(items, key=lambda item: (items[item], item))
        self.reason = rng.choice(REASONS)
        self._state = {"orders": orders, "listed": [], "returns": []}
        self._tools = {
            "list_orders": self._tool(
                "List the order numbers of a customer.", customer_id="string"
            ),
            "get_order": self._tool(
                "Show status, items and address of an order.", order_id="string"
            ),
            "change_address": self._tool(
                "Change the address of a pending order.", order_id="string", address="string"
            ),
            "return_item": self._tool(
                "Send back one item of a delivered order.",
                order_id="string",
                item="string",
                reason=REASONS,
            ),
            "cancel_order": self._tool("Cancel a pending order.", order_id="string"),
            "track_parcel": self._tool("Show where a parcel is.", order_id="string"),
        }
        words = self.reason.replace("_", " ")
        self._user_messages = [
            f"I am customer {self.customer}. Please look up which orders I have.",
            f"Have my order that is still pending sent to {self.address}.",
            f"From my delivered order, return the most expensive item. The reason is: {words}.",
        ]
        self._message_criteria = [
            lambda s: self.customer in s["listed"],
            lambda s: s["orders"][self.pending]["address"] == self.address,
            lambda s: [self.delivered, self.dearest, self.reason] in s["returns"],
        ]
        self._expected_answer = "done"
        return self._build_observation(), {}

    def tool_list_orders(self, customer_id):
        self._state["listed"].append(str(customer_id))
        orders = self._state["orders"]
        mine = [number for number in orders if orders[number]["customer"] == customer_id]
        return ", ".join(mine) or "no orders"

    def tool_get_order(self, order_id):
        order = self._state["orders"].get(str(order_id))
        if order is None:
            return "Error: no such order"
        items = ", ".join(f"{item} {price} dollars" for item, price in order["items"].items())
        return f"{order['status']}; {items}; to {order['address']}"

    def tool_change_address(self, order_id, address):
        order = self._state["orders"].get(str(order_id))
        if order is None or order["status"] != "pending":
            return "Error: only a pending order can be moved"
        order["address"] = str(address)
        return "Address changed"

    def tool_return_item(self, order_id, item, reason):
        order = self._state["orders"].get(str(order_id))
        if order is None or order["status"] != "delivered":
            return "Error: only a delivered order can be returned"
        if str(item) not in order["items"]:
            return "Error: no such item in this order"
        if reason not in REASONS:
            return "Error: unknown reason"
        if any(entry[:2] == [order_id, item] for entry in self._state["returns"]):
            return "Error: already returned"
        self._state["returns"].append([order_id, item, reason])
        return "Return noted"

    def tool_cancel_order(self, order_id):
        return "Error: cancelling needs a phone call to the shop"

    def tool_track_parcel(self, order_id):
        return "In the depot" if str(order_id) in self._state["orders"] else "Error: no such order"

    def solution(self):
        read = [entry["arguments"].get("order_id") for entry in self._call_history]
        if self._current_msg == 0:
            return self._call("list_orders", customer_id=self.customer)
        for number, order in self._state["orders"].items():
            if order["customer"] == self.customer and number not in read:
                return self._call("get_order", order_id=number)
        if self._current_msg == 1:
            return self._call("change_address", order_id=self.pending, address=self.address)
        if self._current_msg == 2:
            return self._call(
                "return_item", order_id=self.delivered, item=self.dearest, reason=self.reason
            )
        return self._answer()

    def hint(self):
        return (
            "First list the customer's orders, then read each order before changing anything: the "
            "status tells which order a request is about. Only then change or return."
        )
