"""Settings as data: actions, calls, prompts, preludes."""

import ast
import json
import pathlib
import runpy

import numpy as np
import pytest
import scripted_players

from spade_jax import domains, programs, records
from spade_jax.domains import domain, games, tool_use

CASES = json.loads((pathlib.Path(__file__).parent / "data" / "cases.json").read_text())
GROUPS = {group["id"]: group["cases"] for group in CASES["groups"]}


@pytest.mark.parametrize("case", GROUPS["boxed_action"], ids=lambda case: case["input"]["reply"])
def test_boxed_actions_equal_the_exact_cases(case):
    reply, expected = case["input"]["reply"], case["expected"]
    if case["input"]["mode"] == "tool_call":
        assert tool_use.action(reply) == expected["action"]
    else:
        assert games.boxed(reply) == expected["extracted"]
        assert games.action(reply) == expected["action"]


@pytest.mark.parametrize("case", GROUPS["tool_call_parser"], ids=lambda case: case["input"])
def test_tool_calls_equal_the_exact_cases(case):
    parsed = tool_use.parse_calls(case["input"])
    calls = [{"name": call.name, "arguments": call.arguments} for call in parsed.calls]
    assert {"calls": calls, "text": parsed.text} == case["expected"]


@pytest.mark.parametrize(
    ("reply", "calls", "malformed"),
    [
        ("<tool_call>[1]</tool_call>", 0, 1),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", 0, 1),
        ('<tool_call>{"name": "a", "arguments": {"t": "</tool_call>"}}</tool_call>', 1, 0),
        ('<tool_call>{"name": "a"}</tool_call><tool_call>{"name": "b"', 1, 0),
        ('<tool_call>{"name": 3}</tool_call>', 0, 1),
    ],
)
def test_malformed_calls_are_counted_and_never_raise(reply, calls, malformed):
    parsed = tool_use.parse_calls(reply)
    assert (len(parsed.calls), parsed.malformed) == (calls, malformed)


GUEST = runpy.run_path(str(scripted_players.TOOL_BASE))["parse_calls"]
CALL = '{"name": "a", "arguments": {"k": [1]}}'


@pytest.mark.parametrize(
    ("inside", "malformed"),
    [
        (CALL, False),
        (f"[{CALL}, {CALL}]", False),
        ('{"name": "a", "arguments": null}', False),
        ('{"name": "a", "arguments": ""}', False),
        ("<function=a><parameter=k>[1]</parameter></function>", False),
        ('{"name": "a", "arguments": {"k": 1}', True),
        ('{"name": "a", "arguments": "k"}', True),
        ("[1]", True),
        ("a(k=1)", True),
        ("", True),
    ],
)
@pytest.mark.parametrize("closing", ["</tool_call>", ""])
def test_a_malformed_reply_is_one_of_which_the_environment_reads_no_call(
    inside, malformed, closing
):
    reply = f"<think>{CALL}</think>I look.\n<tool_call>{inside}{closing}"
    assert tool_use.malformed(reply) is malformed
    assert (not GUEST(reply.rsplit("</think>", 1)[-1])[0]) is malformed


@pytest.mark.parametrize(
    "reply",
    [
        "no call at all",
        "<think><tool_call>{</tool_call></think>done",
        "<tool_call>{</tool_call><answer>done</answer>",  # an answer goes before calls
        f"<tool_call>{{</tool_call><tool_call>{CALL}</tool_call>",  # one of two is read
    ],
)
def test_what_tries_no_call_or_is_read_in_part_is_not_malformed(reply):
    assert not tool_use.malformed(reply)


@pytest.mark.parametrize(
    ("action", "calls"),
    [
        (f"<tool_call>{CALL}</tool_call>", True),
        (f"<tool_call>{{</tool_call><tool_call>{CALL}</tool_call>", True),
        ("<tool_call>{</tool_call>", False),  # the answer is a word about the format
        (f"<tool_call>{CALL}</tool_call><answer>done</answer>", False),
        (f"<think><tool_call>{CALL}</tool_call></think>done", False),
        ("done", False),
    ],
)
def test_tools_answer_what_calls_them(action, calls):
    assert tool_use.DOMAIN.calls_tools(action) is calls
    assert not games.DOMAIN.calls_tools(action)


def test_boxes_are_read_in_linear_time():
    assert games.boxed("\\boxed{" * 20_000) is None


@pytest.mark.parametrize("opened", ["<answer>", "<function=a>" + "<parameter=b>" * 9])
def test_openings_that_are_never_closed_are_read_in_linear_time(opened):
    assert not tool_use.calls_tools("<answer>" * 20_000 + "<tool_call>")
    assert tool_use.calls_tools("<tool_call>" + opened * 20_000) == opened.startswith("<function")


