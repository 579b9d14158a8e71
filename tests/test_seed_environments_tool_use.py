"""The hand-written tool-use environments: schemas, criteria, solutions, players without thought."""

from __future__ import annotations

import inspect
import json
import random
from typing import Any

import pytest
import scripted_players

FAMILIES = scripted_players.families("tool_use")
HELD_OUT = 2
SKILLS = (
    "API Orchestration",
    "Data Retrieval",
    "State Modification",
    "Error Recovery",
    "Tool Selection",
    "Multi-Step Workflows",
)
VARIANTS = ("execute", "read_then_write", "missing_value", "irrelevant_request")
SEEDS = range(20)


@pytest.fixture(params=FAMILIES, ids=str)
def family(request):
    return request.param


def call(name: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def criteria(environment) -> list[bool]:
    return [criterion(environment._state) for criterion in environment._message_criteria]


def test_there_are_12_families_over_every_skill_and_variant():
    headers = [family.header for family in FAMILIES]
    assert len(headers) == 12
    for skill in SKILLS:
        assert sum(header["skill"] == skill for header in headers) == 2
    assert {header["variant"] for header in headers} == set(VARIANTS)


def test_the_held_out_families_are_drawn_by_chance():
    names = sorted(family.header["family"] for family in FAMILIES)
    held_out = [f.header["family"] for f in FAMILIES if f.header["split"] == "held_out"]
    assert held_out == sorted(random.Random(0).sample(names, HELD_OUT))


def test_header_is_complete(family):
    assert family.header["family"] == family.path.stem
    assert family.header["setting"] == "tool_use"
    assert family.header["kind"] == "multi_turn"
    assert family.header["split"] in ("train", "held_out")


def test_schemas_match_the_methods_and_hold_an_enum_that_is_required(family):
    environment = family.make()
    environment.reset(seed=1)
    tools = environment.get_tools()
    assert 3 <= len(tools) <= 8
    chosen = 0
    for tool in tools:
        function = tool["function"]
        schema = function["parameters"]
        method = inspect.signature(getattr(environment, f"tool_{function['name']}"))
        assert list(method.parameters) == list(schema["properties"]) == schema["required"]
        assert function["description"]
        chosen += any("enum" in rule for rule in schema["properties"].values())
    assert chosen >= 1
    methods = {name[5:] for name in dir(environment) if name.startswith("tool_")}
    assert methods == set(environment._tools)


def test_the_variant_shows_in_the_tools(family):
    environment = family.make()
    assert ("decline_request" in environment._tools) == (
        family.header["variant"] == "irrelevant_request"
    )
    assert ("ask_user" in environment._tools) == (family.header["variant"] == "missing_value")


def test_there_are_three_to_five_instructions_and_none_holds_at_reset(family):
    environment = family.make()
    for seed in SEEDS:
        environment.reset(seed=seed)
        assert 3 <= len(environment._user_messages) <= 5
        held = criteria(environment)
        assert len(held) == len(environment._user_messages)
        assert not any(held) and all(type(value) is bool for value in held), (seed, held)


def test_only_the_first_instruction_is_told_at_reset(family):
    environment = family.make()
    for seed in SEEDS:
        observation, _ = environment.reset(seed=seed)
        shown = [message in observation for message in environment._user_messages]
        assert shown == [True] + [False] * (len(shown) - 1)


def test_solution_wins_and_fulfils_the_instructions_one_by_one(family):
    environment = family.make()
    for seed in SEEDS:
        environment.reset(seed=seed)
        passed, reward, terminated = [0], 0.0, False
        while not terminated:
            text = environment.solution()
            observation, reward, terminated, truncated, extra = environment.step(text)
            scripted_players.check_types(observation, reward, terminated, truncated, extra)
            assert "Error" not in observation and not truncated, (seed, text, observation)
            assert environment._current_msg - passed[-1] in (0, 1)
            passed.append(environment._current_msg)
        assert reward == 1.0 and passed[-1] == len(environment._user_messages)


def test_solution_through_execute_tool_wins(family):
    environment = family.make()
    environment.reset(seed=5)
    while "<answer>" not in (text := environment.solution()):
        request = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
        assert environment.execute_tool(**request)["returncode"] == 0
    assert environment.turn_count == 0
    assert environment.step(text)[1:3] == (1.0, True)


def test_best_play_takes_half_to_three_quarters_of_the_turns(family):
    environment = family.make()
    for seed in range(5):
        play = scripted_players.play(environment, seed, None)
        assert 0.5 <= len(play.actions) / environment.max_turns <= 0.75


def test_a_distractor_is_never_needed(family):
    environment = family.make()
    used = set()
    for seed in SEEDS:
        environment.reset(seed=seed)
        scripted_players.play(environment, seed, None)
        used |= {entry["name"] for entry in environment._call_history}
    assert 1 <= len(set(environment._tools) - used) <= 3


def test_same_seed_and_actions_give_the_same_play(family):
    for seed in range(5):
        first = scripted_players.play(family.make(), seed, None)
        random.seed(seed)
        assert scripted_players.play(family.make(), seed, None) == first


def test_seeds_give_different_tasks(family):
    environment = family.make()
    assert len({environment.reset(seed=seed)[0] for seed in SEEDS}) >= 5
    plays = [scripted_players.play(environment, seed, None).actions for seed in SEEDS]
    assert len(set(plays)) >= 18


def test_no_action_of_the_solution_stands_in_an_observation(family):
    environment = family.make()
    for seed in SEEDS:
        play = scripted_players.play(environment, seed, None)
        for observation in play.observations[:-1]:
            assert not any(action in observation for action in play.actions)


def test_hint_holds_no_value_of_the_instance(family):
    environment, hints = family.make(), set()
    for seed in SEEDS:
        environment.reset(seed=seed)
        hint = environment.hint()
        assert 0 < len(hint.split()) <= 100
        hints.add(hint)
        for text in scripted_players.play(environment, seed, None).actions[:-1]:
            request = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
            for value in request["arguments"].values():
                assert not scripted_players.stands_in(str(value), hint), (value, hint)
    assert len(hints) == 1


def test_garbage_is_answered_until_the_episode_ends_by_itself(family):
    environment = family.make()
    for seed in range(10):
        play = scripted_players.play(environment, seed, scripted_players.garbage, seed)
        assert play.truncated and len(play.actions) == environment.max_turns


def random_value(rule: dict[str, Any], rng: random.Random, words: list[str]) -> Any:
    if rng.random() < 0.05:
        return rng.choice([None, [], {}, -1, "x" * 1000, 1e300, True])
    if "enum" in rule:
        return rng.choice(rule["enum"])
    if rule["type"] == "integer":
        return rng.randint(0, 300)
    return [rng.choice(words)] if rule["type"] == "array" else rng.choice(words)


def random_calls(environment) -> scripted_players.Player:
    """Call random tools with values drawn from what was observed."""

    def player(observation: str, rng: random.Random) -> str:
        if rng.random() < 0.1:
            return "<answer>done</answer>"
        name = rng.choice(list(environment._tools))
        rules = environment._tools[name]["parameters"]["properties"]
        words = observation.replace(",", " ").replace(";", " ").split() or ["x"]
        return call(name, {key: random_value(rule, rng, words) for key, rule in rules.items()})

    return player


def test_random_calls_are_answered_and_do_not_win(family):
    environment = family.make()
    for seed in range(100):
        play = scripted_players.play(environment, seed, random_calls(environment), seed)
        assert not play.won
        assert type(environment.solution()) is str and type(environment.hint()) is str


def test_players_without_thought_never_win(family):
    players = {**scripted_players.NAIVE, "done": lambda o, rng: "<answer>done</answer>"}
    for name, player in players.items():
        assert scripted_players.win_rate(family, player, 20) == 0.0, name


def test_an_early_answer_names_the_pending_instruction(family):
    environment = family.make()
    environment.reset(seed=2)
    observation, reward, terminated, _, _ = environment.step("<answer>done</answer>")
    assert (reward, terminated) == (0.0, False)
    assert f"1/{len(environment._user_messages)}" in observation
    assert environment._user_messages[0] in observation
