"""An assistant reads a calendar, books a free slot, moves a meeting and declines a strange wish.

family: calendar_meetings
skill: Tool Selection
setting: tool_use
kind: multi_turn
split: train
variant: irrelevant_request
"""

import random

DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday"]
NAMES = ["Ada", "Ben", "Chloe", "Dev", "Elif", "Femi", "Grace", "Hugo"]
TOPICS = ["budget", "launch", "hiring", "roadmap", "review", "training", "audit"]
WISHES = [
    "Also order a pizza to my desk.",
    "Also tell me who wins the election.",
    "Also repair the printer on floor two.",
    "Also water the plants in my office.",
]


class CalendarMeetingsEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=12):
        super().__init__(max_turns=max_turns)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.day, self.other_day = rng.sample(DAYS, 2)
        topics = rng.sample(TOPICS, 6)
        meetings, hours = {}, rng.sample(range(9, 17), 7)
        for place in range(4):
            meetings[f"m{rng.randint(10, 99)}{place}"] = {
                "topic": topics[place],
                "day": self.day if place < 3 else self.other_day,
                "hour": hours[place],
            }
        # On the busy day every hour but one is taken by a block without a topic.
        self.free_hour = hours[6]
        taken = [hour for hour in range(9, 17) if hour != self.free_hour]
        self.blocks = {self.day: taken}
        self.moved = rng.choice([key for key in meetings if meetings[key]["day"] == self.day])
        self.moved_topic = meetings[self.moved]["topic"]
        self.new_topic, self.guest = topics[4], rng.choice(NAMES)
        self.new_hour = rng.choice([h for h in range(9, 17) if h != hours[3]])
        self._state = {"meetings": meetings, "read": [], "invited": [], "declined": []}
        self._tools = {
            "read_day": self._tool("List the meetings and free hours of a day.", day=DAYS),
            "book_meeting": self._tool(
                "Book a new meeting.", day=DAYS, hour="integer", topic="string"
            ),
            "move_meeting": self._tool(
                "Move a meeting.", meeting_id="string", day=DAYS, hour="integer"
            ),
            "invite": self._tool(
                "Invite a person to a meeting.", meeting_id="string", person="string"
            ),
            "find_room": self._tool("Find a room for a day.", day=DAYS),
            "decline_request": self._tool(
                "Say no to what the other tools cannot do.",
                reason=["not_supported", "not_allowed"],
            ),
        }
        self._user_messages = [
            f"Book a meeting about {self.new_topic} in the only free hour of {self.day}.",
            f"Move the {self.moved_topic} meeting of that day to {self.other_day} at "
            f"{self.new_hour}.",
            rng.choice(WISHES),
            f"Invite {self.guest} to the {self.moved_topic} meeting.",
        ]
        self._message_criteria = [
            lambda s: any(
                (m["topic"], m["day"], m["hour"]) == (self.new_topic, self.day, self.free_hour)
                for m in s["meetings"].values()
            ),
            lambda s: (
                (s["meetings"][self.moved]["day"], s["meetings"][self.moved]["hour"])
                == (self.other_day, self.new_hour)
            ),
            lambda s: s["declined"] == ["not_supported"],
            lambda s: [self.moved, self.guest] in s["invited"],
        ]
        self._expected_answer = "done"
        return self._build_observation(), {}

    def tool_read_day(self, day):
        if day not in DAYS:
            return "Error: unknown day"
        self._state["read"].append(day)
        found = [
            f"{key} {m['topic']} at {m['hour']}"
            for key, m in self._state["meetings"].items()
            if m["day"] == day
        ]
        free = [str(hour) for hour in range(9, 17) if self._is_free(day, hour)]
        return f"Meetings: {'; '.join(found) or 'none'}. Free hours: {', '.join(free) or 'none'}."

    def tool_book_meeting(self, day, hour, topic):
        if day not in DAYS or not self._is_free(day, int(hour)):
            return "Error: that hour is not free"
        key = f"n{len(self._state['meetings'])}"
        self._state["meetings"][key] = {"topic": str(topic), "day": day, "hour": int(hour)}
        return f"Booked as {key}"

    def tool_move_meeting(self, meeting_id, day, hour):
        if meeting_id not in self._state["meetings"]:
            return "Error: no such meeting"
        if day not in DAYS or not self._is_free(day, int(hour)):
            return "Error: that hour is not free"
        self._state["meetings"][meeting_id].update(day=day, hour=int(hour))
        return "Moved"

    def tool_invite(self, meeting_id, person):
        if meeting_id not in self._state["meetings"]:
            return "Error: no such meeting"
        self._state["invited"].append([meeting_id, person])
        return "Invited"

    def tool_find_room(self, day):
        return "Every room is free" if day in DAYS else "Error: unknown day"

    def tool_decline_request(self, reason):
        if reason not in ("not_supported", "not_allowed"):
            return "Error: unknown reason"
        if self._current_msg != 2:
            return "Error: the present request can be done with the tools"
        self._state["declined"] = [reason]
        return "Told the user"

    def solution(self):
        if self._current_msg == 0 and self.day not in self._state["read"]:
            return self._call("read_day", day=self.day)
        if self._current_msg == 0:
            return self._call(
                "book_meeting", day=self.day, hour=self.free_hour, topic=self.new_topic
            )
        if self._current_msg == 1 and self.other_day not in self._state["read"]:
            return self._call("read_day", day=self.other_day)
        if self._current_msg == 1:
            return self._call(
                "move_meeting", meeting_id=self.moved, day=self.other_day, hour=self.new_hour
            )
        if self._current_msg == 2:
            return self._call("decline_request", reason="not_supported")
        if self._current_msg == 3:
            return self._call("invite", meeting_id=self.moved, person=self.guest)
        return self._answer()

    def hint(self):
        return (
            "Read a day before you book or move: it tells the free hour and the meeting's id. "
            "One of the wishes has nothing to do with a calendar; say no to that one."
        )

    def _is_free(self, day, hour):
        meetings = self._state["meetings"].values()
        taken = [m["hour"] for m in meetings if m["day"] == day] + self.blocks.get(day, [])
        return 9 <= hour < 17 and hour not in taken
