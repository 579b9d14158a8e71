"""Both arms pass through one function; what returns, turns, prompts and waves come to."""

import collections
import dataclasses

import fakes
import numpy as np
import pytest

from sandbox import crew
from spade_jax import domains, records, rollout

CONFIG, play, groups, arm = fakes.PLAY, fakes.play, fakes.groups, fakes.arm


def test_both_arms_play_one_seed_and_differ_by_the_hint_alone():
    played, sandbox, policy = play(lambda prompt, seed: "3")
    assert [(e.arm, e.play) for e in played.episodes] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert {e.seed for e in played.episodes} == {13}
    assert {e.observation for e in arm(played, 0)} == {"Guess my digit."}
    assert {e.observation for e in arm(played, 1)} == {"Guess my digit.\nHINT: It is odd."}
    ((prompts, _),) = policy.calls  # one call serves all plays of both arms
    assert len(prompts) == 5
    sent = collections.defaultdict(list)
    for request in sandbox.sessions[0].requests():
        sent[request["play"]].append({k: v for k, v in request.items() if k != "play"})
    assert all(sent[index] == sent[0] for index in range(5))


def test_sampler_seeds_do_not_depend_on_what_happens_in_play():
    _, _, calm = play(lambda prompt, seed: "0")
    _, _, wild = play(fakes.by_seed(["3", "raise", "cut...", "0", "crash"]))
    assert calm.calls[0][1] == wild.calls[0][1]
    assert set(wild.calls[1][1]) <= set(calm.calls[1][1])
    assert len(set(calm.calls[0][1] + calm.calls[1][1])) == 10
    after = []
    for rule in (lambda prompt, seed: "0", lambda prompt, seed: "crash"):
        rng = np.random.default_rng(7)
        rollout.play(groups(), fakes.world(fakes.Sandbox(), fakes.Policy(rule)), CONFIG, rng)
        after.append(rng.integers(2**32))
    assert after[0] == after[1]


# Rewards: right 1, jackpot 7.5 clipped to 1, ruin -3 clipped to -1; `limit` pays 0.5 but truncates,
# and a wrong guess never terminates: both return 0.
@pytest.mark.parametrize(
    ("action", "value", "truncated"),
    [
        ("3", 1.0, False),
        ("jackpot", 1.0, False),
        ("ruin", -1.0, False),
        ("limit", 0.0, True),
        ("4", 0.0, True),
    ],
)
def test_return_is_the_clipped_last_reward_if_terminated_else_zero(action, value, truncated):
    played, _, _ = play(lambda prompt, seed: action)
    for episode in played.episodes:
        assert (episode.value, episode.truncated, episode.fault) == (value, truncated, "")


def test_turns_keep_the_rewards_as_the_environment_gave_them():
    played, _, _ = play(fakes.by_seed(["jackpot"]))
    assert [turn.reward for turn in played.episodes[0].turns] == [7.5]


def test_turns_say_whether_their_call_can_be_read_in_both_arms():
    played, _, _ = play(fakes.by_seed(["4"]), malformed=lambda action: action == "4")
    for episode in played.episodes:
        assert [turn.malformed for turn in episode.turns] == [True, False]


def test_an_observation_is_shown_in_the_role_that_answers_the_action():
    asked = []

    def extend(observation, role):
        asked.append((observation, role))
        return fakes.encode(f"{observation}>")

    rule = fakes.by_seed(["4", "5", "3", "3", "3"])
    play(rule, extend=extend, role_of=lambda action: "tool" if action == "5" else "user")
    assert asked[:2] == [("Not 4.", "user"), ("Not 5.", "tool")]
    assert asked[2:] == [("Not ?.", "user")] * 2  # their second and last turn


def test_a_reply_without_end_token_truncates_in_both_arms_and_steps_nothing():
    played, sandbox, _ = play(lambda prompt, seed: "3...")
    assert len(played.episodes) == 5 and sandbox.steps() == []
    for episode in played.episodes:
        assert (episode.value, episode.truncated, episode.fault) == (0.0, True, "")
        assert len(episode.turns) == 1 and not episode.turns[0].reply.stopped


