"""Smart home with an irrelevant request and a decline_request tool."""
import random

import tool_use_base_env


class SmartHomeEnv(tool_use_base_env.ToolUseBaseEnv):
    def __init__(self, max_turns=12, **kwargs):
        super().__init__(max_turns=max_turns, **kwargs)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self._state = {"lights": {}, "heat": 15, "declined": []}
        room, heat = rng.choice(["hall", "study"]), rng.randint(18, 23)
        number = {"type": "integer"}
        self._tools = {
            "light": {
                "description": "Switch a light.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "room": {"type": "string"},
                        "on": {"type": "string", "enum": ["on", "off"]},
                    },
                    "required": ["room", "on"],
                },
            },
            "heating": {
                "description": "Set the heating.",
                "parameters": {
                    "type": "object", "properties": {"degrees": number}, "required": ["degrees"]
                },
            },
            "decline_request": {
                "description": "Decline what no tool can do.",
                "parameters": {
                    "type": "object",
                    "properties": {"reason": {"type": "string"}},
                    "required": ["reason"],
                },
            },
        }
        self._user_messages = [
            f"Light on in the {room}.", "Order me a pizza.", f"Heat to {heat} degrees.",
        ]
        self._message_criteria = [
            lambda s: s["lights"].get(room) == "on",
            lambda s: len(s["declined"]) == 1,
            lambda s: s["heat"] == heat,
        ]
        self._current_msg = 0
        self._expected_answer = "done"
        return f"User: {self._user_messages[0]}", {}

    def tool_light(self, room, on):
        self._state["lights"][room] = on
        return "ok" + self._advance_if_done()

    def tool_heating(self, degrees):
        self._state["heat"] = degrees
        return "ok" + self._advance_if_done()

    def tool_decline_request(self, reason):
        self._state["declined"].append(reason)
        return "declined" + self._advance_if_done()

    def _check_answer(self, answer):
        return answer.lower() == "done" and self._current_msg >= len(self._user_messages)
