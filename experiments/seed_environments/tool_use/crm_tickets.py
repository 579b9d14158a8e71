"""A help desk has a ticket found, its log read, and work given to the right person.

family: crm_tickets
skill: Data Retrieval
setting: tool_use
kind: multi_turn
split: train
variant: read_then_write
"""

import random

COMPANIES = ["Acorn Ltd", "Blue Fern", "Cobalt AG", "Delta Foods", "Ember Labs", "Fable Inc"]
STAFF = ["Nina", "Oscar", "Priya", "Raul", "Sven", "Tara"]
TOPICS = ["login fails", "invoice wrong", "slow search", "lost parcel", "broken link", "no mail"]
LEVELS = ["low", "normal", "urgent"]


class CrmTicketsEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=12):
        super().__init__(max_turns=max_turns)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.company, *others = rng.sample(COMPANIES, 4)
        self.topic, *topics = rng.sample(TOPICS, 4)
        numbers = rng.sample(range(200, 999), 8)
        tickets = {}
        for place, number in enumerate(numbers):
            tickets[f"K{number}"] = {
                "company": self.company if place < 3 else rng.choice(others),
                "topic": self.topic if place == 0 else rng.choice(topics),
                "level": "normal",
                "owner": None,
                "version": f"{rng.randint(1, 9)}.{rng.randint(0, 9)}",
            }
        self.ticket = f"K{numbers[0]}"
        tickets = dict(sorted(tickets.items()))
        loads = dict(zip(rng.sample(STAFF, 4), rng.sample(range(1, 12), 4)))
        self.free = min(loads, key=loads.get)
        self.level = rng.choice(["low", "urgent"])
        self._state = {"tickets": tickets, "loads": loads, "searched": [], "replies": []}
        self._tools = {
            "search_tickets": self._tool("List the tickets of a company.", company="string"),
            "read_log": self._tool("Show the log of a ticket.", ticket="string"),
            "staff_loads": self._tool("Show how many tickets each person has."),
            "assign": self._tool("Give a ticket to a person.", ticket="string", person="string"),
            "set_level": self._tool("Set the level of a ticket.", ticket="string", level=LEVELS),
            "reply": self._tool("Answer the customer.", ticket="string", version="string"),
            "close_ticket": self._tool("Close a ticket for good.", ticket="string"),
            "merge": self._tool("Merge two tickets.", ticket="string", other="string"),
        }
        self._user_messages = [
            f'Give the "{self.topic}" ticket of {self.company} to the person with the fewest '
            "tickets.",
            f"Make that ticket {self.level}.",
            "Reply to the customer with the version in which the fault is mended; the log has it.",
        ]
        self._message_criteria = [
            lambda s: s["tickets"][self.ticket]["owner"] == self.free,
            lambda s: s["tickets"][self.ticket]["level"] == self.level,
            lambda s: [self.ticket, s["tickets"][self.ticket]["version"]] in s["replies"],
        ]
        self._expected_answer = "done"
        return self._build_observation(), {}

    def tool_search_tickets(self, company):
        self._state["searched"].append(company)
        found = [
            f"{key} {t['topic']} ({t['level']})"
            for key, t in self._state["tickets"].items()
            if t["company"] == company
        ]
        return "; ".join(found) or "no tickets"

    def tool_read_log(self, ticket):
        found = self._state["tickets"].get(str(ticket))
        if found is None:
            return "Error: no such ticket"
        return f"Seen by support. Mended in version {found['version']}."

    def tool_staff_loads(self):
        return ", ".join(f"{name} {load}" for name, load in self._state["loads"].items())

    def tool_assign(self, ticket, person):
        if str(ticket) not in self._state["tickets"] or person not in self._state["loads"]:
            return "Error: no such ticket or person"
        self._state["tickets"][str(ticket)]["owner"] = person
        return "Assigned"

    def tool_set_level(self, ticket, level):
        if str(ticket) not in self._state["tickets"]:
            return "Error: no such ticket"
        if level not in LEVELS:
            return "Error: level must be one of " + ", ".join(LEVELS)
        self._state["tickets"][str(ticket)]["level"] = level
        return "Level set"

    def tool_reply(self, ticket, version):
        if str(ticket) not in self._state["tickets"]:
            return "Error: no such ticket"
        self._state["replies"].append([str(ticket), str(version)])
        return "Sent"

    def tool_close_ticket(self, ticket):
        return "Error: only the customer can close a ticket"

    def tool_merge(self, ticket, other):
        return "Error: these tickets differ"

    def solution(self):
        called = [entry["name"] for entry in self._call_history]
        if self._current_msg == 0 and self.company not in self._state["searched"]:
            return self._call("search_tickets", company=self.company)
        if self._current_msg == 0 and "staff_loads" not in called:
            return self._call("staff_loads")
        if self._current_msg == 0:
            return self._call("assign", ticket=self.ticket, person=self.free)
        if self._current_msg == 1:
            return self._call("set_level", ticket=self.ticket, level=self.level)
        if self._current_msg == 2 and "read_log" not in called:
            return self._call("read_log", ticket=self.ticket)
        if self._current_msg == 2:
            version = self._state["tickets"][self.ticket]["version"]
            return self._call("reply", ticket=self.ticket, version=version)
        return self._answer()

    def hint(self):
        return (
            "Look up the ticket's number and the loads before assigning. The last request needs a "
            "value that stands only in the ticket's log."
        )
