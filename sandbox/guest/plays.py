"""Plays of one environment program, kept apart, and what can be asked of each.

A `Stage` holds the compiled program and the play that is on it now. Requests are the dicts of
`Session.submit`; each returns the dict that stands in its outcome, or raises what the program
raised.
"""

import importlib.abc
import importlib.machinery
import linecache
import math
import random
import sys
import types

ACTION_CHARACTERS = 100000
BASE_NAMES = ("Env", "QAEnv", "ToolUseBaseEnv")
MODULE = "environment"
FILE = "environment.py"


class Play:
    """One running environment with everything that is its own."""

    def __init__(self):
        self.env = None
        self.modules = {}  # its copies of the helper modules and its own module
        self.random_state = None
        self.numpy_state = None


class Helpers(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the helper modules by name; each play executes its own copy."""

    def __init__(self, sources):
        self.sources = sources
        self.codes = {}

    def find_spec(self, name, path=None, target=None):
        """Find a helper module by its name."""
        if name in self.sources:
            return importlib.machinery.ModuleSpec(name, self, origin=f"{name}.py")
        return None

    def create_module(self, spec):
        """Leave the making of the module to Python."""
        return None

    def exec_module(self, module):
        """Execute a helper's text in a module, compiled once for all plays."""
        name = module.__name__
        if name not in self.codes:
            self.codes[name] = compiled(self.sources[name], f"{name}.py")
        module.__file__ = f"{name}.py"
        exec(self.codes[name], module.__dict__)


class Stage:
    """The program, its plays, and the one play whose state is in place."""

    def __init__(self, source, modules, prelude):
        self.source, self.prelude = source, prelude
        self.codes = None
        self.helpers = Helpers(modules)
        self.own_names = (*modules, MODULE)
        self.plays = {}
        self.current = None
        self.turns = {
            "load": self.load,
            "reset": self.reset,
            "step": self.step,
            "solution": self.solution,
            "hint": self.hint,
            "tools": self.tools,
            "execute_tool": self.execute_tool,
            "criteria": self.criteria,
        }
        sys.meta_path.insert(0, self.helpers)

    def answer(self, request):
        """Answer one request; what the program raises comes out as it is."""
        number = request["play"]
        if request["op"] == "drop":
            return self.drop(number)
        if request["op"] == "load":
            self.enter(Play())
            self.plays[number] = self.current
        elif number not in self.plays or self.plays[number].env is None:
            raise LookupError(f"play {number} is not loaded")
        else:
            self.enter(self.plays[number])
        return self.turns[request["op"]](self.current, request)

    def enter(self, play):
        """Put the state of `play` in place of the state of the play before."""
        if play is self.current:
            return
        numpy = sys.modules.get("numpy")
        if self.current is not None:
            before = self.current
            before.random_state = random.getstate()
            before.numpy_state = numpy.random.get_state() if numpy else None
            before.modules = {n: sys.modules[n] for n in self.own_names if n in sys.modules}
        for name in self.own_names:
            sys.modules.pop(name, None)
        sys.modules.update(play.modules)
        if play.random_state is not None:
            random.setstate(play.random_state)
        if numpy and play.numpy_state is not None:
            numpy.random.set_state(play.numpy_state)
        self.current = play

    def drop(self, number):
        """Forget a play and what is its own."""
        play = self.plays.pop(number, None)
        if play is not None:
            play.env, play.modules = None, {}
            if play is self.current:
                for name in self.own_names:
                    sys.modules.pop(name, None)
                self.current = None
        return {}

    def load(self, play, request):
        """Execute prelude and program in a fresh namespace and construct the environment."""
        random.seed(request["seed"])
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(request["seed"] % 2**32)
        if self.codes is None:
            self.codes = (compiled(self.prelude, "prelude.py"), compiled(self.source, FILE))
        module = types.ModuleType(MODULE)
        module.__file__ = FILE
        sys.modules[MODULE] = module
        names = module.__dict__
        exec(self.codes[0], names)
        given = dict(names)
        exec(self.codes[1], names)
        found = environment_class(names, given)
        play.env = construct(found, request.get("max_turns"), request.get("pacing", "respect"))
        return {"class_name": found.__name__, "max_turns": whole(play.env)}

    def reset(self, play, request):
        """Reset: the observation, and what breaks the contract."""
        result = play.env.reset(seed=request["seed"])
        if type(result) is str:
            observation, fault = result, ""
        elif type(result) is tuple and len(result) == 2:
            observation, extra = result
            fault = ""
            if type(observation) is not str:
                fault = f"reset() gave an observation of type {kind(observation)}, not str."
            elif type(extra) is not dict:
                fault = f"reset() gave an info of type {kind(extra)}, not dict."
        else:
            observation, fault = "", f"reset() gave {kind(result)}, not (observation, info)."
        if not fault and not observation:
            fault = "reset() gave an empty observation."
        return {"observation": plain(observation), "contract": fault}

    def step(self, play, request):
        """Step: the five values as far as they are sound, and what breaks the contract."""
        action = request["action"]
        action = "" if action is None else action if type(action) is str else str(action)
        result = play.env.step(action[:ACTION_CHARACTERS])
        if type(result) is not tuple or len(result) != 5:
            count = f" of {len(result)}" if isinstance(result, (tuple, list)) else ""
            fault = (
                f"step() gave {kind(result)}{count}, "
                "not the tuple (observation, reward, terminated, truncated, info)."
            )
            return stepped("", None, False, False, fault)
        observation, reward, terminated, truncated, extra = result
        fault = step_fault(observation, reward, terminated, truncated, extra)
        value, reward_fault = finite(reward)
        return stepped(
            plain(observation), value, terminated is True, truncated is True, fault or reward_fault
        )

    def solution(self, play, request):
        """Ask for the program's own solution."""
        return said(play.env, "solution")

    def hint(self, play, request):
        """Ask for the program's hint."""
        return said(play.env, "hint")

    def tools(self, play, request):
        """Ask for the list of tools, None where the program has none."""
        listing = getattr(play.env, "get_tools", None)
        return {"tools": listing() if callable(listing) else None}

    def execute_tool(self, play, request):
        """Call a tool beside the turns: its output and return code."""
        result = play.env.execute_tool(request["name"], request["arguments"])
        if not isinstance(result, dict):
            raise TypeError(f"execute_tool() gave {kind(result)}, not a dict")
        code = result.get("returncode")
        code = code if type(code) is int else 1
        return {"output": plain(str(result.get("output", ""))), "returncode": code}

    def criteria(self, play, request):
        """Evaluate the success criteria, None where the program has none."""
        tests = getattr(play.env, "_message_criteria", None)
        if not isinstance(tests, (list, tuple)):
            return {"criteria": None}
        return {"criteria": [holds(test, getattr(play.env, "_state", None)) for test in tests]}


def compiled(source, file):
    """Compile a text, and let tracebacks show its lines."""
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    return compile(source, file, "exec", dont_inherit=True)


def environment_class(names, given):
    """Find the first attribute that is an environment, in order of definition."""
    for name, value in names.items():
        if not name.endswith("Env") or name in BASE_NAMES or not callable(value):
            continue
        if name not in given or given[name] is not value:
            return value
    raise LookupError("no class whose name ends in Env is defined at module level")


def construct(found, cap, pacing):
    """Construct an environment; `respect` keeps the designed turn limit up to the cap."""
    if pacing == "force":
        try:
            return found(max_turns=cap)
        except TypeError:
            env = found()
            env.max_turns = cap
            return env
    env = found()
    if cap is not None:
        designed = whole(env)
        env.max_turns = min(designed, cap) if designed else cap
    return env


def whole(env):
    """The turn limit of an environment where it is a positive int, else None."""
    turns = getattr(env, "max_turns", None)
    return turns if type(turns) is int and turns > 0 else None


def said(env, name):
    """Call an optional method that gives text."""
    method = getattr(env, name, None)
    if not callable(method):
        return {"present": False, name: None}
    value = method()
    return {"present": True, name: None if value is None else plain(str(value))}


def holds(test, state):
    """Evaluate one criterion: true, false, or the error as text."""
    try:
        return bool(test(state))
    except Exception as error:
        return f"error: {type(error).__name__}: {error}"[:500]


def step_fault(observation, reward, terminated, truncated, extra):
    """Name the first field of a step whose type is not exactly the contract's, or nothing."""
    wanted = (
        ("observation", observation, (str,)),
        ("reward", reward, (int, float)),
        ("terminated", terminated, (bool,)),
        ("truncated", truncated, (bool,)),
        ("info", extra, (dict,)),
    )
    for name, value, types_ in wanted:
        if type(value) not in types_:
            names = " or ".join(t.__name__ for t in types_)
            return f"step() gave {name} of type {kind(value)}, not {names}."
    return ""


def finite(reward):
    """The reward as a finite number, or None with the fault named."""
    if type(reward) not in (int, float):
        return None, ""
    try:
        value = float(reward)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        return None, f"step() gave a reward that is not finite: {value}."
    return reward, ""


def stepped(observation, reward, terminated, truncated, fault):
    """Put together the answer to a step."""
    return {
        "observation": observation,
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated,
        "contract": fault,
    }


def plain(text):
    """Give a text as a plain string, and nothing for what is none."""
    return str.__str__(text) if isinstance(text, str) else ""


def kind(value):
    """Name the type of a value."""
    return type(value).__name__
