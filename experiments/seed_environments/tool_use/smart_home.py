"""A home is set for the evening; rooms differ in their devices, and one wish cannot be met.

family: smart_home
skill: Tool Selection
setting: tool_use
kind: multi_turn
split: train
variant: irrelevant_request
"""

import random

ROOMS = ["kitchen", "bedroom", "study", "hall", "bathroom", "attic", "cellar", "lounge"]
ROOMS += ["nursery", "workshop", "pantry", "veranda", "library", "garage"]
SCENES = ["reading", "movie", "dinner", "night"]
WISHES = [
    "And please book me a table for two downtown.",
    "And tell me the capital of the country my aunt lives in.",
    "And sell my old bicycle.",
    "And send flowers to my sister.",
]


class SmartHomeEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=12):
        super().__init__(max_turns=max_turns)

    def reset(self, seed=None):
        rng = random.Random(seed)
        rooms = rng.sample(ROOMS, 4)
        self.lit, self.warm = rooms[:2]
        # A room has either a dimmer or a plain switch, and either a radiator or a heat pump.
        self.dimmer = rng.random() < 0.5
        self.pump = rng.random() < 0.5
        kinds = {
            room: [rng.choice(["dimmer", "switch"]), rng.choice(["radiator", "heat pump"])]
            for room in sorted(rooms)
        }
        kinds[self.lit][0] = "dimmer" if self.dimmer else "switch"
        kinds[self.warm][1] = "heat pump" if self.pump else "radiator"
        self.degrees, self.scene = rng.randint(17, 24), rng.choice(SCENES)
        self._state = {
            "kinds": kinds,
            "inspected": [],
            "light": {},
            "heat": {},
            "declined": False,
            "scene": None,
        }
        self._tools = {
            "inspect_room": self._tool("Tell which devices a room has.", room="string"),
            "dim_light": self._tool("Set a dimmer in percent.", room="string", percent="integer"),
            "switch_light": self._tool("Use a plain switch.", room="string", to=["on", "off"]),
            "set_radiator": self._tool("Set a radiator.", room="string", degrees="integer"),
            "set_heat_pump": self._tool("Set a heat pump.", room="string", degrees="integer"),
            "play_music": self._tool("Play music in a room.", room="string"),
            "run_scene": self._tool("Start a scene in the whole home.", scene=SCENES),
            "decline_request": self._tool(
                "Say no to what the other tools cannot do.",
                reason=["not_supported", "not_allowed"],
            ),
        }
        self._user_messages = [
            f"Full light in the {self.lit}, please.",
            f"Heat the {self.warm} to {self.degrees} degrees.",
            rng.choice(WISHES),
            f"Then start the {self.scene} scene.",
        ]
        self._message_criteria = [
            lambda s: s["light"].get(self.lit) == 100,
            lambda s: s["heat"].get(self.warm) == self.degrees,
            lambda s: s["declined"],
            lambda s: s["scene"] == self.scene,
        ]
        self._expected_answer = "done"
        return self._build_observation(), {}

    def tool_inspect_room(self, room):
        if room not in self._state["kinds"]:
            return "Error: no such room"
        self._state["inspected"].append(room)
        return "It has a {} for the light and a {} for warmth.".format(*self._state["kinds"][room])

    def tool_dim_light(self, room, percent):
        if self._state["kinds"].get(room, [None])[0] != "dimmer":
            return "Error: no dimmer there"
        if not 0 <= int(percent) <= 100:
            return "Error: between 0 and 100"
        self._state["light"][room] = int(percent)
        return "Dimmer set"

    def tool_switch_light(self, room, to):
        if self._state["kinds"].get(room, [None])[0] != "switch":
            return "Error: no plain switch there"
        if to not in ("on", "off"):
            return "Error: on or off"
        self._state["light"][room] = 100 if to == "on" else 0
        return "Switched"

    def tool_set_radiator(self, room, degrees):
        return self._heat("radiator", room, degrees)

    def tool_set_heat_pump(self, room, degrees):
        return self._heat("heat pump", room, degrees)

    def tool_play_music(self, room):
        return "Error: the loudspeaker is offline"

    def tool_run_scene(self, scene):
        if scene not in SCENES:
            return "Error: scene must be one of " + ", ".join(SCENES)
        if self._current_msg < 3:
            return "Error: the user is not ready for a scene"
        self._state["scene"] = scene
        return "Scene started"

    def tool_decline_request(self, reason):
        if reason not in ("not_supported", "not_allowed"):
            return "Error: unknown reason"
        if self._current_msg != 2:
            return "Error: the present request can be done with the tools"
        self._state["declined"] = reason == "not_supported"
        return "Told the user"

    def solution(self):
        room = [self.lit, self.warm][min(self._current_msg, 1)]
        if self._current_msg < 2 and room not in self._state["inspected"]:
            return self._call("inspect_room", room=room)
        if self._current_msg == 0 and self.dimmer:
            return self._call("dim_light", room=self.lit, percent=100)
        if self._current_msg == 0:
            return self._call("switch_light", room=self.lit, to="on")
        if self._current_msg == 1:
            tool = "set_heat_pump" if self.pump else "set_radiator"
            return self._call(tool, room=self.warm, degrees=self.degrees)
        if self._current_msg == 2:
            return self._call("decline_request", reason="not_supported")
        if self._current_msg == 3:
            return self._call("run_scene", scene=self.scene)
        return self._answer()

    def hint(self):
        return (
            "Inspect a room before acting in it, since its devices decide which tool is right. Of "
            "the wishes, a single one is not about the home; decline that."
        )

    def _heat(self, kind, room, degrees):
        if self._state["kinds"].get(room, [None, None])[1] != kind:
            return f"Error: no {kind} there"
        if not 5 <= int(degrees) <= 30:
            return "Error: between 5 and 30 degrees"
        self._state["heat"][room] = int(degrees)
        return "Set"
