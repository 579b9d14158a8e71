"""Sessions: many plays of one environment program in one process, kept apart, with deadlines."""

from __future__ import annotations

import shutil
import time

import pytest

from sandbox import crew, records

GVISOR = pytest.param(
    "gvisor",
    marks=pytest.mark.skipif(shutil.which("runsc") is None, reason="runsc is not installed"),
)

COUNTING = """
import random
COUNT = 0
SEEN = []
class CountEnv:
    shared = []
    def __init__(self):
        self.max_turns = 30
    def reset(self, seed=None):
        global COUNT
        COUNT += 1
        random.seed(seed)
        SEEN.append(seed)
        CountEnv.shared.append(seed)
        return f"{COUNT} {SEEN} {CountEnv.shared}", {}
    def step(self, action):
        if action == "hang":
            while True: pass
        if action == "sleep":
            import time; time.sleep(1000)
        if action == "exit":
            import os; os._exit(0)
        if action == "sys.exit":
            raise SystemExit(3)
        if action == "interrupt":
            raise KeyboardInterrupt
        if action == "memory":
            keep = []
            while True: keep.append(bytearray(16 << 20))
        if action == "flood":
            while True: print("x" * 65536)
        if action == "print":
            print("hello from the program")
        if action == "forge":
            import os; os.write(4, b'{"i": 0, "s": "ok"}\\n')
        return str(random.random()), 0.0, False, False, {}
"""

CONTRACT = """
import math
class OddEnv:
    def reset(self, seed=None):
        return {0: "plain", 1: ("pair", {}), 2: ("", {}), 3: (5, {}), 4: ("x", None), 5: None}[seed]
    def step(self, action):
        class S(str): pass
        return {
            "good": ("o", 1, True, False, {}),
            "bool reward": ("o", True, True, False, {}),
            "nan": ("o", math.nan, True, False, {}),
            "inf": ("o", math.inf, True, False, {}),
            "huge": ("o", 10**400, True, False, {}),
            "four": ("o", 1.0, True, {}),
            "list": ["o", 1.0, True, False, {}],
            "int flag": ("o", 1.0, 1, False, {}),
            "info": ("o", 1.0, True, False, []),
            "subclass": (S("o"), 1.0, True, False, {}),
            "none": None,
            "": (f"length {len(action)}", 0.0, False, False, {}),
        }.get(action, (f"length {len(action)}", 0.0, False, False, {}))
"""


@pytest.fixture(scope="module", params=["subprocess", GVISOR])
def boxes(request):
    with crew.Crew(crew.CrewConfig(tier=request.param, boxes=1, max_scale=1.0)) as made:
        yield made


def load(plays, **more):
    request = {"op": "load", "seed": 7, "max_turns": 10, "pacing": "respect"}
    return [{**request, "play": play, **more} for play in plays]


def reset(play, seed=0):
    return {"op": "reset", "play": play, "seed": seed}


def step(play, action="x"):
    return {"op": "step", "play": play, "action": action}


def observations(outcomes):
    assert {o.status for o in outcomes} == {"ok"}, outcomes
    return [o.value["observation"] for o in outcomes]


def test_plays_do_not_share_module_globals_or_class_attributes(boxes):
    with boxes.open(COUNTING) as session:
        session.step(load(range(3)))
        seen = observations(session.step([reset(p, 10 + p) for p in range(3)]))
    assert seen == ["1 [10] [10]", "1 [11] [11]", "1 [12] [12]"]


def test_random_state_of_a_play_is_its_own_whatever_the_others_do(boxes):
    alone, mixed = [], []
    with boxes.open(COUNTING) as session:
        session.step([*load([0]), reset(0, 5)])
        alone = observations(session.step([step(0) for _ in range(4)]))
    with boxes.open(COUNTING) as session:
        session.step([*load([0, 1]), reset(0, 5), reset(1, 6)])
        for _ in range(4):
            mixed += observations(session.step([step(1), step(0)]))[1:]
            session.step([reset(1, 99)])
    assert alone == mixed


def test_same_seed_gives_the_same_play_in_two_processes_with_other_hash_seeds(boxes):
    seen = []
    for hash_seed in (0, 1):
        with boxes.open(COUNTING, hash_seed=hash_seed, clock_shift_seconds=1e6) as session:
            session.step([*load([0]), reset(0, 5)])
            seen.append(observations(session.step([step(0), step(0)])))
    assert seen[0] == seen[1]


