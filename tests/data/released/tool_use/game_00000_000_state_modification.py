"""Telecom account: the multi-turn variant with progressive instructions."""
import json
import random

from tool_use_base_env import ToolUseBaseEnv


class TelecomAccountEnv(ToolUseBaseEnv):
    PLANS = ["basic", "family", "unlimited"]

    def __init__(self, max_turns=15):
        super().__init__(max_turns=max_turns)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn_count = 0
        self._call_history = []
        lines = [f"555-{rng.randint(1000, 9999)}" for _ in range(3)]
        self._state = {
            "lines": {number: {"plan": "basic", "roaming": False} for number in lines},
            "notes": [],
        }
        target, plan = lines[1], rng.choice(self.PLANS[1:])
        self._target, self._plan = target, plan
        self._tools = {
            "list_lines": {
                "description": "List all lines of the account.",
                "parameters": {"type": "object", "properties": {}, "required": []},
            },
            "set_plan": {
                "description": "Change the plan of a line.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "line": {"type": "string"},
                        "plan": {"type": "string", "enum": self.PLANS},
                    },
                    "required": ["line", "plan"],
                },
            },
            "set_roaming": {
                "description": "Switch roaming of a line on or off.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "line": {"type": "string"},
                        "options": {
                            "type": "object",
                            "properties": {"enabled": {"type": "boolean"}},
                        },
                    },
                    "required": ["line", "options"],
                },
            },
            "send_brochure": {
                "description": "Send a brochure. Rarely useful.",
                "parameters": {
                    "type": "object",
                    "properties": {"topic": {"type": "string"}},
                    "required": ["topic"],
                },
            },
        }
        self._user_messages = [
            f"Put my second line on the {plan} plan.",
            "Switch roaming on for the same line.",
            "Leave a brochure about travel in my mailbox.",
        ]
        self._message_criteria = [
            lambda s: s["lines"][target]["plan"] == plan,
            lambda s: s["lines"][target]["roaming"] is True,
            lambda s: "travel" in s["notes"],
        ]
        self._current_msg = 0
        self._expected_answer = "done"
        return self._build_observation(), {}

    def _build_observation(self):
        return f"User: {self._user_messages[0]}\nUse the tools." + self._obs_suffix()

    def _advance_if_done(self):
        text = ""
        while self._current_msg < len(self._message_criteria):
            if not self._message_criteria[self._current_msg](self._state):
                break
            self._current_msg += 1
            if self._current_msg < len(self._user_messages):
                text += f"\n\nUser: {self._user_messages[self._current_msg]}"
            else:
                text += "\n\nAll instructions complete. Submit <answer>done</answer>."
        return text

    def _check_answer(self, answer):
        finished = self._current_msg >= len(self._message_criteria)
        return finished and answer.strip().lower() == "done"

    def tool_list_lines(self):
        return json.dumps(self._state["lines"], sort_keys=False) + self._advance_if_done()

    def tool_set_plan(self, line, plan):
        self._state["lines"][line]["plan"] = plan
        return f"{line} is on {plan}." + self._advance_if_done()

    def tool_set_roaming(self, line, options):
        self._state["lines"][line]["roaming"] = bool(options["enabled"])
        return f"Roaming of {line} changed." + self._advance_if_done()

    def tool_send_brochure(self, topic):
        self._state["notes"].append(topic)
        return f"A brochure about {topic} is on its way." + self._advance_if_done()
