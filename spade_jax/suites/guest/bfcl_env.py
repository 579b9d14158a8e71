"""One multi-turn task of BFCL as an environment; runs in the sandbox only, never imported here.

A reply with tool calls acts on the task's API objects; a reply without any ends the user's turn.
Then the state of every object must equal that after the reference calls, and the results so far
must contain theirs. Where the reference has no call (something is missing), any call is wrong.
Source: Berkeley Function Calling Leaderboard, multi_turn_checker.py; differs in that a call in a
turn without reference calls fails the task.
"""

import copy
import json
import re
import sys
import types

ENTRY, ANSWERS, SOURCES, TOOLS, LATER = json.loads(__DATA__)  # noqa: F821  filled in by bfcl.py
STEPS_PER_TURN = 20
LATE = "I have updated some more functions you can choose from. What about now?"
CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


def load_modules():
    """Make the API modules importable under the names by which they import each other."""
    parts = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code".split(".")
    for end in range(1, len(parts) + 1):
        package = sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(parts[end - 1]))
        package.__path__ = []
    found = {}
    for name, source in SOURCES:
        module = types.ModuleType(name)
        sys.modules[f"{'.'.join(parts)}.{name}"] = module
        exec(compile(source, f"{name}.py", "exec"), module.__dict__)
        found.update(vars(module))
    return found


class Apis:
    """The objects of one side: the agent's, or the reference's."""

    def __init__(self, classes):
        self.objects = {}
        for name in ENTRY["involved_classes"]:
            self.objects[name] = classes[name]()
            if hasattr(self.objects[name], "_load_scenario"):
                given = copy.deepcopy(ENTRY["initial_config"].get(name, {}))
                long = "long_context" in ENTRY["id"]
                self.objects[name]._load_scenario(given, long_context=long)
        self.methods = {
            name: getattr(thing, name)
            for thing in self.objects.values()
            for name in dir(thing)
            if not name.startswith("_") and callable(getattr(thing, name))
        }

    def call(self, run):
        """Run one call; a result or an error is text."""
        try:
            result = run(self.methods)
        except Exception as error:
            return f"Error during execution: {error}"
        if isinstance(result, str):
            return result
        if isinstance(result, dict):
            try:
                return json.dumps(result)
            except (TypeError, ValueError):
                pass
        return str(result)

    def state(self):
        """Give every public attribute of every API."""
        return {
            (name, key): value
            for name, thing in self.objects.items()
            for key, value in vars(thing).items()
            if not key.startswith("_")
        }


def read_calls(reply):
    """Read the tool calls of a reply; None for one that cannot be read."""
    calls = []
    for inside in CALL.findall(reply):
        try:
            call = json.loads(inside)
            arguments = call.get("arguments", {})
            arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
            calls.append((str(call["name"]), dict(arguments)))
        except (ValueError, KeyError, TypeError, AttributeError):
            calls.append(None)
    return calls


class BfclEnv:
    """One task: the user's turns, the policy's calls, and the reference's beside them."""

    max_turns = STEPS_PER_TURN * len(ENTRY["question"])

    def reset(self, seed=None):
        """Begin with fresh APIs on both sides; the task does not depend on the seed."""
        classes = load_modules()
        self.mine, self.reference = Apis(classes), Apis(classes)
        self.known = {tool["function"]["name"] for tool in TOOLS}
        self.turn, self.results = 0, []
        return self._user(), {}

    def get_tools(self):
        """List the functions that may be called."""
        return TOOLS

    def step(self, action):
        """Run the calls of a reply; a reply without calls ends the user's turn and is judged."""
        calls = read_calls(action)
        if calls and self.steps < STEPS_PER_TURN:
            self.steps += 1
            self.called = True
            answers = [self._act(call) for call in calls]
            return json.dumps(answers), 0.0, False, False, {}
        if not self._right():
            return "", 0.0, True, False, {}
        self.turn += 1
        if self.turn == len(ENTRY["question"]):
            return "", 1.0, True, False, {}
        return self._user(), 0.0, False, False, {}

    def _user(self):
        """Open a turn; functions that were held back come with it."""
        self.steps, self.called = 0, False
        late = LATER.get(str(self.turn), [])
        self.known |= {tool["function"]["name"] for tool in late}
        said = [message["content"] for message in ENTRY["question"][self.turn]]
        return "\n".join(said) if said else f"{json.dumps(late)}\n{LATE}"

    def _act(self, call):
        if call is None:
            return "Error during execution: the call is not JSON with name and arguments."
        name, arguments = call
        if name not in self.known:
            return f"Error during execution: no function {name}."
        result = self.mine.call(lambda methods: methods[name](**copy.deepcopy(arguments)))
        self.results.append(result)
        return result

    def _right(self):
        wanted = ANSWERS[self.turn]
        if not wanted:
            return not self.called
        expected = []
        for text in wanted:
            expected.append(self.reference.call(lambda names, text=text: eval(text, dict(names))))
        if not self.called or self.mine.state() != self.reference.state():
            return False
        left = list(self.results)
        for result in expected:
            if result not in left:
                return False
            left.remove(result)
        return True