def test_hash_seeds_and_clocks_really_differ(boxes):
    source = """
import time, datetime
class ClockEnv:
    def reset(self, seed=None):
        now = datetime.datetime.now().timestamp()
        return f"{hash('word')}|{time.time()}|{now}|{time.monotonic()}"
    def step(self, action): pass
"""
    rows = []
    for hash_seed, shift in ((0, 0.0), (0, 0.0), (1, 1e6)):
        with boxes.open(source, hash_seed=hash_seed, clock_shift_seconds=shift) as session:
            text = observations(session.step([*load([0]), reset(0)])[1:])[0]
            rows.append([float(part) for part in text.split("|")])
    assert rows[0][0] == rows[1][0] != rows[2][0]
    for clock in (1, 2, 3):
        assert 9e5 < rows[2][clock] - rows[0][clock] < 1.1e6
    assert abs(rows[0][1] - time.time()) < 60


def test_answers_come_in_the_order_of_requests(boxes):
    with boxes.open(CONTRACT) as session:
        session.step(load(range(4)))
        batch = [step(p, "y" * n) for n in range(1, 9) for p in range(4)]
        seen = observations(session.step(batch))
    assert seen == [f"length {n}" for n in range(1, 9) for _ in range(4)]


@pytest.mark.parametrize(
    ("seed", "fault"),
    [(0, ""), (1, ""), (2, "empty"), (3, "int"), (4, "NoneType"), (5, "NoneType")],
)
def test_reset_contract_is_reported(boxes, seed, fault):
    with boxes.open(CONTRACT) as session:
        found = session.step([*load([0]), reset(0, seed)])[1].value["contract"]
    assert fault in found and bool(fault) == bool(found)


@pytest.mark.parametrize(
    ("action", "fault"),
    [
        ("good", ""),
        ("bool reward", "bool"),
        ("nan", "not finite"),
        ("inf", "not finite"),
        ("huge", "not finite"),
        ("four", "tuple of 4"),
        ("list", "list of 5"),
        ("int flag", "terminated"),
        ("info", "info"),
        ("subclass", "type S"),
        ("none", "NoneType"),
    ],
)
def test_step_contract_is_reported(boxes, action, fault):
    with boxes.open(CONTRACT) as session:
        value = session.step([*load([0]), step(0, action)])[1].value
    assert fault in value["contract"] and bool(fault) == bool(value["contract"])
    assert value["reward"] == (None if fault in ("not finite", "bool", "NoneType") else 1.0) or (
        fault.startswith(("tuple", "list")) and value["reward"] is None
    )


def test_actions_are_made_text_and_cut(boxes):
    with boxes.open(CONTRACT) as session:
        batch = [step(0, None), step(0, 12345), step(0, "z" * 200000)]
        seen = observations(session.step([*load([0]), *batch])[1:])
    assert seen == ["length 0", "length 5", "length 100000"]


@pytest.mark.parametrize(
    ("designed", "cap", "pacing", "expected"),
    [("3", 10, "respect", 3), ("30", 10, "respect", 10), ("-1", 10, "respect", 10)]
    + [("None", 10, "respect", 10), ("True", 10, "respect", 10), ("3", 10, "force", 10)]
    + [("3", None, "respect", 3)],
)
def test_turn_limit_follows_the_pacing(boxes, designed, cap, pacing, expected):
    source = f"""
class PaceEnv:
    def __init__(self, max_turns={designed}): self.max_turns = max_turns
"""
    with boxes.open(source) as session:
        value = session.step(load([0], max_turns=cap, pacing=pacing))[0].value
    assert value == {"class_name": "PaceEnv", "max_turns": expected}


def test_first_env_class_by_definition_order_is_found_and_base_names_are_skipped(boxes):
    source = "from base import QAEnv\nEnv = QAEnv\nclass FirstEnv(QAEnv): pass\nclass BEnv: pass\n"
    with boxes.open(source, modules={"base": "class QAEnv: pass"}) as session:
        assert session.step(load([0]))[0].value["class_name"] == "FirstEnv"
    with boxes.open("x = 1") as session:
        outcome = session.step(load([0]))[0]
    assert outcome.status == "error" and "Env" in outcome.detail


def test_prelude_names_are_there_and_helper_modules_belong_to_the_play(boxes):
    source = """
class PreludeEnv(Base):
    def reset(self, seed=None):
        import helper
        helper.LOG.append(seed)
        return f"{math.pi:.2f} {helper.LOG}"
    def step(self, action): pass
    def solution(self): return 42
    def hint(self): return None
"""
    with boxes.open(
        source,
        modules={"helper": "LOG = []\nclass Base: pass"},
        prelude="import math\nfrom helper import Base",
    ) as session:
        session.step(load([0, 1]))
        seen = observations(session.step([reset(0, 1), reset(1, 2)]))
        extra = session.step(
            [{"op": op, "play": 0} for op in ("solution", "hint", "tools", "criteria", "drop")]
        )
        gone = session.step([reset(0)])[0]
    assert seen == ["3.14 [1]", "3.14 [2]"]
    assert extra[0].value == {"present": True, "solution": "42"}
    assert extra[1].value == {"present": True, "hint": None}
    assert extra[2].value == {"tools": None} and extra[3].value == {"criteria": None}
    assert gone.status == "error" and "not loaded" in gone.detail


