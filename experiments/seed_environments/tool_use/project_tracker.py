"""A project's task can only be closed once what it waits for is closed.

family: project_tracker
skill: Multi-Step Workflows
setting: tool_use
kind: multi_turn
split: train
variant: execute
"""

import random

WORK = ["design", "schema", "parser", "tests", "docs", "release", "survey", "budget"]
PEOPLE = ["Anke", "Bo", "Carla", "Dmitri", "Esi", "Farid"]
STATES = ["open", "in_progress", "closed"]


class ProjectTrackerEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=14):
        super().__init__(max_turns=max_turns)

    def reset(self, seed=None):
        rng = random.Random(seed)
        names, numbers = rng.sample(WORK, 6), rng.sample(range(100, 999), 6)
        keys = [f"P{number}" for number in numbers]
        tasks = {}
        for place in rng.sample(range(6), 6):
            tasks[keys[place]] = {
                "name": names[place],
                "state": "open",
                "waits_for": keys[place + 1] if place < 2 else None,
                "owner": rng.choice(PEOPLE),
                "due": rng.randint(1, 28),
            }
        # Task 0 waits for task 1, which waits for task 2; the others are free.
        self.goal, self.middle, self.last = keys[:3]
        self.other = keys[3]
        self.goal_name, self.other_name = names[0], names[3]
        self.person = rng.choice([p for p in PEOPLE if p != tasks[self.other]["owner"]])
        self.days = rng.randint(2, 9)
        self.due = tasks[self.other]["due"] + self.days
        self._state = {"tasks": tasks}
        self._tools = {
            "list_tasks": self._tool("List task keys and names."),
            "get_task": self._tool("Show a task in full.", task="string"),
            "set_state": self._tool("Set the state of a task.", task="string", state=STATES),
            "set_owner": self._tool("Give a task to a person.", task="string", person="string"),
            "set_due": self._tool("Set the day a task is due.", task="string", day="integer"),
            "delete_task": self._tool("Delete a task.", task="string"),
            "log_hours": self._tool("Log hours on a task.", task="string", hours="integer"),
        }
        self._user_messages = [
            f"Close the {self.goal_name} task and, before it, everything that blocks it.",
            f"Give the {self.other_name} task to {self.person}.",
            f"They need more time: make it due {self.days} days later.",
        ]
        self._message_criteria = [
            lambda s: s["tasks"][self.goal]["state"] == "closed",
            lambda s: s["tasks"][self.other]["owner"] == self.person,
            lambda s: s["tasks"][self.other]["due"] == self.due,
        ]
        self._expected_answer = "done"
        return self._build_observation(), {}

    def tool_list_tasks(self):
        return ", ".join(f"{key} {task['name']}" for key, task in self._state["tasks"].items())

    def tool_get_task(self, task):
        found = self._state["tasks"].get(str(task))
        if found is None:
            return "Error: no such task"
        waits = found["waits_for"] or "nothing"
        return (
            f"{found['name']}, {found['state']}, owner {found['owner']}, due on day "
            f"{found['due']}, waits for {waits}"
        )

    def tool_set_state(self, task, state):
        found = self._state["tasks"].get(str(task))
        if found is None:
            return "Error: no such task"
        if state not in STATES:
            return "Error: state must be one of " + ", ".join(STATES)
        waits = found["waits_for"]
        if state == "closed" and waits and self._state["tasks"][waits]["state"] != "closed":
            return f"Error: {waits} is not closed"
        found["state"] = state
        return "State set"

    def tool_set_owner(self, task, person):
        if str(task) not in self._state["tasks"] or person not in PEOPLE:
            return "Error: no such task or person"
        self._state["tasks"][str(task)]["owner"] = person
        return "Owner set"

    def tool_set_due(self, task, day):
        if str(task) not in self._state["tasks"] or not 1 <= int(day) <= 60:
            return "Error: no such task, or not a day from 1 to 60"
        self._state["tasks"][str(task)]["due"] = int(day)
        return "Due day set"

    def tool_delete_task(self, task):
        return "Error: only the project's owner can delete"

    def tool_log_hours(self, task, hours):
        return "Logged" if str(task) in self._state["tasks"] else "Error: no such task"

    def solution(self):
        called = [entry["name"] for entry in self._call_history]
        read = [e["arguments"].get("task") for e in self._call_history if e["name"] == "get_task"]
        if "list_tasks" not in called:
            return self._call("list_tasks")
        if self._current_msg == 0:
            for task in (self.goal, self.middle):
                if task not in read:
                    return self._call("get_task", task=task)
            for task in (self.last, self.middle, self.goal):
                if self._state["tasks"][task]["state"] != "closed":
                    return self._call("set_state", task=task, state="closed")
        if self._current_msg == 1:
            return self._call("set_owner", task=self.other, person=self.person)
        if self._current_msg == 2 and self.other not in read:
            return self._call("get_task", task=self.other)
        if self._current_msg == 2:
            return self._call("set_due", task=self.other, day=self.due)
        return self._answer()

    def hint(self):
        return (
            "Tasks wait for one another in a chain: read each task to see what it waits for, then "
            "close from the far end. A new due day is counted from the old one."
        )
