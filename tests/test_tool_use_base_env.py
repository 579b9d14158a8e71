"""The base class of tool-use environments: exact cases, malformed replies, own advance methods."""

from __future__ import annotations

import json
import pathlib
import runpy

import pytest
import scripted_players

CASES = json.loads((pathlib.Path(__file__).parent / "data" / "cases.json").read_text())
BASE = scripted_players.tool_base()
PARSE = runpy.run_path(str(scripted_players.TOOL_BASE))["parse_calls"]


def case_group(name: str) -> dict:
    return next(group for group in CASES["groups"] if group["id"] == name)


class CounterEnv(BASE):
    """State {n: 0}, one tool that adds 1, two instructions."""

    def reset(self, seed=None):
        self._state = {"n": 0}
        self._tools = {"inc": {"description": "Add 1 to n."}}
        self._user_messages = ["raise n to at least 1", "raise n to at least 2"]
        self._message_criteria = [lambda s: s["n"] >= 1, lambda s: s["n"] >= 2]
        return self._build_observation(), {}

    def tool_inc(self):
        self._state["n"] += 1
        return "ok"


class PublicStyleEnv(BASE):
    """Written as the public implementation's prompt asks: own advance and own answer check."""

    def __init__(self, max_turns=10):
        super().__init__(max_turns=max_turns)

    def reset(self, seed=None):
        self.turn_count = 0
        self._state = {"n": 0}
        self._tools = {"inc": {"description": "Add 1.", "parameters": {"type": "object"}}}
        self._user_messages = ["once", "once more"]
        self._message_criteria = [lambda s: s["n"] >= 1, lambda s: s["n"] >= 1]
        self._current_msg = 0
        self._expected_answer = "done"
        return self._user_messages[0] + self._obs_suffix(), {}

    def _advance_if_done(self):
        if self._current_msg < 2 and self._message_criteria[self._current_msg](self._state):
            self._current_msg += 1
            return f" [STEP {self._current_msg} COMPLETE]"
        return ""

    def _check_answer(self, answer):
        return answer.lower() == "done" and self._current_msg == 2

    def tool_inc(self):
        self._state["n"] += 1
        return "ok" + self._advance_if_done()

    def solution(self):
        return "1. inc 2. inc"


class EchoEnv(BASE):
    """A single task: tools that echo or fail, and a number as answer."""

    def reset(self, seed=None):
        self._tools = {"echo": {}, "fail": {}, "ghost": {}}
        self._expected_answer = "1,250.50"
        return "How much?", {}

    def tool_echo(self, value):
        return json.dumps(value)

    def tool_fail(self):
        raise KeyError("nothing there")


def call(name: str, **arguments) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def test_step_outcomes_match_the_cases():
    group = case_group("tool_environment_steps")
    environment = CounterEnv(max_turns=group["environment"]["max_turns"])
    environment.reset()
    for case in group["cases"]:
        expected = case["expected"]
        observation, reward, terminated, truncated, _ = environment.step(case["input"])
        assert reward == pytest.approx(expected["reward"], abs=CASES["tolerance"]), case["input"]
        assert (terminated, truncated) == (expected["terminated"], expected["truncated"])
        assert environment._current_msg == expected["instructions_done_after"]
        for text in expected["observation_contains"]:
            assert text.lower() in observation.lower(), (case["input"], observation)


def test_execute_tool_matches_the_cases_and_counts_no_turn():
    environment = CounterEnv(max_turns=25)
    environment.reset()
    for case in case_group("tool_execute")["cases"]:
        outcome = environment.execute_tool(case["input"]["name"], case["input"]["arguments"])
        assert outcome["returncode"] == case["expected"]["returncode"], case
        assert type(outcome["output"]) is str
    assert environment.turn_count == 0 and environment._current_msg == 1


@pytest.mark.parametrize("case", case_group("tool_call_parser")["cases"], ids=range(7))
def test_calls_are_read_as_in_the_cases(case):
    calls, _ = PARSE(case["input"])
    expected = [(item["name"], item["arguments"]) for item in case["expected"]["calls"]]
    assert calls == expected


def test_several_calls_of_one_reply_run_in_order():
    environment = CounterEnv(max_turns=25)
    environment.reset()
    observation, reward, terminated, _, _ = environment.step(call("inc") + "then" + call("inc"))
    assert environment._state["n"] == 2 and environment._current_msg == 2
    assert (reward, terminated) == (0.0, False)
    assert observation.index("at least 2") < observation.index("That is all")


def test_a_broken_call_beside_a_good_one_costs_but_the_good_one_runs():
    environment = CounterEnv(max_turns=25)
    environment.reset()
    observation, reward, _, _, _ = environment.step(call("inc") + "<tool_call>{</tool_call>")
    assert environment._state["n"] == 1 and reward == -0.1
    assert "ok" in observation and "Format error" in observation


