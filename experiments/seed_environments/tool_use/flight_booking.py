"""A traveller has a flight found, held, paid and seated through four services.

family: flight_booking
skill: API Orchestration
setting: tool_use
kind: multi_turn
split: train
variant: read_then_write
"""

import random

CITIES = ["Oslo", "Lima", "Cairo", "Delhi", "Quito", "Seoul", "Porto", "Accra"]
NAMES = ["Ida Berg", "Omar Nasser", "Lena Vogt", "Paul Adeyemi", "Rosa Diaz", "Tom Hale"]
SEATS = ["window", "middle", "aisle"]


class FlightBookingEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=9):
        super().__init__(max_turns=max_turns)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.origin, self.goal, elsewhere = rng.sample(CITIES, 3)
        numbers, prices = rng.sample(range(100, 999), 6), rng.sample(range(80, 400), 6)
        flights = {}
        for place in range(6):
            flights[f"F{numbers[place]}"] = {
                "origin": self.origin,
                "goal": self.goal if place < 4 else elsewhere,
                "hour": rng.randint(6, 22),
                "price": prices[place],
                "seats": 0 if place == 0 else rng.randint(1, 9),
            }
        sold_out = f"F{numbers[0]}"
        flights[sold_out]["price"] = 70  # the cheapest of all cannot be had
        fitting = [key for key, f in flights.items() if f["goal"] == self.goal and f["seats"]]
        self.best = min(fitting, key=lambda key: flights[key]["price"])
        self.name, self.seat = rng.choice(NAMES), rng.choice(SEATS)
        self._state = {"flights": dict(sorted(flights.items())), "searched": [], "bookings": {}}
        self._tools = {
            "search_flights": self._tool(
                "List flights between two cities.", origin="string", destination="string"
            ),
            "hold_flight": self._tool(
                "Hold a seat; gives a booking code.", flight="string", passenger="string"
            ),
            "pay_booking": self._tool(
                "Pay a held booking; the amount must be its price.",
                booking="string",
                dollars="integer",
            ),
            "choose_seat": self._tool(
                "Choose a seat in a paid booking.", booking="string", seat=SEATS
            ),
            "flight_status": self._tool("Tell whether a flight is on time.", flight="string"),
            "rent_car": self._tool("Rent a car in a city.", city="string"),
        }
        self._user_messages = [
            f"Which flights go from {self.origin} to {self.goal}?",
            f"Hold the cheapest one that still has seats, for {self.name}.",
            "Pay for it.",
            f"I would like the {self.seat} seat.",
        ]
        self._message_criteria = [
            lambda s: [self.origin, self.goal] in s["searched"],
            lambda s: self._booking() is not None,
            lambda s: self._booking() is not None and self._booking()["paid"],
            lambda s: self._booking() is not None and self._booking()["seat"] == self.seat,
        ]
        self._expected_answer = "done"
        return self._build_observation(), {}

    def tool_search_flights(self, origin, destination):
        self._state["searched"].append([origin, destination])
        found = [
            f"{key} at {f['hour']}:00, {f['price']} dollars, {f['seats']} seats left"
            for key, f in self._state["flights"].items()
            if (f["origin"], f["goal"]) == (origin, destination)
        ]
        return "; ".join(found) or "no flights"

    def tool_hold_flight(self, flight, passenger):
        found = self._state["flights"].get(str(flight))
        if found is None or not found["seats"]:
            return "Error: no seat on that flight"
        found["seats"] -= 1
        code = f"B{len(self._state['bookings']) + 1}{str(flight)[1:]}"
        self._state["bookings"][code] = {
            "flight": flight,
            "passenger": passenger,
            "paid": False,
            "seat": None,
        }
        return f"Held under {code}"

    def tool_pay_booking(self, booking, dollars):
        found = self._state["bookings"].get(str(booking))
        if found is None:
            return "Error: no such booking"
        if int(dollars) != self._state["flights"][found["flight"]]["price"]:
            return "Error: that is not the price"
        found["paid"] = True
        return "Paid"

    def tool_choose_seat(self, booking, seat):
        found = self._state["bookings"].get(str(booking))
        if found is None or not found["paid"]:
            return "Error: no paid booking of that code"
        if seat not in SEATS:
            return "Error: seat must be one of " + ", ".join(SEATS)
        found["seat"] = seat
        return "Seat noted"

    def tool_flight_status(self, flight):
        return "On time" if str(flight) in self._state["flights"] else "Error: no such flight"

    def tool_rent_car(self, city):
        return "Error: no cars are left"

    def solution(self):
        codes = [code for code, b in self._state["bookings"].items() if b is self._booking()]
        if self._current_msg == 0:
            return self._call("search_flights", origin=self.origin, destination=self.goal)
        if self._current_msg == 1:
            return self._call("hold_flight", flight=self.best, passenger=self.name)
        if self._current_msg == 2:
            price = self._state["flights"][self.best]["price"]
            return self._call("pay_booking", booking=codes[0], dollars=price)
        if self._current_msg == 3:
            return self._call("choose_seat", booking=codes[0], seat=self.seat)
        return self._answer()

    def hint(self):
        return (
            "Search, hold, pay, then choose the seat: each service needs what the one before gave. "
            "The lowest price in the list may be sold out, so look at the seats too."
        )

    def _booking(self):
        for booking in self._state["bookings"].values():
            if (booking["flight"], booking["passenger"]) == (self.best, self.name):
                return booking
        return None
