"""A bank customer has balances read, money moved and a card blocked; one amount must be asked for.

family: bank_transfers
skill: State Modification
setting: tool_use
kind: multi_turn
split: train
variant: missing_value
"""

import random

NAMES = ["Ito", "Lund", "Moreau", "Okafor", "Petrov", "Quinn", "Rossi", "Silva", "Tanaka"]
KINDS = ["checking", "savings", "holiday", "tax"]


class BankTransfersEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=12):
        super().__init__(max_turns=max_turns)

    def reset(self, seed=None):
        rng = random.Random(seed)
        numbers = rng.sample(range(100000, 999999), 4)
        self.accounts = {kind: f"A{number}" for kind, number in zip(KINDS, numbers)}
        self.source, self.target = rng.sample(KINDS, 2)
        balances = {self.accounts[kind]: rng.randint(500, 3000) for kind in KINDS}
        self.amount, self.left = rng.randint(21, 199), rng.randint(100, 400)
        self.payee = rng.choice(NAMES)
        self.limit = rng.choice(["low", "medium", "high"])
        self._state = {
            "balances": balances,
            "paid": [],
            "asked": [],
            "limits": {},
            "swept": None,
        }
        self.start = dict(balances)
        self._tools = {
            "list_accounts": self._tool("List account numbers with kind and balance."),
            "transfer": self._tool(
                "Move whole dollars between two own accounts.",
                source="string",
                target="string",
                amount="integer",
            ),
            "pay_person": self._tool(
                "Pay whole dollars to a person.",
                source="string",
                person="string",
                amount="integer",
            ),
            "ask_user": self._tool(
                "Ask the user for a value that is missing.",
                value=["amount", "person", "account"],
            ),
            "set_limit": self._tool(
                "Set the spending limit of an account.",
                account="string",
                level=["low", "medium", "high"],
            ),
            "order_statement": self._tool("Order a printed statement.", account="string"),
        }
        self._user_messages = [
            f"Pay {self.payee} from my {self.source} account.",
            f"Leave exactly {self.left} dollars on my {self.source} account and move the rest to "
            f"my {self.target} account.",
            f"Set the spending limit of my {self.target} account to {self.limit}.",
        ]
        source, target = self.accounts[self.source], self.accounts[self.target]
        self._message_criteria = [
            lambda s: "amount" in s["asked"] and [source, self.payee, self.amount] in s["paid"],
            lambda s: (
                s["balances"][source] == self.left
                and s["balances"][target] == self.start[target] + self._rest()
            ),
            lambda s: s["limits"].get(target) == self.limit,
        ]
        self._expected_answer = "done"
        return self._build_observation(), {}

    def tool_list_accounts(self):
        self._state["listed"] = True
        balances = self._state["balances"]
        return "; ".join(
            f"{number} {kind} {balances[number]}" for kind, number in self.accounts.items()
        )

    def tool_transfer(self, source, target, amount):
        balances, amount = self._state["balances"], int(amount)
        if source not in balances or target not in balances or source == target:
            return "Error: give two different account numbers"
        if not 0 < amount <= balances[source]:
            return "Error: the balance does not allow that"
        balances[source] -= amount
        balances[target] += amount
        return "Moved"

    def tool_pay_person(self, source, person, amount):
        balances, amount = self._state["balances"], int(amount)
        if source not in balances:
            return "Error: no such account number"
        if "amount" not in self._state["asked"]:
            return "Error: the user has not said how much; ask first"
        if [source, person, amount] != [self.accounts[self.source], self.payee, self.amount]:
            return "Error: the user did not confirm that payment"
        if [source, person, amount] in self._state["paid"]:
            return "Error: this payment was already made"
        balances[source] -= amount
        self._state["paid"].append([source, person, amount])
        return "Paid"

    def tool_ask_user(self, value):
        if value not in ("amount", "person", "account"):
            return "Error: ask for amount, person or account"
        self._state["asked"].append(value)
        if value == "amount" and self._current_msg == 0:
            return f"User: {self.amount} dollars, please."
        return "User: I told you that already."

    def tool_set_limit(self, account, level):
        if account not in self._state["balances"]:
            return "Error: no such account number"
        if level not in ("low", "medium", "high"):
            return "Error: the level is low, medium or high"
        self._state["limits"][account] = level
        return "Limit set"

    def tool_order_statement(self, account):
        return "Ordered" if account in self._state["balances"] else "Error: no such account number"

    def solution(self):
        source, target = self.accounts[self.source], self.accounts[self.target]
        if not self._state.get("listed"):
            return self._call("list_accounts")
        if self._current_msg == 0 and "amount" not in self._state["asked"]:
            return self._call("ask_user", value="amount")
        if self._current_msg == 0:
            return self._call("pay_person", source=source, person=self.payee, amount=self.amount)
        if self._current_msg == 1:
            return self._call("transfer", source=source, target=target, amount=self._rest())
        if self._current_msg == 2:
            return self._call("set_limit", account=target, level=self.limit)
        return self._answer()

    def hint(self):
        return (
            "Look up the account numbers first. The first request lacks a value that only the user "
            "knows, so ask for it. The rest to move is the balance after the payment less what "
            "must stay."
        )

    def _rest(self):
        return self.start[self.accounts[self.source]] - self.amount - self.left