def test_nested_arguments_survive_in_both_forms():
    environment = EchoEnv(max_turns=25)
    value = {"a": {"b": [1, "}</x>"]}}
    assert json.dumps(value) in environment.step(call("echo", value=value))[0]
    text = f"<function=echo><parameter=value>{json.dumps(value)}</parameter></function>"
    assert json.dumps(value) in environment.step(text)[0]
    assert json.dumps(value) in environment.step(f"<tool_call>{text}</tool_call>")[0]


def test_a_call_without_closing_tag_at_the_end_is_read():
    environment = CounterEnv(max_turns=25)
    environment.step('<tool_call>{"name": "inc", "arguments": {}}')
    assert environment._state["n"] == 1


def test_thinking_text_is_not_acted_on():
    environment = CounterEnv(max_turns=25)
    environment.step(f"<think>{call('inc')}</think>{call('inc')}")
    assert environment._state["n"] == 1


def test_an_answer_goes_before_calls():
    environment = CounterEnv(max_turns=25)
    environment.step(call("inc") + "<answer>done</answer>")
    assert environment._state["n"] == 0


@pytest.mark.parametrize("name", ["fail", "ghost"])
def test_a_failing_tool_answers_with_its_error(name):
    environment = EchoEnv(max_turns=25)
    observation, reward, terminated, truncated, _ = environment.step(call(name))
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert name in observation and ("Error calling" in observation or "Unknown" in observation)


@pytest.mark.parametrize("text", ["1250.5", "$1,250.50", " 1250.504 ", "1,250.50"])
def test_numbers_are_compared_as_numbers(text):
    assert EchoEnv(max_turns=25).step(f"<answer>{text}</answer>")[1:3] == (1.0, True)


@pytest.mark.parametrize("text", ["1251", "", "nan", "1e999", "a lot", "[" * 9999])
def test_other_answers_are_wrong(text):
    assert EchoEnv(max_turns=25).step(f"<answer>{text}</answer>")[1:3] == (0.0, False)


def test_the_solution_shows_only_when_turns_are_used_up():
    environment = PublicStyleEnv(max_turns=3)
    environment.reset(seed=1)
    for turn in range(3):
        observation, reward, terminated, truncated, _ = environment.step("<answer>done</answer>")
        assert ("1. inc 2. inc" in observation) == (turn == 2)
        assert (reward, terminated, truncated) == (0.0, False, turn == 2)
    assert environment.step(call("inc"))[2]


def test_every_step_counts_a_turn_and_reset_starts_anew():
    environment = CounterEnv(max_turns=3)
    for _ in range(2):
        environment.reset()
        assert [environment.step(text)[3] for text in ("x", call("inc"), "x")] == [
            False,
            False,
            True,
        ]


def test_an_own_advance_method_is_not_called_twice():
    environment = PublicStyleEnv()
    environment.reset(seed=1)
    # Both criteria hold after one call; the own method passes one instruction a call.
    assert "[STEP 1 COMPLETE]" in environment.step(call("inc"))[0]
    assert environment._current_msg == 1
    assert environment.execute_tool("inc", {})["output"].endswith("[STEP 2 COMPLETE]")
    assert environment.step("<answer>done</answer>")[1:3] == (1.0, True)


def test_a_criterion_that_fails_does_not_hold():
    environment = CounterEnv(max_turns=25)
    environment.reset()
    environment._message_criteria = [lambda s: s["missing"], lambda s: True]
    assert environment.step(call("inc"))[1] == 0.0
    assert environment._current_msg == 0


def test_schemas_are_listed_for_chat_templates():
    environment = CounterEnv(max_turns=25)
    assert environment.get_tools() == [
        {
            "type": "function",
            "function": {
                "name": "inc",
                "description": "Add 1 to n.",
                "parameters": {"type": "object", "properties": {}},
            },
        }
    ]


@pytest.mark.parametrize("text", scripted_players.GARBAGE, ids=range(len(scripted_players.GARBAGE)))
def test_garbage_is_answered(text):
    environment = CounterEnv(max_turns=25)
    environment.reset()
    scripted_players.check_types(*environment.step(text))
    assert environment.step(None)[1] == -0.1


def test_text_arguments_of_execute_tool_are_read():
    environment = EchoEnv(max_turns=25)
    assert environment.execute_tool("echo", '{"value": 3}') == {"output": "3", "returncode": 0}
    assert environment.execute_tool("echo", "[3]")["returncode"] == 1
    assert environment.execute_tool(None, None)["returncode"] == 1
