"""Program text: extraction, repair, static findings, fingerprints, seed files, leaks, players."""

import ast
import json
import pathlib
import random

import broken_programs
import numpy as np
import pytest

from spade_jax import domains, fingerprints, leaks, players, programs, records, seed_files

CASES = json.loads((pathlib.Path(__file__).parent / "data" / "cases.json").read_text())
GROUPS = {group["id"]: group["cases"] for group in CASES["groups"]}
GAME, COMPACT = broken_programs.GAME, broken_programs.COMPACT


@pytest.mark.parametrize("case", GROUPS["code_extraction"], ids=lambda case: case["input"])
def test_code_extraction_equals_the_exact_cases(case):
    assert programs.extract_code(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", GROUPS["fstring_repair"], ids=lambda case: case["input"])
def test_brace_repair_equals_the_exact_cases(case):
    assert programs.repair_braces(case["input"]) == case["expected"]


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("```text\nno\n```\n```python\nx=1\n```\n```\nmore\n```", "x=1"),
        ("```python\nx=1\n```\nand then ```", "x=1"),
        ("<think>\n```python\nx=1\n```", None),  # thinking that never ends holds no program
        ("```Python title\nx=1\n```", "x=1"),
        ("```python\n```", ""),
    ],
)
def test_fences_are_told_apart(reply, code):
    assert programs.extract_code(reply) == code


@pytest.mark.parametrize(
    ("source", "repaired"),
    [
        ('a = f"one \\boxed{<x>}"', 'a = f"one \\boxed{{<x>}}"'),
        ('a = f"{b:>{w}} {c!r} \\\\boxed{go {d}}"', 'a = f"{b:>{w}} {c!r} \\\\boxed{{go {d}}}"'),
        ('a = {1: 2}; b = f"{<x>}"  # {<y>}', 'a = {1: 2}; b = f"{{<x>}}"  # {<y>}'),
        ('a = "{<x>}" + f"{<x>}"', 'a = "{<x>}" + f"{{<x>}}"'),
        ('a = f"{<x>}"\nb = f"{<y>}"\n', 'a = f"{{<x>}}"\nb = f"{{<y>}}"\n'),
        ('a = f"""\n{<x>}\n{b}\n"""\n', 'a = f"""\n{{<x>}}\n{b}\n"""\n'),
        ('a = f"{}"', 'a = f"{{}}"'),
        ('a = f"{{ok}} {b}"', 'a = f"{{ok}} {b}"'),
        ("def f(:\n  pass", "def f(:\n  pass"),
    ],
)
def test_brace_repair_touches_only_what_is_no_expression(source, repaired):
    assert programs.repair_braces(source) == repaired


@pytest.mark.parametrize("source", ["(" * 500, "-" * 100_000 + "1", "a\x00b", '"\ud800"', "x" * 10])
def test_hostile_text_is_an_answer_and_no_exception(source):
    found = programs.parse(source)
    assert isinstance(found, ast.Module) or found.reason == "syntax"
    programs.repair_braces(source)
    programs.static_findings(source, ())


def test_static_findings_come_in_the_order_of_the_checks():
    source = GAME.replace("def step(", "def steps(").replace("import re\n", "import os, sys\n")
    found = programs.static_findings(source, domains.get("games").allowed_imports)
    assert [finding.reason for finding in found] == ["missing_method", "forbidden_import"]
    assert found[1].detail == "imports outside the allow-list: os, sys"


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("import collections.abc", True),
        ("from urllib.parse import quote", True),
        ("from urllib import parse", True),
        ("import urllib.request", False),
        ("from . import x", False),
        ("import numpy.random as r", True),
        ("import sympy", False),
    ],
)
def test_imports_are_allowed_by_module(line, allowed):
    found = programs.static_findings(f"{line}\n{GAME}", domains.get("games").allowed_imports)
    assert (found == []) == allowed


def test_the_first_class_that_ends_in_env_is_the_environment():
    source = "class Env: pass\nclass QAEnv: pass\nif 1:\n    class AEnv: pass\nclass BEnv: pass"
    assert programs.environment_class(ast.parse(source)).name == "AEnv"


def test_methods_may_come_from_a_base_class_of_the_same_program():
    source = GAME.replace("class WarehouseEnv", "class Base") + "\nclass RealEnv(Base): pass\n"
    assert programs.static_findings(source, domains.get("games").allowed_imports) == []


@pytest.mark.parametrize(("setting", "source"), broken_programs.SOUND)
def test_the_setting_is_read_off_the_base_class(setting, source):
    assert programs.setting_of(source) == setting


def digest(source: str) -> str:
    return fingerprints.digest(ast.parse(source))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("xs", "numbers"),
        ("TotalEnv", "AddEnv"),
        ("total {xs}", "add these up: {xs}, please"),
        ("rng", "r"),
        ("class TotalEnv(QAEnv):\n", 'class TotalEnv(QAEnv):\n    """Adds."""\n'),
        ("(self, rng)", "(self, rng: random.Random) -> tuple"),
        ("for _ in", "for i in"),
    ],
)
def test_a_digest_ignores_names_and_words(old, new):
    assert digest(COMPACT.replace(old, new)) == digest(COMPACT)


