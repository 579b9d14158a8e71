"""Ways to break a sound environment program in exactly one property, each with its right reason.

In: the text of a sound program. Out: the text of the mutant. A mutation is text: nothing runs here.
Most mutants keep the whole program under another class name and derive a class from it that
overrides one method, so that what is broken is one property and nothing else.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable
from typing import NamedTuple

ALL = ("compact", "games", "tool_use")
QUESTIONS = ("compact", "games")
TOOLS = ("tool_use",)


class Mutation(NamedTuple):
    """One way to break a program."""

    name: str
    reason: str  # what it must be refused for, of `validate.CHECKS`
    mutate: Callable[[str], str]
    settings: tuple[str, ...] = ALL
    families: tuple[str, ...] = ()  # the only programs it fits, empty for all


def mutations() -> list[Mutation]:
    """List all mutations, in the order of the checks."""
    return [
        *_of_text(), *_of_running(), *_of_values(), *_of_limits(),
        *_of_repetition(), *_of_criteria(), *_of_solutions(), *_of_cheats(), *_of_copies(),
    ]  # fmt: skip


def class_name(source: str) -> str:
    """Name the environment class of a seed program: the first whose name ends in Env."""
    body = ast.parse(source).body
    return next(n.name for n in body if isinstance(n, ast.ClassDef) and n.name.endswith("Env"))


def derived(source: str, body: str) -> str:
    """Keep a program under another class name and derive the environment from it."""
    name = class_name(source)
    base = name.removesuffix("Env") + "Sound"
    kept = _renamed(source, name, base)
    return f"{kept}\n\nclass {name}({base}):\n{textwrap.indent(body, '    ')}\n"


def _renamed(source: str, name: str, other: str) -> str:
    return re.sub(rf"\b{name}\b", other, source)


def _derive(body: str) -> Callable[[str], str]:
    return lambda source: derived(source, body)


def _reset(code: str) -> Callable[[str], str]:
    """Add code to reset, which sees observation o, info i and seed."""
    return _derive(
        "def reset(self, seed=None):\n    o, i = super().reset(seed)\n"
        f"{textwrap.indent(code, '    ')}\n    return o, i"
    )


def _step(code: str) -> Callable[[str], str]:
    """Add code to step, which sees action, observation o, reward r, flags t and u, info i."""
    return _derive(
        "def step(self, action):\n    o, r, t, u, i = super().step(action)\n"
        f"{textwrap.indent(code, '    ')}\n    return o, r, t, u, i"
    )


def _solution(code: str) -> Callable[[str], str]:
    """Add code to solution, which sees what it says as s."""
    return _derive(
        "def solution(self):\n    s = super().solution()\n"
        f"{textwrap.indent(code, '    ')}\n    return s"
    )


def _wins(condition: str) -> Callable[[str], str]:
    """Win where a condition on the text `a` of the action holds, or the program says so."""
    return _step(
        "a = str(action).replace('\\\\boxed{', '').replace('<answer>', '')\n"
        "a = a.replace('</answer>', '').rstrip('}').strip()\n"
        f"if {condition}:\n    o, r, t, u = 'Right.', 1.0, True, False"
    )


def _before(code: str) -> Callable[[str], str]:
    return lambda source: f"{code}\n{source}"


def _after(code: str) -> Callable[[str], str]:
    return lambda source: f"{source}\n{code}\n"


def _without_last(part: str) -> Callable[[str], str]:
    return lambda source: "".join(source.rpartition(part)[::2])


def _rename(old: str, new: str) -> Callable[[str], str]:
    return lambda source: source.replace(f"def {old}(", f"def {new}(")


def _of_text() -> list[Mutation]:
    return [
        Mutation("open_bracket", "syntax", _without_last(")")),
        Mutation("broken_off", "syntax", lambda s: s[: s.rindex("return")] + "return ("),
        Mutation("indent", "syntax", _after("  x = 1\n    y = 2")),
        Mutation("print_statement", "syntax", _after("print 'hello'")),
        Mutation("prose_around", "syntax", _before("Here is the environment you asked for:")),
        Mutation("other_class", "no_env_class", lambda s: _renamed(s, class_name(s), "TheGame")),
        Mutation("nested_class", "no_env_class", _inside_function),
        Mutation("no_step", "missing_method", _rename("step", "act"), ("games",)),
        Mutation("no_reset", "missing_method", _rename("reset", "start"), ("games", "tool_use")),
        Mutation("no_task", "missing_method", _rename("task", "question"), ("compact",)),
        Mutation("os", "forbidden_import", _before("import os")),
        Mutation("subprocess", "forbidden_import", _before("from subprocess import run")),
        Mutation("socket", "forbidden_import", _reset("import socket")),
        Mutation("dynamic_import", "forbidden_import", _reset("__import__('os').getcwd()")),
        Mutation("importlib", "forbidden_import", _step("import importlib as lib")),
    ]  # fmt: skip


def _of_running() -> list[Mutation]:
    return [
        Mutation("module_raises", "load_error", _after("LIMITS = {}['limit']")),
        Mutation("module_exits", "load_error", _after("raise SystemExit(0)")),
        Mutation("class_body", "load_error", _derive("size = undefined_name")),
        Mutation("needs_argument", "load_error", _derive("def __init__(self, level):\n    pass")),
        Mutation("reset_raises", "reset_error", _reset("if seed:\n    {}['k']")),
        Mutation("some_seeds", "reset_error",
                 _reset("if seed and seed % 2:\n    raise IndexError('empty')")),
        Mutation("no_seed", "reset_error", _derive("def reset(self, start=0):\n    "
                                                   "return super().reset(start)")),
        Mutation("empty_action", "step_error", _step("if not str(action).strip():\n    1 / 0")),
        Mutation("not_a_number", "step_error", _step("float(str(action).strip('\\\\boxed{}'))")),
        Mutation("odd_letters", "step_error", _step("str(action).encode('ascii')")),
        Mutation("wrong_answer", "step_error", _step("if not t:\n    o[10_000]")),
        Mutation("second_turn", "step_error",
                 _step("self.n = getattr(self, 'n', 0) + 1\nif self.n > 1:\n    self.undefined")),
        Mutation("long_words", "step_error", _step("assert len(str(action)) < 30")),
        Mutation("hint_raises", "hint_error", _derive("def hint(self):\n    return self.clue")),
        Mutation("hint_needs_more", "hint_error", _derive("def hint(self, level):\n    return ''")),
    ]  # fmt: skip


def _of_values() -> list[Mutation]:
    return [
        Mutation("reset_list", "contract", _derive("def reset(self, seed=None):\n    "
                                                   "return list(super().reset(seed))")),
        Mutation("reset_none", "contract", _derive("def reset(self, seed=None):\n    "
                                                   "super().reset(seed)")),
        Mutation("no_words", "contract", _reset("o = ''")),
        Mutation("four_values", "contract", _derive("def step(self, action):\n    "
                                                    "return super().step(action)[:4]")),
        Mutation("int_flags", "contract", _step("t = int(t)")),
        Mutation("text_reward", "contract", _step("r = str(r)")),
        Mutation("bool_reward", "contract", _step("r = r == 1.0")),
        Mutation("numpy_reward", "contract", _step("import numpy\nr = numpy.float64(r)")),
        Mutation("info_none", "contract", _step("i = None")),
        Mutation("list_observation", "contract", _step("o = o.splitlines()")),
        Mutation("tools_unnamed", "contract", _derive("def get_tools(self):\n    return [{}]"),
                 TOOLS),
        Mutation("no_tools", "contract", _derive("def get_tools(self):\n    return []"), TOOLS),
        Mutation("hundred", "reward_range", _step("r = 100.0 * r if t else r")),
        Mutation("large_penalty", "reward_range", _step("r = r if t else -50.0")),
        Mutation("nan", "reward_range", _step("r = r if t else float('nan')")),
        Mutation("infinite", "reward_range", _step("r = r if r == 1.0 else -1e999")),
        Mutation("grows", "reward_range",
                 _step("self.n = getattr(self, 'n', 0) + 1\nr = r if t else r - 20.0 * self.n")),
    ]  # fmt: skip


def _of_limits() -> list[Mutation]:
    forever = "while True:\n    pass"
    return [
        Mutation("long_task", "observation_size", _reset("o += ' .' * 15_000 + 'end'")),
        Mutation("long_answer", "observation_size", _step("o += 'log ' * 8_000 + 'end'")),
        Mutation("flood_step", "output_limit", _step("print('x' * 3_000_000)")),
        Mutation("flood_reset", "output_limit", _reset("print('line\\n' * 600_000)")),
        Mutation("flood_load", "output_limit", _after("print('y' * 4_000_000)")),
        Mutation("loops_load", "timeout", _after(forever)),
        Mutation("loops_reset", "timeout", _reset(forever)),
        Mutation("loops_step", "timeout", _step(f"if not t:\n{textwrap.indent(forever, '    ')}")),
        Mutation("sleeps", "timeout", _step("import time\ntime.sleep(60)")),
        Mutation("loops_solution", "timeout", _solution(forever)),
        Mutation("memory_load", "memory", _after("TABLE = list(range(1 << 26))")),
        Mutation("memory_reset", "memory", _reset("self.table = bytearray(1 << 30)")),
        Mutation("memory_step", "memory", _step("self.log = [[k] for k in range(1 << 24)]")),
        Mutation("never_ends", "never_ends", _step("t, u = t and r == 1.0, False")),
        Mutation("never_ends_unless_told", "never_ends",
                 _step("u = u and 'stop' in str(action)\nt = t and r == 1.0")),
    ]  # fmt: skip


def _of_repetition() -> list[Mutation]:
    name, also = "nondeterministic", "o += ' Round {}.'.format"
    return [
        Mutation("clock", name, _reset("import time\n" + also + "(time.time())")),
        Mutation("day", name, _reset("import datetime\n" + also + "(datetime.date.today())")),
        Mutation("hash", name, _reset(also + "(hash('round') % 1000)")),
        Mutation("set_order", name, _reset(also + "(list({'a', 'b', 'c', 'd', 'e', 'f', 'g'}))")),
        Mutation("address", name, _reset(also + "(id(self))")),
        Mutation("object_words", name, _reset(also + "(object())")),
        Mutation("uuid", name, _reset("import uuid\n" + also + "(uuid.uuid4())")),
        Mutation("own_seed", name, _derive(
            "def reset(self, seed=None):\n    import random\n    "
            "return super().reset(random.Random().randrange(10**6))")),
        Mutation("numpy_seed", name, _derive(
            "def reset(self, seed=None):\n    import numpy\n    "
            "return super().reset(int(numpy.random.default_rng().integers(10**6)))")),
        Mutation("hashed_seed", name, _derive("def reset(self, seed=None):\n    "
                                              "return super().reset(hash(str(seed)) % 10**6)")),
        Mutation("clock_in_step", name, _step("import time\no += str(time.time_ns() % 10**9)")),
        Mutation("reward_by_hash", name, _step("r = r if t else -(hash(str(action)) % 97) / 97")),
        Mutation("one_seed", "constant_task", _derive("def reset(self, seed=None):\n    "
                                                      "return super().reset(7)")),
        Mutation("seed_lost", "constant_task", _derive(
            "def reset(self, seed=None):\n    return super().reset((seed or 0) // 10**12)")),
        Mutation("one_text", "constant_task", _derive(
            "def reset(self, seed=None):\n    super().reset(3)\n    return 'Solve it.', {}")),
    ]  # fmt: skip


def _of_criteria() -> list[Mutation]:
    def first(text: str) -> Callable[[str], str]:
        return _reset(f"self._message_criteria = [{text}, *self._message_criteria[1:]]")

    def last(text: str) -> Callable[[str], str]:
        return _reset(f"self._message_criteria = [*self._message_criteria[:-1], {text}]")

    return [
        Mutation("key", "criteria_error", first("lambda s: s['never_set']"), TOOLS),
        Mutation("attribute", "criteria_error", last("lambda s: s.done"), TOOLS),
        Mutation("no_state", "criteria_error", last("lambda: True"), TOOLS),
        Mutation("no_function", "criteria_error", first("'order is sent'"), TOOLS),
        Mutation("true", "criteria_true_at_reset", first("lambda s: True"), TOOLS),
        Mutation("all_of_none", "criteria_true_at_reset",
                 last("lambda s: all(x for x in s.get('orders_sent', []))"), TOOLS),
        Mutation("not_yet", "criteria_true_at_reset",
                 last("lambda s: s.get('error') is None"), TOOLS),
    ]  # fmt: skip


def _of_solutions() -> list[Mutation]:
    hidden = _reset("o = f'[state: {self.solution()}] ' + o")
    return [
        Mutation("solution_wrong", "unwinnable", _solution("s = 'no such thing'")),
        Mutation("solution_raises", "unwinnable", _solution("raise KeyError(s)")),
        Mutation("solution_none", "unwinnable", _solution("s = None")),
        Mutation("solution_spoilt", "unwinnable", _solution("s = s[1:-1] + '#'")),
        Mutation("nine_tenths", "unwinnable", _step("r = 0.9 if r == 1.0 else r")),
        Mutation("no_reward", "unwinnable", _step("r = 0.0")),
        Mutation("win_cuts_off", "unwinnable", _step("t, u = t and r != 1.0, u or r == 1.0")),
        Mutation("some_unwinnable", "unwinnable", _derive(
            "def reset(self, seed=None):\n    self.odd = (seed or 0) % 2\n    "
            "return super().reset(seed)\ndef step(self, action):\n    "
            "o, r, t, u, i = super().step(action)\n    return o, r * (1 - self.odd), t, u, i")),
        Mutation("criterion_false", "unwinnable", _reset(
            "self._message_criteria = [*self._message_criteria[:-1], lambda s: False]"), TOOLS),
        Mutation("other_word", "unwinnable", _derive("def _check_answer(self, answer):\n    "
                                                     "return answer == 'finished'"), TOOLS),
        Mutation("debug_before", "answer_visible", hidden),
        Mutation("debug_behind", "answer_visible", _reset("o += f'\\n(debug: {self.solution()})'")),
        Mutation("answer_alone", "answer_visible", _reset("o += '\\n' + str(self.solution())")),
        Mutation("marked", "answer_visible", _reset("o += f' Answer *{self.solution()}*. Go.'")),
        Mutation("upper_case", "answer_visible",
                 _reset("o += f'\\nKEY={self.solution()!s}'.upper()"), QUESTIONS),
        Mutation("told_when_wrong", "answer_visible",
                 _step("o = o if t else f'{o} It was {self.solution()}.'"), ("compact",)),
        Mutation("culprit_shown", "answer_visible",
                 _reset("o += f' (debug {self.culprit})'"), ("games",), ("bad_commit",)),
    ]  # fmt: skip


def _of_cheats() -> list[Mutation]:
    name = "degenerate"
    return [
        Mutation("anything_wins", name, _wins("len(a) > 0")),
        Mutation("silence_wins", name, _wins("not a")),
        Mutation("any_part_wins", name, _wins("a in str(self.solution())"), QUESTIONS),
        Mutation("holds_answer", name, _wins("str(self.solution()) in a"), ("compact",)),
        Mutation("any_letter_wins", name,
                 _wins("len(a) > 0 and a.lower() in str(self.solution()).lower()"), QUESTIONS),
        Mutation("any_digit_wins", name, _wins("a.isdigit()"), QUESTIONS),
        Mutation("any_word_wins", name, _wins("a.isalpha() and len(a) < 12")),
        Mutation("echo_wins", name, _derive(
            "def reset(self, seed=None):\n    o, i = super().reset(seed)\n    self.seen = o[:30]\n"
            "    return o, i\ndef step(self, action):\n    o, r, t, u, i = super().step(action)\n"
            "    won = self.seen in action\n"
            "    return ('Yes', 1.0, True, False, {}) if won else (o, r, t, u, i)"), QUESTIONS),
        Mutation("second_try_wins", name, _derive(
            "def step(self, action):\n    o, r, t, u, i = super().step(action)\n    "
            "self.n = getattr(self, 'n', 0) + 1\n    return o, 1.0, True, False, i"), QUESTIONS),
        Mutation("paid_at_the_end", name, _step("if u:\n    r, t, u = 1.0, True, False"),
                 ("games",)),
        Mutation("half_for_nothing", name, _step("if u:\n    r, t, u = 0.5, True, False"),
                 ("games", "tool_use")),
        Mutation("yes_or_no", name, _derive(
            "def reset(self, seed=None):\n    import random\n    self.yes = random.Random(seed)"
            ".choice(['yes', 'no'])\n    o, i = super().reset(seed)\n"
            "    return o + ' Yes or no?', i\n"
            "def solution(self):\n    return self.yes\n"
            "def step(self, action):\n    won = self.yes in str(action)\n    "
            "return 'Over.', float(won), True, False, {}"), QUESTIONS),
        Mutation("done_wins", name, _derive("def _check_answer(self, answer):\n    "
                                            "return answer == 'done'"), TOOLS),
        Mutation("any_answer_wins", name, _derive("def _check_answer(self, answer):\n    "
                                                  "return True"), TOOLS),
        Mutation("any_call_wins", name, _reset(
            "count = range(len(self._message_criteria))\n"
            "self._message_criteria = [lambda s, k=k: len(self._call_history) > k for k in count]"),
                 TOOLS),
        Mutation("task_is_decoration", name, _derive(
            "def reset(self, seed=None):\n    o, i = super().reset(5)\n    "
            "return f'Game {seed}. {o}', i"), ALL),
    ]  # fmt: skip


def _of_copies() -> list[Mutation]:
    return [
        Mutation("other_names", "duplicate", lambda s: _renamed(s, class_name(s), "RenamedEnv")),
        Mutation("other_locals", "duplicate", lambda s: ast.unparse(_Locals().visit(ast.parse(s)))),
        Mutation("other_layout", "duplicate", lambda s: ast.unparse(ast.parse(s))),
        Mutation("docstring", "duplicate", lambda s: '"""Another game."""\n# by hand\n' + s),
        Mutation("other_words", "duplicate", lambda s: ast.unparse(_Words().visit(ast.parse(s)))),
        Mutation("annotated", "duplicate", lambda s: ast.unparse(_Annotated().visit(ast.parse(s)))),
    ]


def _inside_function(source: str) -> str:
    return "def make():\n" + textwrap.indent(source, "    ")


class _Locals(ast.NodeTransformer):
    """Gives other names to what a function assigns."""

    def visit_FunctionDef(self, node):
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _stored(n)}
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in names:
                inner.id += "_other"
        return node


class _Words(ast.NodeTransformer):
    """Rewords the text inside f-strings."""

    def visit_JoinedStr(self, node):
        for part in node.values:
            if isinstance(part, ast.Constant):
                part.value = part.value.replace(".", " now.")
        return node


class _Annotated(ast.NodeTransformer):
    """Says which type the first result of every function has."""

    def visit_FunctionDef(self, node):
        node.returns = ast.Name("object", ast.Load())
        return node


def _stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)