def test_one_process_may_serve_all_seeds_of_an_environment():
    first = groups()[0]
    asked = [first, dataclasses.replace(first, seed=15, seed_index=1)]
    config = dataclasses.replace(CONFIG, isolation="environment")
    played, sandbox, _ = play(lambda prompt, seed: "5", asked=asked, config=config)
    assert len(sandbox.sessions) == 1
    assert [e.value for e in played.episodes] == [0.0] * 5 + [1.0] * 5
    assert played.hint_refusals == {}


def test_tools_reach_the_prompt_and_anything_but_a_list_does_not():
    for answer, shown in (([{"name": "look"}], True), ("look", False), (3, False), ([], False)):
        sandbox = fakes.Sandbox(overrides={"tools": lambda r, a=answer: {"tools": a}})
        _, _, policy = play(lambda p, s: "3", sandbox)
        assert fakes.decode(policy.calls[0][0][0]).startswith("[{'name': 'look'}]|") == shown


def test_the_next_prompt_starts_with_the_ids_of_this_one_and_what_was_sampled():
    config = dataclasses.replace(CONFIG, max_turns=3)
    played, _, policy = play(lambda p, s: "0" if p.count(">") < 3 else "3", config=config)
    for number, episode in enumerate(played.episodes):
        prompts = [call[0][number] for call in policy.calls]
        for k in range(2):
            told = prompts[k] + episode.turns[k].reply.ids
            assert prompts[k + 1] == told + episode.turns[k + 1].observed_ids
            assert prompts[k + 1][: len(told)] == told
        assert episode.turns[0].observed_ids == prompts[0]
        assert [turn.action for turn in episode.turns] == ["0", "0", "3"]
        assert episode.value == 1.0 and not episode.truncated
    assert played.transcripts[0] == ("Guess my digit.", "0\n> 0\n> 3")


def test_an_episode_ends_at_the_turn_limit():
    played, sandbox, policy = play(lambda p, s: "0")
    assert len(policy.calls) == CONFIG.max_turns
    assert all(e.truncated and e.value == 0.0 and len(e.turns) == 2 for e in played.episodes)
    assert len(sandbox.steps()) == 10


def test_an_episode_ends_where_the_next_reply_might_not_fit_the_context():
    # "Guess my digit.>" is 16 tokens. One reply "0" with its end is 2, "Not 0.>" is 7: the second
    # prompt has 25. With replies of 8 the first turn needs 24 and the second 33.
    alone, config = groups(plays=(2, 0)), dataclasses.replace(CONFIG, hinted_plays=0, plays=2)
    for limit, turns in ((24, 1), (32, 1), (33, 2)):
        narrow = dataclasses.replace(config, context_tokens=limit)
        played, _, _ = play(lambda p, s: "0", asked=alone, config=narrow)
        assert [(len(e.turns), e.truncated, e.fault) for e in played.episodes] == [
            (turns, True, "")
        ] * 2


def test_a_first_prompt_that_does_not_fit_is_no_loss_in_either_arm():
    # The plain prompt needs 24 tokens, the hinted one " HINT: It is odd." (17) more, 41.
    for limit, plain, hinted in ((23, "too_long", "too_long"), (40, "", "too_long"), (41, "", "")):
        narrow = dataclasses.replace(CONFIG, context_tokens=limit)
        played, _, _ = play(lambda p, s: "3", config=narrow)
        assert [e.fault for e in arm(played, 0)] == [plain] * 3
        assert [e.fault for e in arm(played, 1)] == [hinted] * 2
        for e in played.episodes:
            assert e.value == (0.0 if e.fault else 1.0) and not e.truncated
            assert e.turns == () or not e.fault
            assert f"rollout.context_tokens={limit}" in e.detail or not e.fault