@pytest.mark.parametrize(
    ("old", "new"),
    [("99", "98"), ("sum(xs)", "max(xs)"), ("randint", "randrange"), ("+", "-"),
     ("xs[0] + xs[1]", "xs[1] + xs[0]"), ("range(4)", "range(5)")],
)  # fmt: skip
def test_a_digest_keeps_numbers_operators_calls_and_attributes(old, new):
    assert digest(COMPACT.replace(old, new)) != digest(COMPACT)


def test_a_digest_keeps_which_variable_is_used():
    one = "def f(a, b):\n    return a - b"
    assert digest(one) == digest(one.replace("a", "x")) != digest("def f(a, b):\n    return b - a")


def test_fingerprints_are_equal_in_every_process():
    # Stored from one run: they may change only with the rule itself.
    tree = ast.parse(COMPACT)
    assert fingerprints.digest(tree) == "d355ea62f8245cfbc5a2c98131579208"
    assert fingerprints.signature(tree)[:3].tolist() == [23744420, 23136596, 1261828]


def test_similarity_is_high_for_relatives_and_low_for_strangers():
    signature = fingerprints.signature(ast.parse(COMPACT))
    near = fingerprints.signature(ast.parse(COMPACT.replace("99", "98")))
    far = fingerprints.signature(ast.parse(broken_programs.TOOLS))
    same, close, other = fingerprints.similarity(signature, np.stack([signature, near, far]))
    assert same == 1.0 and 0.6 < close < 1.0 and other < 0.3
    assert fingerprints.similarity(signature, np.zeros((0, 128), np.uint32)).shape == (0,)
    assert len(fingerprints.bands(signature)) == 32
    assert set(fingerprints.bands(signature)) & set(fingerprints.bands(near))
    assert not set(fingerprints.bands(signature)) & set(fingerprints.bands(far))


def test_similarity_estimates_the_share_of_common_shingles():
    # Two programs whose shingle sets overlap by a known share; the error is about 1/sqrt(128).
    lines = [f"v = f{i}({i})" for i in range(300)]
    first, second = ast.parse("\n".join(lines[:200])), ast.parse("\n".join(lines[100:]))
    one, two = (
        {tuple(flat[i : i + 5]) for i in range(len(flat) - 4)}
        for flat in (fingerprints.labels(first), fingerprints.labels(second))
    )
    true = len(one & two) / len(one | two)
    signatures = [fingerprints.signature(tree) for tree in (first, second)]
    estimate = fingerprints.similarity(signatures[0], signatures[1][None])[0]
    assert abs(estimate - true) < 4 * np.sqrt(true * (1 - true) / 128)


HEADER = '''"""Add the numbers.

family: list_sum
skill: Mathematical Reasoning
setting: compact
kind: single_turn
split: train
knobs: 4 -> 3 4 5; 99 -> 20 99 500
"""
'''


def test_a_seed_file_is_read_and_its_knobs_turn(tmp_path):
    path = tmp_path / "list_sum.py"
    path.write_text(HEADER + "\n\n" + COMPACT)
    seed = seed_files.read(path)
    assert (seed.summary, seed.family, seed.split) == ("Add the numbers.", "list_sum", "train")
    assert seed.knobs == {4: (3, 4, 5), 99: (20, 99, 500)}
    assert seed.code == COMPACT
    assert seed_files.at_difficulty(seed, "medium") == COMPACT
    assert "randint(10, 500) for _ in range(5)" in seed_files.at_difficulty(seed, "hard")
    assert seed_files.read_all(tmp_path) == [seed]


def test_knobs_turn_numbers_of_the_code_and_not_words():
    code = 'x = f"4 of {4 + y[4]}" + "4" + str(4) + v4 + 4.5  # see 4'
    turned = 'x = f"4 of {5 + y[5]}" + "4" + str(5) + v4 + 4.5  # see 5'
    assert seed_files.turn_knobs(code, {4: 5}) == turned
    assert seed_files.turn_knobs("3 4", {3: 4, 4: 3}) == "4 3"  # all at once


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("family: list_sum\n", "", "no line `family"),
        ("split: train", "split: test", "must be one of train, held_out"),
        ("4 -> 3 4 5", "4 -> 3 4", "four integers"),
        ("Reasoning", "Magic", "must be one of Mathematical"),
    ],
)
def test_a_bad_header_says_what_to_mend(tmp_path, old, new, message):
    path = tmp_path / "x.py"
    path.write_text(HEADER.replace(old, new) + COMPACT)
    with pytest.raises(ValueError, match=message):
        seed_files.read(path)


def instances(ask, solve, count=10):
    rng = random.Random(3)
    tasks = [[rng.randint(1, 99) for _ in range(4)] for _ in range(count)]
    return [ask(xs, solve(xs)) for xs in tasks], [str(solve(xs)) for xs in tasks]


