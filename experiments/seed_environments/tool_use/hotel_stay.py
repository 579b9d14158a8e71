"""A guest has a hotel found and a room booked, but does not say which kind of room.

family: hotel_stay
skill: API Orchestration
setting: tool_use
kind: multi_turn
split: held_out
variant: missing_value
"""

import random

HOTELS = ["Aurora", "Bellevue", "Crown", "Dolphin", "Europa", "Fjord", "Granite"]
CITIES = ["Basel", "Turin", "Ghent", "Malmo", "Split", "Cork"]
ROOMS = ["single", "double", "twin", "suite"]
MONTHS = ["March", "April", "May", "June"]
EXTRAS = ["breakfast", "parking", "late_checkout", "cot"]


class HotelStayEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=12):
        super().__init__(max_turns=max_turns)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.city = rng.choice(CITIES)
        names, stars = rng.sample(HOTELS, 4), rng.sample(range(60, 99), 4)
        self.hotels = {name: rating for name, rating in sorted(zip(names, stars))}
        self.best = max(self.hotels, key=self.hotels.get)
        self.ids = {name: f"H{rng.randint(1000, 9999)}" for name in self.hotels}
        self.room, self.extra = rng.choice(ROOMS), rng.choice(EXTRAS)
        self.nights = rng.randint(2, 6)
        self.date = f"{rng.randint(1, 28)} {rng.choice(MONTHS)}"
        self._state = {"searched": [], "asked": [], "stays": {}, "mailed": []}
        self._tools = {
            "search_hotels": self._tool("List hotels of a city with id and rating.", city="string"),
            "ask_user": self._tool(
                "Ask the user for a value that is missing.",
                value=["room_kind", "date", "nights", "extra"],
            ),
            "book_room": self._tool(
                "Book a room; gives a stay code.",
                hotel_id="string",
                room=ROOMS,
                date="string",
                nights="integer",
            ),
            "add_extra": self._tool("Add an extra to a stay.", stay="string", extra=EXTRAS),
            "mail_receipt": self._tool("Mail the receipt of a stay.", stay="string"),
            "read_reviews": self._tool("Show what guests write.", hotel_id="string"),
            "cancel_stay": self._tool("Cancel a stay.", stay="string"),
        }
        self._user_messages = [
            f"Book me a room in the best rated hotel of {self.city}, from {self.date} for "
            f"{self.nights} nights.",
            f"Add {self.extra.replace('_', ' ')} to it.",
            "Have the receipt mailed to me.",
        ]
        wanted = (self.ids[self.best], self.room, self.date, self.nights)
        self._message_criteria = [
            lambda s: any(stay["booked"] == wanted for stay in s["stays"].values()),
            lambda s: any(
                stay["booked"] == wanted and self.extra in stay["extras"]
                for stay in s["stays"].values()
            ),
            lambda s: any(s["stays"][code]["booked"] == wanted for code in s["mailed"]),
        ]
        self._expected_answer = "done"
        return self._build_observation(), {}

    def tool_search_hotels(self, city):
        self._state["searched"].append(city)
        if city != self.city:
            return "no hotels"
        return "; ".join(
            f"{name} {self.ids[name]} rated {rating}" for name, rating in self.hotels.items()
        )

    def tool_ask_user(self, value):
        self._state["asked"].append(value)
        if value == "room_kind":
            return f"User: a {self.room}, please."
        if value in ("date", "nights"):
            return "User: I told you that already."
        return "User: we will see to that later."

    def tool_book_room(self, hotel_id, room, date, nights):
        if hotel_id not in self.ids.values():
            return "Error: no such hotel id"
        if room not in ROOMS:
            return "Error: room must be one of " + ", ".join(ROOMS)
        if "room_kind" not in self._state["asked"]:
            return "Error: the user has not said which kind of room; ask first"
        code = f"S{len(self._state['stays']) + 1}{hotel_id[1:]}"
        self._state["stays"][code] = {"booked": (hotel_id, room, date, int(nights)), "extras": []}
        return f"Booked under {code}"

    def tool_add_extra(self, stay, extra):
        if stay not in self._state["stays"]:
            return "Error: no such stay"
        if extra not in EXTRAS:
            return "Error: extra must be one of " + ", ".join(EXTRAS)
        self._state["stays"][stay]["extras"].append(extra)
        return "Added"

    def tool_mail_receipt(self, stay):
        if stay not in self._state["stays"]:
            return "Error: no such stay"
        self._state["mailed"].append(stay)
        return "Mailed"

    def tool_read_reviews(self, hotel_id):
        return "Friendly staff" if hotel_id in self.ids.values() else "Error: no such hotel id"

    def tool_cancel_stay(self, stay):
        if self._state["stays"].pop(stay, None) is None:
            return "Error: no such stay"
        self._state["mailed"] = [code for code in self._state["mailed"] if code != stay]
        return "Cancelled"

    def solution(self):
        hotel = self.ids[self.best]
        wanted = (hotel, self.room, self.date, self.nights)
        codes = [code for code, s in self._state["stays"].items() if s["booked"] == wanted]
        if self._current_msg == 0 and self.city not in self._state["searched"]:
            return self._call("search_hotels", city=self.city)
        if self._current_msg == 0 and "room_kind" not in self._state["asked"]:
            return self._call("ask_user", value="room_kind")
        if self._current_msg == 0:
            return self._call(
                "book_room", hotel_id=hotel, room=self.room, date=self.date, nights=self.nights
            )
        if self._current_msg == 1:
            return self._call("add_extra", stay=codes[0], extra=self.extra)
        if self._current_msg == 2:
            return self._call("mail_receipt", stay=codes[0])
        return self._answer()

    def hint(self):
        return (
            "Search for the hotel's id first. One value of the booking is missing from the request "
            "and must be asked for. The later services need the code that booking gives."
        )
