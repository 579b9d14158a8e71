"""Environment files written for the public implementation load and play through the rollout as they
are: injected names, both base-class imports, bare observations, integer rewards, odd turn limits.

What differs from there is here too: an exception in `step` is a fault of the environment, left out
of every mean, and not a return of -1.
"""

import json
import pathlib
import re
import shutil

import fakes
import numpy as np
import pytest

from sandbox import crew
from spade_jax import domains, rollout
from spade_jax.suites import environments

FOLDER = pathlib.Path(__file__).parent / "data" / "released"
FILES = sorted(FOLDER.rglob("game_*.py"))
LIMITS = rollout.RolloutConfig(
    plays=2, hinted_plays=0, max_turns=12, max_tokens=400, context_tokens=20_000
)


def call(name, /, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def xml(name, /, **arguments):
    told = "".join(f"<parameter={k}>{v}</parameter>" for k, v in arguments.items())
    return f"<tool_call><function={name}>{told}</function></tool_call>"


def inverse(talk):
    a, m = map(int, re.search(r"that (\d+) \* x .* divided by (\d+)", talk).groups())
    return str(next(x for x in range(m) if a * x % m == 1))


def knights(talk):
    known = dict([re.search(r"know that (\w+) is a (\w+)", talk).groups()])
    for speaker, target, claim in re.findall(r"(\w+) says (\w+) is a (\w+)", talk)[:4]:
        lied = known[speaker] == "knave"
        known[target] = {"knight": "knave", "knave": "knight"}[claim] if lied else claim
    return " ".join(known[name] for name in ("Ada", "Ben", "Cleo", "Dov"))


def rotated(talk):
    rows = [list(map(int, row.split())) for row in re.findall(r"^\d \d \d$", talk, re.MULTILINE)]
    row, column = (int(n) - 1 for n in re.search(r"row (\d), column (\d)", talk).groups())
    return str(rows[2 - column][row])  # clockwise: columns, read upwards, become rows


def sequence(talk):
    terms = list(map(int, re.search(r"q: ([\d, ]+), \?", talk)[1].split(",")))
    factor = (terms[2] - terms[1]) // (terms[1] - terms[0])
    return str(terms[4] * factor + terms[1] - terms[0] * factor)


def cracked(talk):
    rows = re.findall(r"(\d{3}) ([=~.]{3})", talk.rsplit("Guesses:", 1)[1])
    codes = [a + b + c for a in "123456" for b in "123456" for c in "123456" if len({a, b, c}) == 3]

    def marked(secret, guess):
        pairs = zip(secret, guess, strict=True)
        return "".join("=" if x == y else "~" if y in secret else "." for x, y in pairs)

    return next(s for s in codes if all(marked(s, g) == m for g, m in rows))


def heap(talk):
    return str(sum(sorted(map(int, re.search(r"\[(.*?)\]", talk)[1].split(",")))[:2]))


def lamp(talk):
    turn = talk.count("Commands:") - 1
    valve = re.search(r"only the (\w+) valve", talk)
    return ["read log", "fill tank", f"open {valve[1] if valve else 'red'}", "light lamp"][turn]


def telecom(talk):
    lines = re.findall(r'"(555-\d{4})"', talk)
    if not lines:
        return call("list_lines")
    plan = re.search(r"on the (\w+) plan", talk)[1]
    later = [
        call("set_plan", line=lines[1], plan=plan),
        call("set_roaming", line=lines[1], options={"enabled": True}),
        call("send_brochure", topic="travel"), "<answer>done</answer>",
    ]  # fmt: skip
    return later[len(re.findall(r" is on |Roaming of|brochure about travel is", talk))]


def sales(talk):
    told = {
        name: sum(map(int, row.split(","))) for name, row in re.findall(r"(\w+): \[(.*?)\]", talk)
    }
    if len(told) < 2:
        return call("get_sales", region="north") + call("get_sales", region="south")
    return f"<answer>${told['north'] - told['south']:,}.00</answer>"


def home(talk):
    room, heat = re.search(r"in the (\w+)\.", talk)[1], re.search(r"Heat to (\d+)", talk)
    if "pizza" not in talk:
        return xml("light", room=room, on="on")
    if heat is None:
        return xml("decline_request", reason="no tool orders food")
    return "<answer>done</answer>" if "Answer with" in talk else xml("heating", degrees=heat[1])


def archive(talk):
    code = re.search(r"archive code: (\d+)", talk)
    if "is locked" not in talk:
        return call("move", name="notes.txt")
    if code is None:
        return call("read", path="/notes.txt")
    if "] unlocked" not in talk:
        return call("unlock", code=code[1])
    return "<answer>done</answer>" if "] moved" in talk else call("move", name="notes.txt")


PLAYERS = {  # file -> plays it from what it shows
    "mathematical_reasoning": inverse,
    "001_logical_deduction": knights,
    "002_optimization": lambda talk: ["buy salt", "buy salt", "sell salt", "sell salt"][
        talk.count("Prices:") - 1
    ],
    "causal_inference": lamp,
    "spatial_reasoning": rotated,
    "pattern_recognition": sequence,
    "006_logical_deduction": cracked,
    "007_optimization": heap,
    "state_modification": telecom,
    "data_retrieval": sales,
    "tool_selection": home,
    "error_recovery": archive,
}


@pytest.fixture(scope="module")
def boxes():
    tier = "gvisor" if shutil.which("runsc") else "subprocess"
    with crew.Crew(crew.CrewConfig(tier=tier, boxes=2)) as made:
        yield made


def play(boxes, path, rule, max_turns=25):
    """Play a file as the loop does; the rule sees the whole conversation."""
    made = environments.program(path.read_text(), uid=0, max_turns=max_turns, family=path.stem)
    domain = domains.get(made.setting)

    def opened(environment, seed):
        modules, prelude = dict(domain.modules), domain.prelude
        return boxes.open(environment.source, modules=modules, prelude=prelude, seed=seed)

    policy = fakes.Policy(lambda talk, seed: domain.wrap(rule(talk)))
    world = fakes.world(fakes.Sandbox(), policy, open=opened, action_of=domain.action)
    group = rollout.Group(environment=made, row=0, seed_index=0, seed=11, plays=(2, 0))
    return rollout.play([group], world, LIMITS, np.random.default_rng(0)).episodes


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_is_won_from_what_it_shows(boxes, path):
    (rule,) = [player for name, player in PLAYERS.items() if path.stem.endswith(name)]
    episodes = play(boxes, path, rule)
    assert [(e.fault, e.detail) for e in episodes] == [("", "")] * 2
    assert [(e.value, e.truncated) for e in episodes] == [(1.0, False)] * 2
    assert len(episodes[0].turns) == len(episodes[1].turns)


# What each makes of "hello" until it ends: value, truncated, replies. The heap raises on it.
IDLE = {
    "mathematical_reasoning": (0.0, True, 5),
    "002_optimization": (0.0, True, 8),
    "causal_inference": (0.0, True, 12),
    "spatial_reasoning": (0.0, True, 4),
    "pattern_recognition": (0.0, True, 12),  # no limit of its own: that of the run
    "data_retrieval": (0.0, True, 10),
    "error_recovery": (0.0, True, 10),
}


@pytest.mark.parametrize("name", IDLE)
def test_idle_plays_end(boxes, name):
    (path,) = [path for path in FILES if path.stem.endswith(name)]
    (first, _) = play(boxes, path, lambda talk: "hello")
    assert (first.value, first.truncated, len(first.turns), first.fault) == (*IDLE[name], "")


def test_an_exception_in_step_is_a_fault_and_no_return(boxes):
    (path,) = [path for path in FILES if path.stem.endswith("007_optimization")]
    (first, _) = play(boxes, path, lambda talk: "hello")
    assert (first.fault, first.value) == ("environment", 0.0) and "ValueError" in first.detail


# Seven guesses of a code that is not the one: a terminal reward of 0.1 for each digit in its place;
# the alarm is -1.
def test_partial_and_negative_ends_count_as_they_are(boxes):
    (path,) = [path for path in FILES if path.stem.endswith("006_logical_deduction")]
    (alarm, _) = play(boxes, path, lambda talk: "000")
    assert (alarm.value, alarm.truncated) == (-1.0, False)
    seen = []
    (stubborn, _) = play(boxes, path, lambda talk: seen.append(talk) or "123")
    exact = re.search(r"123 ([=~.]{3})", seen[-1])[1].count("=")
    assert len(stubborn.turns) == 7 and stubborn.value == pytest.approx(0.1 * exact)
