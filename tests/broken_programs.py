"""Environment programs that break one property each, and the sound ones they are made from."""

GAME = """\
import random
import re


class WarehouseEnv:
    def __init__(self, max_turns=3):
        self.max_turns = max_turns
        self.turns = 0
        self.goods = (0, 0, 0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns = 0
        self.goods = tuple(rng.randint(11, 99) for _ in range(3))
        return self._task(), {}

    def _task(self):
        a, b, c = self.goods
        return f"A shelf takes {a} boxes, there are {b} shelves, {c} boxes leave. How many stay?"

    def _answer(self):
        a, b, c = self.goods
        return str(a * b - c)

    def step(self, action):
        self.turns += 1
        found = re.findall(r"\\\\boxed\\{([^{}]*)\\}", action)
        if found and found[-1].strip() == self._answer():
            return "Right.", 1.0, True, False, {}
        over = self.turns >= self.max_turns
        return f"Not right. {self._task()} Use \\\\boxed{{}}.", 0.0, False, over, {}

    def solution(self):
        return self._answer()
"""

COMPACT = """\
class TotalEnv(QAEnv):
    def task(self, rng):
        xs = [rng.randint(10, 99) for _ in range(4)]
        return f"total {xs}", sum(xs), f"the first two make {xs[0] + xs[1]}"
"""

TOOLS = """\
import random
from tool_use_base_env import ToolUseBaseEnv


class LampEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=10):
        super().__init__(max_turns=max_turns)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.room = rng.choice(["kitchen", "hall", "attic", "cellar"])
        self.level = rng.randint(2, 9)
        self._state = {"on": None, "level": 0}
        self._tools = {
            "switch_on": {
                "description": "Switch the lamp of a room on.",
                "parameters": {
                    "type": "object",
                    "properties": {"room": {"type": "string"}},
                    "required": ["room"],
                },
            },
            "set_level": {
                "description": "Set the brightness.",
                "parameters": {
                    "type": "object",
                    "properties": {"level": {"type": "integer"}},
                    "required": ["level"],
                },
            },
        }
        self._user_messages = [f"Light in the {self.room}, please.", f"Set it to {self.level}."]
        room, level = self.room, self.level
        self._message_criteria = [lambda s: s["on"] == room, lambda s: s["level"] == level]
        self._current_msg = 0
        self._expected_answer = "done"
        return self._build_observation(), {}

    def tool_switch_on(self, room):
        self._state["on"] = room
        return "The lamp is on."

    def tool_set_level(self, level):
        self._state["level"] = level
        return "The level is set."

    def solution(self):
        if self._current_msg == 0:
            return self._call("switch_on", room=self.room)
        if self._current_msg == 1:
            return self._call("set_level", level=self.level)
        return self._answer()
"""

SOUND = (("games", GAME), ("compact", COMPACT), ("tool_use", TOOLS))
FIRST_STEP = "        self.turns += 1\n"
RIGHT = "if found and found[-1].strip() == self._answer():"
OBSERVATION = 'leave. How many stay?"'


def _game(old: str, new: str) -> tuple[str, str]:
    assert GAME.count(old) == 1, old
    return "games", GAME.replace(old, new)


def _compact(old: str, new: str) -> tuple[str, str]:
    assert COMPACT.count(old) == 1, old
    return "compact", COMPACT.replace(old, new)


def _tools(old: str, new: str) -> tuple[str, str]:
    assert TOOLS.count(old) == 1, old
    return "tool_use", TOOLS.replace(old, new)


def _in_step(code: str) -> tuple[str, str]:
    return _game(FIRST_STEP, FIRST_STEP + f"        {code}\n")


def _clock() -> tuple[str, str]:
    setting, program = _game(OBSERVATION, OBSERVATION + " + str(time.time() // 3600)")
    return setting, "import time\n" + program


