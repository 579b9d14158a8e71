"""A phone line that refuses changes until the reason of each refusal is mended.

family: telecom_account
skill: Error Recovery
setting: tool_use
kind: multi_turn
split: held_out
variant: execute
"""

import random

PLANS = ["basic", "plus", "family", "travel"]
ZONES = ["europe", "americas", "asia", "africa"]


class TelecomAccountEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=12):
        super().__init__(max_turns=max_turns)

    def reset(self, seed=None):
        rng = random.Random(seed)
        numbers = rng.sample(range(10000, 99999), 3)
        lines = {
            f"L{number}": {"active": True, "debt": 0, "plan": "basic", "zone": None, "lock": False}
            for number in sorted(numbers)
        }
        self.line = rng.choice(list(lines))
        self.debt, self.pin = rng.randint(11, 95), str(rng.randint(1000, 9999))
        self.plan, self.zone = rng.choice(PLANS[1:]), rng.choice(ZONES)
        lines[self.line].update(active=False, debt=self.debt, lock=True)
        self._state = {"lines": lines}
        self._tools = {
            "line_status": self._tool("Show the state of a line.", line="string"),
            "pay_debt": self._tool("Pay what a line owes.", line="string", dollars="integer"),
            "activate": self._tool("Switch a line on.", line="string"),
            "unlock": self._tool("Unlock a line for changes.", line="string", pin="string"),
            "change_plan": self._tool("Change the plan of a line.", line="string", plan=PLANS),
            "set_roaming": self._tool("Allow roaming in a zone.", line="string", zone=ZONES),
            "order_handset": self._tool("Order a telephone.", line="string"),
        }
        self._user_messages = [
            f"My line {self.line} is dead. Please get it working again.",
            f"Move it to the {self.plan} plan. If you need my PIN, it is {self.pin}.",
            f"Let me use it while I am in {self.zone.capitalize()}.",
        ]
        self._message_criteria = [
            lambda s: s["lines"][self.line]["active"],
            lambda s: s["lines"][self.line]["plan"] == self.plan,
            lambda s: s["lines"][self.line]["zone"] == self.zone,
        ]
        self._expected_answer = "done"
        return self._build_observation(), {}

    def tool_line_status(self, line):
        found = self._state["lines"].get(str(line))
        if found is None:
            return "Error: no such line"
        state = "active" if found["active"] else "off"
        return f"{state}, plan {found['plan']}, owes {found['debt']} dollars"

    def tool_pay_debt(self, line, dollars):
        found = self._state["lines"].get(str(line))
        if found is None or int(dollars) != found["debt"] or not found["debt"]:
            return "Error: that is not what the line owes"
        found["debt"] = 0
        return "Paid"

    def tool_activate(self, line):
        found = self._state["lines"].get(str(line))
        if found is None:
            return "Error: no such line"
        if found["debt"]:
            return "Error: the line has an unpaid debt"
        found["active"] = True
        return "The line is on"

    def tool_unlock(self, line, pin):
        found = self._state["lines"].get(str(line))
        if found is None or str(pin) != self.pin:
            return "Error: wrong line or PIN"
        found["lock"] = False
        return "Unlocked"

    def tool_change_plan(self, line, plan):
        found = self._state["lines"].get(str(line))
        if found is None:
            return "Error: no such line"
        if plan not in PLANS:
            return "Error: plan must be one of " + ", ".join(PLANS)
        if found["lock"] or not found["active"]:
            return "Error: the line is locked for changes"
        found["plan"] = plan
        return "Plan changed"

    def tool_set_roaming(self, line, zone):
        found = self._state["lines"].get(str(line))
        if found is None:
            return "Error: no such line"
        if zone not in ZONES:
            return "Error: zone must be one of " + ", ".join(ZONES)
        if found["lock"] or not found["active"]:
            return "Error: the line is locked for changes"
        found["zone"] = zone
        return "Roaming allowed"

    def tool_order_handset(self, line):
        return "Error: out of stock"

    def solution(self):
        line, called = self._state["lines"][self.line], [e["name"] for e in self._call_history]
        if self._current_msg == 0 and "line_status" not in called:
            return self._call("line_status", line=self.line)
        if self._current_msg == 0 and line["debt"]:
            return self._call("pay_debt", line=self.line, dollars=self.debt)
        if self._current_msg == 0:
            return self._call("activate", line=self.line)
        if self._current_msg == 1 and line["lock"]:
            return self._call("unlock", line=self.line, pin=self.pin)
        if self._current_msg == 1:
            return self._call("change_plan", line=self.line, plan=self.plan)
        if self._current_msg == 2:
            return self._call("set_roaming", line=self.line, zone=self.zone)
        return self._answer()

    def hint(self):
        return (
            "A line that is off may owe money: look at its state, pay exactly that, then switch it "
            "on. Changes need an unlocked line."
        )
