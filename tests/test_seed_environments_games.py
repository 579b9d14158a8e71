"""The hand-written games: headers, solutions, determinism, garbage, players without thought."""

from __future__ import annotations

import random
import re

import pytest
import scripted_players

from spade_jax import records

FAMILIES = scripted_players.families("games")
HELD_OUT = 4
SMALL_CHARACTERS = 60  # an observation of a family marked small stays below
SEEDS = range(20)


def _number(rng: random.Random, low: int, high: int) -> str:
    return str(rng.randint(low, high))


def _bits(rng: random.Random, count: int) -> str:
    return "".join(rng.choice("01") for _ in range(count))


def _row(observation: str, rng: random.Random) -> str:
    bank = "Near" if "boat: near" in observation else "Far"
    names = re.search(bank + r" bank: ([a-z, ]+)\.", observation)[1].split(", ")
    return "row " + (" ".join(rng.sample(names, rng.randint(0, 1))) or "alone")


def _take(observation: str, rng: random.Random) -> str:
    heaps = [(h, int(n)) for h, n in re.findall(r"([abc])=(\d)", observation) if n != "0"]
    heap, stones = rng.choice(heaps)
    return f"{heap}-{rng.randint(1, stones)}"


def _between(pattern: str, observation: str, rng: random.Random) -> str:
    return _number(rng, *map(int, re.search(pattern, observation).groups()))


def _letters(pattern: str, count: int, observation: str, rng: random.Random) -> list[str]:
    return rng.sample(re.findall("[A-Z]", re.search(pattern, observation)[1]), count)


def _test_or_blame(observation: str, rng: random.Random) -> str:
    commit = _between(r"from (\d+) to (\d+)", observation, rng)
    return f"{rng.choice(['test', 'blame'])} {commit}"


def _weigh_or_claim(observation: str, rng: random.Random) -> str:
    a, b, c, d = _letters("coins ([A-Z]+)", 4, observation, rng)
    return rng.choice([f"weigh {a}{b} {c}{d}", f"claim {a} {rng.choice(['heavy', 'light'])}"])


# Players that know the commands but do not think: what they write is legal, drawn at random.
LEGAL: dict[str, scripted_players.Player] = {
    "bad_commit": _test_or_blame,
    "causal_levers": lambda o, rng: f"set {_bits(rng, 2)}",
    "code_breaker": lambda o, rng: "guess " + "".join(_letters("out of ([A-Z ]+);", 3, o, rng)),
    "coin_scale": _weigh_or_claim,
    "flip_sort": lambda o, rng: "flip {}-{}".format(*sorted(rng.sample(range(1, 7), 2))),
    "fuel_route": lambda o, rng: (
        f"{rng.choice(['drive', 'drive', 'fill'])} {rng.choice('ABCDEFG')}"
    ),
    "hidden_period": lambda o, rng: rng.choice(
        [f"peek {_number(rng, 0, 15)}", "say " + "".join(rng.choice("abcdef") for _ in range(3))]
    ),
    "lights_out": lambda o, rng: f"press {_number(rng, 1, 3)}{_number(rng, 1, 3)}",
    "machine_rule": lambda o, rng: rng.choice(
        [f"try {_number(rng, 0, 3)}", f"say {_number(rng, 1, 200)}"]
    ),
    "maze_walk": lambda o, rng: (
        "go " + rng.choice(re.findall("north|east|south|west", o.split("Open ways")[1]))[0]
    ),
    "nim_duel": _take,
    "river_crossing": _row,
    "switch_lamps": lambda o, rng: rng.choice(
        ["set " + _bits(rng, 6), "wire " + "".join(rng.sample("123456", 6))]
    ),
    "tile_slide": lambda o, rng: f"slide {_number(rng, 1, 5)}",
    "water_jugs": lambda o, rng: rng.choice(["fill {}", "empty {}", "pour {} {}"]).format(
        *rng.sample("abc", 2)
    ),
}


@pytest.fixture(params=FAMILIES, ids=str)
def family(request):
    return request.param


def test_there_are_22_families_over_every_skill_and_kind():
    assert len(FAMILIES) == 22
    skills = [family.header["skill"] for family in FAMILIES]
    assert {skill: skills.count(skill) >= 3 for skill in records.SKILLS} == dict.fromkeys(
        records.SKILLS, True
    )
    kinds = [family.header["kind"] for family in FAMILIES]
    counts = {kind: kinds.count(kind) for kind in ("single_turn", "multi_turn", "hidden_state")}
    assert counts == {"single_turn": 6, "multi_turn": 8, "hidden_state": 8}
    assert sum(family.header.get("size") == "small" for family in FAMILIES) >= 6


def test_the_held_out_families_are_drawn_by_chance():
    names = sorted(family.header["family"] for family in FAMILIES)
    held_out = [f.header["family"] for f in FAMILIES if f.header["split"] == "held_out"]
    assert held_out == sorted(random.Random(0).sample(names, HELD_OUT))


