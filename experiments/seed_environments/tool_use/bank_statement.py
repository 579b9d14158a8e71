"""A bank customer has charges looked up, one disputed, and a sum reported.

family: bank_statement
skill: Data Retrieval
setting: tool_use
kind: multi_turn
split: train
variant: read_then_write
"""

import random

SHOPS = ["Northgate Books", "Juniper Cafe", "Metro Fuel", "Pixel Store", "Harbor Gym", "Sole Shoes"]
MONTHS = ["january", "february", "march", "april"]
REASONS = ["duplicate", "not_mine", "wrong_amount"]


class BankStatementEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=12):
        super().__init__(max_turns=max_turns)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.month, self.other_month = rng.sample(MONTHS, 2)
        charges = {}
        numbers = rng.sample(range(1000, 9999), 16)
        amounts = rng.sample(range(5, 250), 16)
        for number, amount in zip(numbers, amounts):
            charges[f"T{number}"] = {
                "month": MONTHS[len(charges) % 4],
                "shop": rng.choice(SHOPS),
                "dollars": amount,
            }
        month = [key for key, c in charges.items() if c["month"] == self.month]
        other = [key for key, c in charges.items() if c["month"] == self.other_month]
        self.largest = max(month, key=lambda key: charges[key]["dollars"])
        self.smallest = min(other, key=lambda key: charges[key]["dollars"])
        self.total = sum(charges[key]["dollars"] for key in month)
        self.reason = rng.choice(REASONS)
        self._state = {
            "charges": charges,
            "read": [],
            "disputes": [],
            "reported": None,
            "tags": {},
        }
        self._tools = {
            "list_charges": self._tool("List the charge ids of a month.", month=MONTHS),
            "get_charges": self._tool(
                "Show shop and dollars of charges.",
                charge_ids={"type": "array", "items": {"type": "string"}},
            ),
            "dispute_charge": self._tool(
                "Open a dispute about a charge.", charge_id="string", reason=REASONS
            ),
            "report_total": self._tool("Report a sum to the user.", dollars="integer"),
            "tag_charge": self._tool(
                "Put a label on a charge.", charge_id="string", label="string"
            ),
            "block_card": self._tool("Block the card for good."),
        }
        self._user_messages = [
            f"Dispute the largest charge of {self.month}; the reason is "
            f"{self.reason.replace('_', ' ')}.",
            f"Tell me how much I spent in {self.month} altogether.",
            f"Label the smallest charge of {self.other_month} as petty.",
        ]
        self._message_criteria = [
            lambda s: [self.largest, self.reason] in s["disputes"],
            lambda s: s["reported"] == self.total,
            lambda s: s["tags"] == {self.smallest: "petty"},
        ]
        self._expected_answer = "done"
        return self._build_observation(), {}

    def tool_list_charges(self, month):
        if month not in MONTHS:
            return "Error: month must be one of " + ", ".join(MONTHS)
        return ", ".join(self._of(month))

    def tool_get_charges(self, charge_ids):
        shown = []
        for key in charge_ids:
            charge = self._state["charges"].get(str(key))
            if charge is None:
                return f"Error: no charge {str(key)[:20]}"
            self._state["read"].append(str(key))
            shown.append(f"{key} {charge['shop']} {charge['dollars']} dollars")
        return "; ".join(shown) or "nothing asked"

    def tool_dispute_charge(self, charge_id, reason):
        if str(charge_id) not in self._state["charges"]:
            return "Error: no such charge"
        if reason not in REASONS:
            return "Error: reason must be one of " + ", ".join(REASONS)
        self._state["disputes"].append([str(charge_id), reason])
        return "Dispute opened"

    def tool_report_total(self, dollars):
        self._state["reported"] = int(dollars)
        return "Told the user"

    def tool_tag_charge(self, charge_id, label):
        if str(charge_id) not in self._state["charges"]:
            return "Error: no such charge"
        self._state["tags"] = {str(charge_id): str(label)}
        return "Labelled"

    def tool_block_card(self):
        return "Error: blocking needs a phone call"

    def solution(self):
        month = self.month if self._current_msg < 2 else self.other_month
        listed = [e["arguments"].get("month") for e in self._call_history]
        if self._current_msg < 3 and month not in listed:
            return self._call("list_charges", month=month)
        if self._current_msg < 3 and not set(self._of(month)) <= set(self._state["read"]):
            return self._call("get_charges", charge_ids=self._of(month))
        if self._current_msg == 0:
            return self._call("dispute_charge", charge_id=self.largest, reason=self.reason)
        if self._current_msg == 1:
            return self._call("report_total", dollars=self.total)
        if self._current_msg == 2:
            return self._call("tag_charge", charge_id=self.smallest, label="petty")
        return self._answer()

    def hint(self):
        return (
            "List the ids of the month, then show all of them in one call before you act. What was "
            "read for the first request also answers the second."
        )

    def _of(self, month):
        return [key for key, c in self._state["charges"].items() if c["month"] == month]
