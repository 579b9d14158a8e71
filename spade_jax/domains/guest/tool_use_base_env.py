"""Base class of tool-use environments, shipped into the sandbox as the module of this name.

A subclass sets in `reset`: `_tools` (name -> {"description", "parameters": JSON schema}), `_state`,
`_user_messages` (instructions shown one after the other), `_message_criteria` (as many callables
state -> bool), `_expected_answer`. Each tool is a method `tool_<name>(**arguments) -> str`.
Only the standard library is used: the text of this file runs where nothing else is installed.

Source: SPADE, arXiv:2608.19197, tool-use setting. Differs: nested JSON arguments survive, several
calls of a reply run in order, think text is dropped, and the subclass need not write
`_advance_if_done`; the default passes every instruction that already holds.
"""

import functools
import json
import re

ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
FUNCTION = re.compile(r"<function=([^>\s]+)\s*>(.*?)(?:</function>|\Z)", re.DOTALL)
PARAMETER = re.compile(r"<parameter=([^>\s]+)\s*>(.*?)(?:</parameter>|\Z)", re.DOTALL)
FORMAT = (
    'Format error: reply with <tool_call>{"name": ..., "arguments": {...}}</tool_call> '
    "or with <answer>...</answer>."
)


def parse_calls(text):
    """Read the tool calls of a reply, in order.

    Args:
        text: a reply; JSON and XML forms, in <tool_call> tags or as bare <function=...> blocks.
    Returns:
        (calls, broken): list of (name, arguments), and how many blocks could not be read.
    """
    blocks = CALL.findall(text)
    if not blocks and FUNCTION.search(text):
        blocks = [text]
    calls, broken = [], 0
    for block in blocks:
        try:
            calls += _xml_calls(block) if "<function=" in block else _json_calls(block)
        except (ValueError, RecursionError):
            broken += 1
    return calls, broken


def _json_calls(block):
    value = json.loads(block)
    return [_json_call(item) for item in (value if isinstance(value, list) else [value])]


def _json_call(item):
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise ValueError("a call is an object with a name")
    return item["name"], read_arguments(item.get("arguments", item.get("parameters")))


def read_arguments(arguments):
    """Turn arguments (object, JSON text of one, or None) into a dict; ValueError otherwise."""
    if isinstance(arguments, str):
        arguments = json.loads(arguments) if arguments.strip() else {}
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise ValueError("arguments must be an object")
    return arguments


def _xml_calls(block):
    found = FUNCTION.findall(block)
    if not found:
        raise ValueError("no readable <function=...>")
    return [
        (name, {key: _xml_value(value) for key, value in PARAMETER.findall(body)})
        for name, body in found
    ]


def _xml_value(text):
    try:
        return json.loads(text.strip())
    except (ValueError, RecursionError):
        return text.strip()


