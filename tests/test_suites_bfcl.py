"""Multi-turn function calling, on a package made here: the reference wins, anything less loses."""

import json
import shutil

import numpy as np
import pytest

from sandbox import crew
from spade_jax import domains
from spade_jax.suites import bfcl

API = """
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.long_context import EXTRA


class ShelfAPI:
    def __init__(self):
        self.books, self._secret = [], 1

    def _load_scenario(self, scenario, long_context=False):
        self.books = list(scenario["books"]) + (EXTRA if long_context else [])

    def add(self, title):
        self.books.append(title)
        return {"count": len(self.books)}

    def drop(self, title):
        self.books.remove(title)
        return "dropped"

    def count(self):
        return {"count": len(self.books)}
"""
DOCS = [
    {"name": "add", "description": "Add.", "parameters": {
        "type": "dict", "properties": {"title": {"type": "string"}}, "required": ["title"]}},
    {"name": "drop", "description": "Drop.", "parameters": {
        "type": "dict", "properties": {"title": {"type": "string"}}, "required": ["title"]}},
    {"name": "count", "description": "Count.", "parameters": {"type": "dict", "properties": {}}},
]  # fmt: skip
ROW = {
    "id": "multi_turn_base_0", "involved_classes": ["ShelfAPI"],
    "question": [[{"role": "user", "content": "Add C."}], [{"role": "user", "content": "Drop it?"}],
                 []],
    "initial_config": {"ShelfAPI": {"books": ["A", "B"]}}, "missed_function": {"2": ["drop"]},
}  # fmt: skip
TRUTH = [["add(title='C')"], [], ["drop('C')", "count()"]]


@pytest.fixture
def package(tmp_path):
    home = tmp_path / "bfcl_eval"
    apis = home / "eval_checker" / "multi_turn_eval" / "func_source_code"
    for folder in (apis, home / "data" / "multi_turn_func_doc", home / "data" / "possible_answer"):
        folder.mkdir(parents=True)
    (apis / "long_context.py").write_text("EXTRA = ['X'] * 3\n")
    (apis / "shelf.py").write_text(API)
    lines = "".join(json.dumps(doc) + "\n" for doc in DOCS)
    (home / "data" / "multi_turn_func_doc" / "shelf.json").write_text(lines)
    name = "BFCL_v4_multi_turn_base.json"
    (home / "data" / name).write_text(json.dumps(ROW) + "\n")
    answer = {"id": ROW["id"], "ground_truth": TRUTH}
    (home / "data" / "possible_answer" / name).write_text(json.dumps(answer) + "\n")
    return tmp_path


@pytest.fixture(scope="module")
def boxes():
    tier = "gvisor" if shutil.which("runsc") else "subprocess"
    with crew.Crew(crew.CrewConfig(tier=tier, boxes=1)) as made:
        yield made


class Table:
    """Plays groups with scripted replies in real sandbox sessions."""

    def __init__(self, boxes, replies):
        self.boxes, self.replies, self.seen, self.tools = boxes, replies, [], None

    def play(self, groups, rng):
        del rng
        return [self._episode(group) for group in groups]

    def _episode(self, group):
        setting = domains.get(group.environment.setting)
        session = self.boxes.open(
            group.environment.source, modules=dict(setting.modules), prelude=setting.prelude
        )
        load = {"op": "load", "play": 0, "seed": 1, "max_turns": 20}
        asked = [load, {"op": "reset", "play": 0, "seed": 1}, {"op": "tools", "play": 0}]
        outcomes = session.step(asked)
        assert [outcome.status for outcome in outcomes] == ["ok"] * 3, outcomes
        self.seen = [outcomes[1].value["observation"]]
        self.tools = outcomes[2].value["tools"]
        for reply in self.replies:
            (step,) = session.step([{"op": "step", "play": 0, "action": reply}])
            assert step.status == "ok", step
            self.seen.append(step.value["observation"])
            if step.value["terminated"]:
                break
        session.close()
        return Ended(environment=group.row, seed_index=0, fault="", value=step.value["reward"])

    def stream(self, task):
        return np.random.default_rng(len(task))


class Ended:
    def __init__(self, **fields):
        self.__dict__.update(fields)


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


ADD, COUNT, DROP = call("add", title="C"), call("count"), call("drop", title="C")


@pytest.mark.parametrize(
    ("replies", "answer"),
    [
        ([ADD, "Done.", "I cannot.", DROP, COUNT, "Done."], "1"),
        ([ADD, COUNT, "Done.", "I cannot.", DROP + COUNT, "Done."], "1"),  # more calls, together
        (["Done."], "0"),  # the state is not that of the reference
        ([ADD, "Done.", COUNT, "I cannot."], "0"),  # a call where none may be
        ([ADD, "Done.", "I cannot.", DROP, "Done."], "0"),  # a result of the reference is missing
        ([ADD, "Done.", DROP, "No.", "-"], "0"),  # a function that is held back
        (["<tool_call>{</tool_call>", ADD, "Done.", "No.", DROP, COUNT, "."], "1"),
    ],
)
def test_a_task_is_won_by_state_and_results(package, boxes, replies, answer):
    made = bfcl.multi_turn(str(package))
    table = Table(boxes, replies)
    assert [r.answers for r in made.score(table, made.tasks)] == [answer]


def test_functions_that_are_held_back_come_with_their_turn(package, boxes):
    made = bfcl.multi_turn(str(package))
    table = Table(boxes, [ADD, "Done.", "I cannot.", DROP, "Done."])
    list(made.score(table, made.tasks))
    assert [tool["function"]["name"] for tool in table.tools] == ["add", "count"]
    assert table.tools[0]["function"]["parameters"]["type"] == "object"
    assert table.seen[0] == "Add C." and table.seen[1] == '["{\\"count\\": 3}"]'
    assert '"drop"' in table.seen[3] and table.seen[3].endswith("What about now?")


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="pip download --no-deps bfcl-eval"):
        bfcl.multi_turn(str(tmp_path))