def test_an_environment_gets_no_more_turns_than_the_agent():
    for own, turns in ((1, 1), (9, CONFIG.max_turns)):
        _, sandbox, _ = play(lambda p, s: "3", asked=groups(max_turns=own))
        loads = [r for r in sandbox.sessions[0].requests() if r["op"] == "load"]
        assert {r["max_turns"] for r in loads} == {turns}


@pytest.mark.parametrize("isolation", ["group", "episode"])
def test_no_wave_needs_more_processes_than_allowed(isolation):
    config = dataclasses.replace(CONFIG, processes=2, isolation=isolation)
    unlucky = fakes.Sandbox(lose=lambda s, b: 0 if (s, b) == (1, 0) else None)
    played, sandbox, _ = play(lambda p, s: "3", unlucky, groups(5), config)
    assert sandbox.most_alive == 2 and sandbox.alive() == []
    assert played.processes == (5 if isolation == "group" else 25)
    assert len(sandbox.sessions) == played.processes + 1  # the lost one began anew
    assert len(played.episodes) == 25
    assert [e.environment for e in played.episodes] == sorted(
        e.environment for e in played.episodes
    )


def test_waves_change_no_episode():
    rule = fakes.by_seed(["3", "0", "raise"])
    narrow, _, _ = play(rule, asked=groups(4), config=dataclasses.replace(CONFIG, processes=1))
    wide, _, _ = play(rule, asked=groups(4))
    assert narrow.episodes == wide.episodes


def test_nothing_to_play_gives_nothing():
    played, sandbox, _ = play(lambda p, s: "3", asked=[])
    assert played == rollout.Played(
        episodes=[],
        hint_refusals=collections.Counter(),
        dropped=0,
        leaks_N={},
        transcripts=[],
        processes=0,
    )
    assert sandbox.sessions == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("plays", 1),
        ("hinted_plays", 9),
        ("processes", 0),
        ("max_turns", 0),
        ("seeds", 0),
        ("temperature", 0.0),
        ("temperature", float("nan")),
    ],
)
def test_a_setting_that_cannot_work_is_refused_with_its_name(field, value):
    with pytest.raises(ValueError, match=f"rollout.{field}={value}"):
        rollout.RolloutConfig(**{field: value})


def test_an_episode_names_the_row_seed_and_arm_it_belongs_to():
    played, _, _ = play(lambda p, s: "3", asked=groups(2))
    assert [e.environment for e in played.episodes] == [0] * 5 + [1] * 5
    assert [e.seed for e in played.episodes] == [13] * 5 + [23] * 5
    assert {e.arm for e in played.episodes} == {records.PLAIN, records.HINTED}


PROGRAM = """
class SumEnv(QAEnv):
    max_turns = 2

    def task(self, rng):
        a, b = rng.randint(1, 9), rng.randint(11, 19)
        return f"add {a} {b}", a + b, f"start from {b}"

    def solution(self):
        answer, self._answer = self._answer, "spoiled"  # must not reach a play
        return answer
"""


def test_real_programs_play_in_real_processes():
    setting = domains.get("compact")

    def rule(prompt, seed):
        if prompt.count(">") > 1:
            return "0"
        a, b = prompt.split("add ")[1].split(">")[0].split(" HINT")[0].split()
        return str(int(a) + int(b)) if "HINT" in prompt else "0"

    with crew.Crew(crew.CrewConfig(tier="subprocess", boxes=1)) as boxes:

        def start(environment, seed):
            modules, prelude = dict(setting.modules), setting.prelude
            return boxes.open(environment.source, modules=modules, prelude=prelude, seed=seed)

        asked = groups(2, source=PROGRAM)
        played, _, _ = play(rule, asked=asked, open=start, action_of=setting.wrap)
    assert [e.fault for e in played.episodes] == [""] * 10, played.episodes[0].detail
    assert [e.value for e in arm(played, 0)] == [0.0] * 6
    assert [e.value for e in arm(played, 1)] == [1.0] * 4
    assert all(e.truncated and len(e.turns) == 2 for e in arm(played, 0))
    assert len({e.observation for e in arm(played, 0)}) == 2