@pytest.mark.parametrize("name", domains.DOMAINS)
def test_each_domain_is_complete(name):
    setting = domains.get(name)
    assert setting.name == name
    ast.parse(setting.prelude)
    for source in setting.modules.values():
        ast.parse(source)
    assert {"math", "random", "re", "numpy"} <= setting.allowed_imports
    assert not {"os", "sys", "subprocess", "socket", "importlib"} & setting.allowed_imports


def test_unknown_settings_and_prompt_families_are_named():
    with pytest.raises(ValueError, match="setting='chess' is unknown; use one of compact"):
        domains.get("chess")
    request = domain.Request(skill=records.SKILLS[0], difficulty="easy", family="haiku")
    with pytest.raises(ValueError, match="single_turn"):
        domain.designer_messages(domains.get("games"), request)


def test_the_compact_designer_prompt_is_one_short_line():
    request = domain.Request(skill="Optimization", difficulty="hard")
    messages = domain.designer_messages(domains.get("compact"), request)
    assert messages == [{"role": "user", "content": "Optimization hard"}]
    request = domain.Request(skill="Optimization", difficulty="hard", passage="a tree is {x}")
    messages = domain.designer_messages(domains.get("compact"), request)
    assert messages == [{"role": "user", "content": "Optimization hard\na tree is {x}"}]


def test_the_compact_agent_sees_the_observation_and_the_hint_below_it():
    setting = domains.get("compact")
    assert domain.agent_messages(setting, "sum [1, 2]")[-1]["content"] == "sum [1, 2]"
    hinted = domain.agent_messages(setting, "sum [1, 2]", "start at 1")
    assert hinted[-1]["content"] == "sum [1, 2]\nHINT: start at 1"


@pytest.mark.parametrize("family", ["corpus", "single_turn", "multi_turn"])
def test_a_games_prompt_carries_everything_asked_for(family):
    request = domain.Request(
        skill="Causal Inference",
        difficulty="hard",
        family=family,
        passage="TIDES {difficulty}",
        win_rate=0.25,
        positives=[domain.Example(source="class XEnv: pass", name="x", win_rate=0.5, regret=0.2)],
        negatives=[domain.Example(source="", name="y_env", win_rate=0.95, regret=0.0)],
    )
    system, user = domain.designer_messages(domains.get("games"), request)
    assert system["role"] == "system"
    for text in ("Causal Inference", "hard", "25%", "class XEnv: pass", "y_env was too easy"):
        assert text in user["content"]
    assert ("TIDES {difficulty}" in user["content"]) == (family == "corpus")
    assert "\\boxed{{...}}" in user["content"] and "{skill" not in user["content"]
    assert "{memory}" not in user["content"]


def test_a_tool_prompt_names_world_and_kind_of_task():
    world, variant = tool_use.draw(np.random.default_rng(0))
    request = domain.Request(
        skill="Error Recovery", difficulty="medium", world=world, variant=variant
    )
    content = domain.designer_messages(domains.get("tool_use"), request)[-1]["content"]
    assert f"environment about {world} as" in content
    assert f"Kind of task: {variant}." in content
    assert "{world}" not in content and "{variant}" not in content and "{passage}" not in content


def test_task_kinds_are_drawn_by_weight():
    rng = np.random.default_rng(1)
    drawn = [tool_use.draw(rng)[1] for _ in range(700)]
    shares = [drawn.count(kind) / 700 for kind in tool_use.VARIANTS]
    np.testing.assert_allclose(shares, [3 / 7, 2 / 7, 1 / 7, 1 / 7], atol=0.05)


def test_hint_prompts_hold_the_source_as_it_is():
    messages = domain.hint_messages(domains.get("games"), "x = '{observation}'")
    assert "x = '{observation}'" in messages[-1]["content"]


def test_a_compact_program_stands_in_a_fence_like_every_other():
    setting = domains.get("compact")
    assert setting.program("```python\nx = 1\n```") == "x = 1"
    assert setting.program("class AEnv(QAEnv): pass\n") is None


def test_scripted_content_is_wrapped_once():
    assert games.wrap("7") == "\\boxed{7}" and games.wrap("\\boxed{7}") == "\\boxed{7}"
    assert tool_use.wrap("done") == "<answer>done</answer>"
    assert tool_use.wrap("<answer>done</answer>") == "<answer>done</answer>"


def test_injected_names_cover_what_public_environments_assume():
    names = (
        "itertools math random re json collections functools string copy heapq operator statistics "
        "np numpy deque defaultdict Counter OrderedDict namedtuple combinations permutations "
        "product chain accumulate reduce lru_cache deepcopy heappush heappop Tuple Dict List "
        "Optional Union Any Set FrozenSet Callable Iterable Sequence Mapping ToolUseBaseEnv"
    ).split()
    for name in ("games", "tool_use"):
        bound = set()
        for node in ast.parse(domains.get(name).prelude).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                bound |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, ast.Assign):
                bound |= {target.id for target in node.targets}
        assert set(names) <= bound
    assert isinstance(programs.parse(domains.get("games").prelude), ast.Module)