@pytest.mark.parametrize(
    ("ask", "solve", "leaks_out"),
    [
        (lambda xs, a: f"total {xs} (debug: {a})", sum, True),
        (lambda xs, a: f"total {xs} is what? {a}", sum, True),
        (lambda xs, a: f"{a} is the total of {xs}", sum, True),
        (lambda xs, a: f"reverse {xs} ({'-'.join(map(str, a))})", lambda xs: xs[::-1], True),
        (lambda xs, a: f"calc {xs[0]}*{xs[1]} {a}", lambda xs: xs[0] * xs[1], True),
        (lambda xs, a: f"next of {xs[0]} {xs[1]} {xs[2]}\n{a}", sum, True),  # a line of its own
        (lambda xs, a: f"total {xs}", sum, False),
        (lambda xs, a: f"sort {xs}", sorted, False),
        (lambda xs, a: f"largest of {xs}", max, False),
        (lambda xs, a: f"largest of {' '.join(map(str, xs))}?", max, False),
        (lambda xs, a: f"first of {xs}", lambda xs: xs[0], False),
        (lambda xs, a: f"Is {xs[0]} odd, yes or no?", lambda xs: ["no", "yes"][xs[0] % 2], False),
    ],
)  # fmt: skip
def test_only_a_fixed_place_gives_an_answer_away(ask, solve, leaks_out):
    assert (leaks.place_of_answer(*instances(ask, solve)) is not None) == leaks_out


@pytest.mark.parametrize(
    ("answers", "varying"),
    [
        (["blame 7", "blame 9"], ["7", "9"]),
        (["set a to 1 now", "set b to 2 now"], ["a to 1", "b to 2"]),
        (["go", "go on"], ["go", "on"]),  # nothing is cut away whole
        (["done", "done"], ["done", "done"]),
        (["3", "4"], ["3", "4"]),
    ],
)
def test_what_all_answers_share_is_cut_off(answers, varying):
    assert leaks.without_common(answers) == varying


def test_scripted_players_are_functions_of_seed_and_turn():
    seen = "Pick one of [7, 30, 12]. Options: red, blue"
    for name in players.PLAYERS:
        first = players.content(name, seen, "7", 5, 0)
        assert first == players.content(name, seen, "7", 5, 0)
    assert players.content("empty", seen, "7", 5, 0) == ""
    assert players.content("constant", seen, "7", 5, 0) == "7"
    assert players.content("echo", seen, "7", 5, 0) == seen
    words = {players.content("random_words", seen, "7", seed, 0) for seed in range(60)}
    assert {"7", "30", "12", "red", "blue", "Pick"} <= words
    numbers = {int(players.content("random_integers", seen, "7", seed, 0)) for seed in range(300)}
    assert min(numbers) == 0 and max(numbers) == 30


def test_informed_players_never_say_the_answer_as_it_is():
    assert players.all_answers(["4", "7", "9", "4"], "7") == "4, 7, 9"
    assert players.all_answers(["4", "7", "4"], "7") == ""  # two answers are a guess, no list
    assert players.all_answers(["go\nup", "a", "b"], "go\nup") == ""  # a plan, no answer
    assert players.part_of("42") == "2" and players.part_of("[1, 5, 3]") == "5"
    assert players.part_of("7") == players.part_of("-7") == ""


def test_a_blind_call_fits_the_schema():
    rules = {
        "room": {"enum": ["hall", "attic"]},
        "level": {"type": "integer"},
        "names": {"type": "array"},
        "fast": {"type": "boolean"},
        "text": {"type": "string"},
        "more": {"type": "object"},
        "odd": 3,
    }
    tools = [{"function": {"name": "set", "parameters": {"properties": rules}}}]
    texts = {players.random_call(tools, "Set hall to 41", seed, 0) for seed in range(40)}
    assert players.random_call(tools, "Set hall to 41", 3, 0) in texts and len(texts) > 10
    for text in texts:
        (call,) = domains.tool_use.parse_calls(text).calls
        assert call.name == "set" and call.arguments["room"] in ("hall", "attic")
        assert call.arguments["level"] == 41 and type(call.arguments["fast"]) is bool
        assert call.arguments["text"] in ("Set", "hall", "to", "41")
        assert isinstance(call.arguments["names"], list) and call.arguments["more"] == {}
    assert players.random_call([], "x", 1, 0) == ""
    assert players.random_call([{"function": {"name": "stop"}}], "", 1, 0)


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("Commands: go north, look", "go north"),
        ("Choose.\n- red\n- blue", "red"),
        ("A) seven\nB) nine", "seven"),
        ("sum [3, 4]", "3"),
        ("Say 'yes' or 'no'", "yes"),
        ("hello there", "hello"),
        ("...", "1"),
    ],
)
def test_the_first_option_is_found(text, option):
    assert players.first_option(text) == option


def test_the_constant_is_the_commonest_answer():
    assert players.most_common(["b", "a", "b"]) == "b"
    assert players.most_common([]) == "1"


def test_skills_of_seed_files_are_those_of_the_records():
    assert set(records.SKILLS) <= set(domains.domain.SKILL_DESCRIPTIONS)