BROKEN = [  # (what is broken, reason it must be refused for, (setting, program))
    ("nothing_there", "no_program", ("games", "  \n")),
    ("huge", "too_long", ("games", GAME + "# x\n" * 20_000)),
    ("open_bracket", "syntax", _game("return str(a * b - c)", "return str(a * b - c")),
    ("deep", "syntax", ("games", "x = " + "-" * 5000 + "1\n" + GAME)),
    ("null_byte", "syntax", ("games", GAME + "\x00")),
    ("other_name", "no_env_class", _game("class WarehouseEnv", "class Warehouse")),
    ("no_step", "missing_method", _game("def step(", "def steps(")),
    ("no_task", "missing_method", _compact("def task(", "def tasks(")),
    ("os", "forbidden_import", _game("import re\n", "import re, os\n")),
    ("path", "forbidden_import", _game("import re\n", "import re\nfrom os import path\n")),
    ("dynamic", "forbidden_import", _game("import re\n", "import re\no = __import__('os')\n")),
    ("module_raises", "load_error", ("games", GAME + "1 / 0\n")),
    ("exits", "load_error", ("games", GAME + "raise SystemExit(0)\n")),
    ("init_raises", "load_error", _game("self.goods = (0, 0, 0)", "self.goods = undefined")),
    ("reset_raises", "reset_error", _game("rng = random.Random(seed)", "rng = random.Rand(seed)")),
    ("no_seed", "reset_error", _game("def reset(self, seed=None)", "def reset(self, start=None)")),
    ("step_raises", "step_error", _in_step("int(action)")),
    ("late_crash", "step_error", _in_step("assert self.turns < 3")),
    ("hint_raises", "hint_error", ("games", GAME + "\n    def hint(self):\n        return 1 / 0")),
    ("four_values", "contract", _game('"Right.", 1.0, True, False, {}', '"Right.", 1.0, True, {}')),
    ("int_flag", "contract", _game("0.0, False, over, {}", "0.0, 0, over, {}")),
    ("bool_reward", "contract", _game("0.0, False, over, {}", "False, False, over, {}")),
    ("empty_task", "contract", _game("return self._task(), {}", 'return "", {}')),
    ("reset_none", "contract", _game("return self._task(), {}", "return None")),
    ("large_reward", "reward_range", _game("0.0, False, over, {}", "-11.0, False, over, {}")),
    ("not_finite", "reward_range", _game("0.0, False, over", "float('nan'), False, over")),
    ("huge_text", "observation_size", _game(OBSERVATION, OBSERVATION + " + ' ' * 50_000 + '!'")),
    ("prints", "output_limit", _in_step("print('x' * 3_000_000)")),
    ("loops", "timeout", _in_step("while True: pass")),
    ("memory", "memory", _in_step("self.big = [0] * (1 << 28)")),
    ("endless", "never_ends", _game("over = self.turns >= self.max_turns", "over = False")),
    ("constant", "constant_task", _game("rng = random.Random(seed)", "rng = random.Random(7)")),
    ("criterion_raises", "criteria_error", _tools('s["level"] == level', 's["power"] == level')),
    ("criterion_holds", "criteria_true_at_reset", _tools('s["on"] == room', 's["level"] == 0')),
    ("wrong_solution", "unwinnable", _game("        return self._answer()", "        return '0'")),
    ("half_a_win", "unwinnable", _game('"Right.", 1.0, True', '"Right.", 0.5, True')),
    ("unreachable", "unwinnable", _tools('self._state["level"] = level', "level = level")),
    ("debug", "answer_visible", _game(OBSERVATION, 'leave. {self._answer()} stay?"')),
    ("told_after", "answer_visible", _game('f"Not right.', 'f"It was {self._answer()}.')),
    ("yes_or_no", "degenerate", _game("str(a * b - c)", '"yes" if (a + b + c) % 2 else "no"')),
    ("always_wins", "degenerate", _game(RIGHT, "if len(action) > 3:")),
    ("silence_wins", "degenerate", _game(RIGHT, f"if not action or {RIGHT[3:]}")),
    ("no_box_wins", "degenerate", _game(RIGHT, f"if not found or {RIGHT[3:]}")),
    ("bare_number_wins", "degenerate", _game(RIGHT, f"if action.isdigit() or {RIGHT[3:]}")),
    ("few_answers", "degenerate", _compact("sum(xs), f", "sum(xs) % 2, f")),
    ("hash_order", "nondeterministic", _game(OBSERVATION, OBSERVATION + " + str(set('abcdefg'))")),
    ("address", "nondeterministic", _game(OBSERVATION, OBSERVATION + " + str(id(self))")),
    ("clock", "nondeterministic", _clock()),
]  # fmt: skip