class ToolUseBaseEnv:
    """A user with instructions, tools that act on a state, and an answer that ends the episode."""

    # Defaults on the class: a subclass that skips super().__init__() still works.
    max_turns = 10
    turn_count = 0
    _tools = {}
    _state = {}
    _expected_answer = "done"
    _call_history = ()
    _user_messages = ()
    _message_criteria = ()
    _current_msg = 0
    _over = False
    _asked_to_advance = False

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        reset = cls.__dict__.get("reset")
        if reset is not None:
            cls.reset = _counted_anew(reset)

    def __init__(self, max_turns=10, **_):
        self.max_turns = max_turns
        self._tools = {}
        self._state = {}
        self.reset()

    def reset(self, seed=None):
        self._begin()
        return self._build_observation(), {}

    def step(self, action):
        """Play one reply; every call counts a turn. Returns the usual five values."""
        if self._over:
            return "The episode is over.", 0.0, True, False, {}
        self.turn_count += 1
        text = str("" if action is None else action).rsplit("</think>", 1)[-1]
        answers = ANSWER.findall(text)
        if answers:
            if self._check_answer(answers[-1].strip()):
                self._over = True
                return "Correct!", 1.0, True, False, {}
            return self._go_on(self._incorrect_answer_feedback(), 0.0)
        calls, broken = parse_calls(text)
        shown = [f"[{name}] {self.execute_tool(name, given)['output']}" for name, given in calls]
        if broken or not calls:
            return self._go_on("\n".join([*shown, FORMAT]), -0.1)
        return self._go_on("\n".join(shown), 0.0)

    def execute_tool(self, name, arguments=None):
        """Call a tool without counting a turn. Returns {"output": text, "returncode": 0 or 1}."""
        tool = getattr(self, f"tool_{name}", None)
        if tool is None:
            known = ", ".join(self._tools)
            return {"output": f"Unknown tool {str(name)[:80]!r}. Tools: {known}.", "returncode": 1}
        self._asked_to_advance = False
        try:
            given = read_arguments(arguments)
            output = str(tool(**given))
        except Exception as fault:  # whatever a tool raises is that tool's answer
            return {"output": f"Error calling {name}: {str(fault)[:300]}", "returncode": 1}
        self._call_history.append({"name": name, "arguments": given, "result": output})
        own = type(self)._advance_if_done is not ToolUseBaseEnv._advance_if_done
        if not own and not self._asked_to_advance:
            output += self._advance_if_done()
        return {"output": output, "returncode": 0}

    def get_tools(self):
        """List the tools as function schemas for a chat template."""
        empty = {"type": "object", "properties": {}}
        return [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": tool.get("description", ""),
                    "parameters": tool.get("parameters") or empty,
                },
            }
            for name, tool in self._tools.items()
        ]

    def close(self):
        pass

    def _begin(self):
        self.turn_count, self._current_msg, self._over = 0, 0, False
        self._call_history = []

    def _build_observation(self):
        """Write the first observation: the pending instruction and the tools."""
        lines = [f"User: {self._user_messages[0]}"] if self._user_messages else []
        lines.append("Tools:")
        for name, tool in self._tools.items():
            lines.append(f"- {name}({_parameters(tool)}): {tool.get('description', '')}")
        lines.append(
            'Act with <tool_call>{"name": ..., "arguments": {...}}</tool_call>. When nothing is '
            "left to do, close with <answer>...</answer>."
        )
        return "\n".join(lines)

    def _advance_if_done(self):
        """Pass every instruction whose criterion holds; return the text that tells the next."""
        self._asked_to_advance = True
        told = ""
        while self._current_msg < len(self._message_criteria) and self._criterion_holds():
            self._current_msg += 1
            if self._current_msg < len(self._user_messages):
                told += f"\nUser: {self._user_messages[self._current_msg]}"
            else:
                told += f"\nUser: That is all. Answer with the word {self._expected_answer}."
        return told

    def _criterion_holds(self):
        try:
            return bool(self._message_criteria[self._current_msg](self._state))
        except Exception:  # a criterion that cannot be evaluated does not hold
            return False

    def _check_answer(self, answer):
        if self._current_msg < len(self._message_criteria):
            return False
        expected = str(self._expected_answer).strip()
        if str(answer).strip().lower() == expected.lower():
            return True
        try:
            return abs(_number(answer) - _number(expected)) < 0.01
        except ValueError:
            return False

    def _incorrect_answer_feedback(self):
        if self._current_msg < len(self._user_messages):
            place = f"{self._current_msg + 1}/{len(self._user_messages)}"
            pending = self._user_messages[self._current_msg]
            return f"Not complete. Instruction {place} is pending: {pending}"
        return "Wrong answer."

    def _go_on(self, text, reward):
        if self.turn_count < self.max_turns:
            return text, reward, False, False, {}
        self._over = True
        return f"{text}\nOut of turns.{self._reveal()}", 0.0, False, True, {}

    def _obs_suffix(self):
        """Nothing: files of the public implementation append it to their observations."""
        return ""

    def _reveal(self):
        solve = getattr(self, "solution", None)
        try:
            return f" Solution: {solve() if callable(solve) else self._expected_answer}"
        except Exception:  # the closing words must not fail with the subclass's solution
            return f" Solution: {self._expected_answer}"

    def _tool(self, description, /, **rules):
        """Describe a tool whose parameters are all required, for `_tools`.

        Args:
            rules: parameter -> a JSON type name, a list of allowed texts, or a JSON schema.
        """
        properties = {}
        for key, rule in rules.items():
            listed = {"type": "string", "enum": rule} if isinstance(rule, list) else rule
            properties[key] = {"type": rule} if isinstance(rule, str) else listed
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        return {"description": description, "parameters": schema}

    def _call(self, name, /, **arguments):
        """Write a call as action text, for `solution`."""
        return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"

    def _answer(self):
        """Write the closing answer as action text, for `solution`."""
        return f"<answer>{self._expected_answer}</answer>"


def _counted_anew(reset):
    @functools.wraps(reset)
    def fresh(self, *arguments, **keywords):
        self._begin()
        return reset(self, *arguments, **keywords)

    return fresh


def _parameters(tool):
    schema = tool.get("parameters") or {}
    required = schema.get("required") or ()
    shown = []
    for key, rule in (schema.get("properties") or {}).items():
        kind = "|".join(map(str, rule["enum"])) if "enum" in rule else rule.get("type", "any")
        shown.append(f"{key}{'' if key in required else '?'}: {kind}")
    return ", ".join(shown)


def _number(text):
    return float(str(text).replace("$", "").replace(",", "").strip())