def test_tools_and_criteria(boxes):
    source = """
class ShopEnv:
    def __init__(self):
        self._state = {"n": 0}
        self._message_criteria = [lambda s: s["n"] == 0, lambda s: s["n"] > 0, lambda s: s["x"]]
    def get_tools(self): return [{"name": "inc"}]
    def execute_tool(self, name, arguments):
        self._state["n"] += arguments["by"]
        return {"output": "ok", "returncode": 0}
"""
    with boxes.open(source) as session:
        call = {"op": "execute_tool", "play": 0, "name": "inc", "arguments": {"by": 2}}
        asked = [{"op": "tools", "play": 0}, {"op": "criteria", "play": 0}, call]
        _, tools, before, ran, after = session.step([*load([0]), *asked, asked[1]])
    assert tools.value == {"tools": [{"name": "inc"}]}
    assert before.value["criteria"][:2] == [True, False]
    assert before.value["criteria"][2].startswith("error: KeyError")
    assert ran.value == {"output": "ok", "returncode": 0}
    assert after.value["criteria"][:2] == [False, True]


@pytest.mark.parametrize("action", ["sys.exit", "interrupt"])
def test_leaving_inside_a_call_is_an_error_of_that_request_only(boxes, action):
    with boxes.open(COUNTING) as session:
        session.step([*load([0]), reset(0)])
        bad, good = session.step([step(0, action), step(0)])
    assert bad.status == "error" and good.status == "ok"


def test_hang_times_out_and_keeps_what_was_answered_before(boxes):
    limits = records.Limits(wall_seconds=1.0)
    with boxes.open(COUNTING, limits=limits) as session:
        session.step([*load([0, 1]), reset(0), reset(1)])
        started = time.monotonic()
        outcomes = session.step([step(0), step(1, "sleep"), step(0), step(1)])
        later = session.step([step(0)])
    assert [o.status for o in outcomes] == ["ok", "timeout", "timeout", "timeout"]
    assert later[0].status == "timeout"
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("action", "status"), [("exit", "crash"), ("flood", "output_limit"), ("forge", "crash")]
)
def test_death_of_the_process_is_told_now_and_later(boxes, action, status):
    with boxes.open(COUNTING) as session:
        session.step([*load([0]), reset(0)])
        first = session.step([step(0, action)])
        second = session.step([step(0)])
    assert [o.status for o in first + second] == [status, status]


def test_memory_blow_up_is_told(boxes):
    limits = records.Limits(memory_bytes=128 << 20, wall_seconds=30)
    with boxes.open(COUNTING, limits=limits) as session:
        session.step([*load([0]), reset(0)])
        assert session.step([step(0, "memory")])[0].status == "memory"


def test_printed_text_stands_in_the_last_outcome(boxes):
    with boxes.open(COUNTING) as session:
        session.step([*load([0]), reset(0)])
        outcomes = session.step([step(0, "print"), step(0)])
    assert [o.stdout for o in outcomes] == ["", "hello from the program\n"]


def test_syntax_error_and_constructor_error_are_outcomes(boxes):
    with boxes.open("class X(:") as session:
        outcome = session.step(load([0]))[0]
    assert outcome.status == "error" and outcome.detail.startswith("SyntaxError")
    with boxes.open("class BadEnv:\n    def __init__(self): 1 / 0") as session:
        outcome = session.step(load([0]))[0]
    assert outcome.detail == "ZeroDivisionError: division by zero"


def test_numpy_is_there_and_its_state_belongs_to_the_play(boxes):
    pytest.importorskip("numpy")
    source = """
import numpy as np
class NumpyEnv:
    def reset(self, seed=None):
        np.random.seed(seed)
        return "ready"
    def step(self, action):
        return str(np.random.rand()), float(np.ones(3).sum()), False, False, {}
"""
    with boxes.open(source, limits=records.Limits(wall_seconds=60)) as session:
        session.step([*load([0, 1]), reset(0, 1), reset(1, 1)])
        first = observations(session.step([step(0), step(0), step(1), step(1)]))
    assert first[:2] == first[2:] and first[0] != first[1]


def test_many_sessions_at_once_each_get_their_own_answers(boxes):
    sessions = [boxes.open(COUNTING) for _ in range(12)]
    futures = [s.submit([*load([0]), reset(0, 100 + i)]) for i, s in enumerate(sessions)]
    found = [future.result()[1].value["observation"] for future in futures]
    for session in sessions:
        session.close()
    assert found == [f"1 [{100 + i}] [{100 + i}]" for i in range(12)]


def test_requests_after_close_are_infra(boxes):
    session = boxes.open(COUNTING)
    session.close()
    session.close()
    assert session.step(load([0]))[0].status == "infra"