def test_header_is_complete(family):
    header = family.header
    assert header["family"] == family.path.stem
    assert header["setting"] == "games"
    assert header["split"] in ("train", "held_out")
    assert header["skill"] in records.SKILLS


def test_solution_wins_every_seed(family):
    environment = family.make()
    for seed in SEEDS:
        play = scripted_players.play(environment, seed, None)
        assert play.won, (seed, play.actions, play.observations[-1])
        assert all(reward == 0.0 for reward in play.rewards[:-1])


def test_boxed_solution_wins_too(family):
    environment = family.make()
    for seed in range(5):
        play = scripted_players.play(
            environment, seed, lambda o, rng: scripted_players.boxed(environment.solution())
        )
        assert play.won, (seed, play.actions)


def test_best_play_takes_half_to_three_quarters_of_the_turns(family):
    environment = family.make()
    plays = [scripted_players.play(environment, seed, None) for seed in SEEDS]
    mean = sum(len(play.actions) for play in plays) / len(plays)
    if family.header["kind"] == "single_turn":
        assert mean == 1.0 and environment.max_turns == 3
    else:
        assert 0.5 <= mean / environment.max_turns <= 0.75


def test_same_seed_and_actions_give_the_same_play(family):
    for seed in range(5):
        first = scripted_players.play(family.make(), seed, None)
        second = scripted_players.play(family.make(), seed, None)
        assert first == second
        again = scripted_players.play(family.make(), seed, scripted_players.NAIVE["random_words"])
        assert again == scripted_players.play(
            family.make(), seed, scripted_players.NAIVE["random_words"]
        )


def test_the_global_generator_has_no_say(family):
    environment = family.make()
    random.seed(1)
    first = scripted_players.play(environment, 7, None)
    random.seed(2)
    assert scripted_players.play(environment, 7, None) == first


def test_seeds_give_different_tasks(family):
    environment = family.make()
    shown = {environment.reset(seed=seed)[0] for seed in SEEDS}
    assert len(shown) >= 8


def test_no_action_of_the_solution_stands_in_an_observation(family):
    environment = family.make()
    for seed in SEEDS:
        play = scripted_players.play(environment, seed, None)
        for observation in play.observations[:-1]:
            for action in play.actions:
                assert not scripted_players.stands_in(action, observation), (action, observation)


def test_hint_is_short_and_differs_and_holds_no_action_of_the_solution(family):
    environment, hints = family.make(), set()
    for seed in SEEDS:
        environment.reset(seed=seed)
        hint = environment.hint()
        assert type(hint) is str and 0 < len(hint.split()) <= 100 and "\\boxed" not in hint
        hints.add(hint)
        for action in scripted_players.play(environment, seed, None).actions:
            assert not scripted_players.stands_in(action, hint), (seed, action, hint)
    assert len(hints) >= 2


def test_garbage_is_answered_until_the_episode_ends_by_itself(family):
    for seed in range(10):
        environment = family.make()
        play = scripted_players.play(environment, seed, scripted_players.garbage, seed)
        assert not play.won and len(play.actions) <= environment.max_turns


def test_every_garbage_text_is_answered(family):
    environment = family.make()
    for text in scripted_players.GARBAGE:
        environment.reset(seed=3)
        scripted_players.check_types(*environment.step(text))
        assert environment.step(None)[1] == 0.0


def test_solution_and_hint_answer_in_every_state(family):
    player = LEGAL.get(family.path.stem, scripted_players.NAIVE["random_words"])
    for seed in range(10):
        environment = family.make()
        environment.reset(seed=seed)
        rng, observation, ended = random.Random(seed), environment.reset(seed=seed)[0], False
        while not ended:
            assert type(environment.solution()) is str and type(environment.hint()) is str
            observation, _, terminated, truncated, _ = environment.step(player(observation, rng))
            ended = terminated or truncated
        assert type(environment.solution()) is str and type(environment.hint()) is str
        assert environment.step("anything")[1:4] == (0.0, True, False)


def test_players_without_thought_seldom_win(family):
    rates = {
        name: scripted_players.win_rate(family, player, 50)
        for name, player in scripted_players.NAIVE.items()
    }
    assert max(rates.values()) < 0.1, rates


@pytest.mark.parametrize("name", LEGAL)
def test_legal_random_moves_mostly_lose(name):
    family = next(family for family in FAMILIES if family.path.stem == name)
    assert scripted_players.win_rate(family, LEGAL[name], 100) < 0.3


def test_small_families_have_short_observations(family):
    if family.header.get("size") != "small":
        pytest.skip("not marked small")
    environment = family.make()
    for seed in SEEDS:
        play = scripted_players.play(environment, seed, None)
        assert max(map(len, play.observations)) < SMALL_CHARACTERS


def test_a_lower_turn_limit_is_respected(family):
    environment = family.make()
    environment.max_turns = 2
    play = scripted_players.play(environment, 1, scripted_players.NAIVE["empty"])
    assert len(play.actions) == 2 and play.truncated
