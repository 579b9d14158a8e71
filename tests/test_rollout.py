"""Both arms pass through one function; a fault costs what it must and nothing else."""

import collections
import dataclasses

import fakes
import numpy as np
import pytest

from sandbox import crew
from spade_jax import domains, records, rollout

CONFIG, play, groups, arm = fakes.PLAY, fakes.play, fakes.groups, fakes.arm


def by_seed(actions):
    """A rule that gives the plays, in order of their first call, one action each, then "?"."""
    known = {}

    def rule(prompt, seed):
        if prompt.count(">") > 1:
            return "?"
        return known.setdefault(seed, actions[len(known) % len(actions)])

    return rule


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
    _, _, wild = play(by_seed(["3", "raise", "cut...", "0", "crash"]))
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
    played, _, _ = play(by_seed(["jackpot"]))
    assert [turn.reward for turn in played.episodes[0].turns] == [7.5]


def test_turns_say_whether_their_call_can_be_read_in_both_arms():
    played, _, _ = play(by_seed(["4"]), malformed=lambda action: action == "4")
    for episode in played.episodes:
        assert [turn.malformed for turn in episode.turns] == [True, False]


def test_an_observation_is_shown_in_the_role_that_answers_the_action():
    asked = []

    def extend(observation, role):
        asked.append((observation, role))
        return fakes.encode(f"{observation}>")

    rule = by_seed(["4", "5", "3", "3", "3"])
    play(rule, extend=extend, role_of=lambda action: "tool" if action == "5" else "user")
    assert asked[:2] == [("Not 4.", "user"), ("Not 5.", "tool")]
    assert asked[2:] == [("Not ?.", "user")] * 2  # their second and last turn


def test_a_reply_without_end_token_truncates_in_both_arms_and_steps_nothing():
    played, sandbox, _ = play(lambda prompt, seed: "3...")
    assert len(played.episodes) == 5 and sandbox.steps() == []
    for episode in played.episodes:
        assert (episode.value, episode.truncated, episode.fault) == (0.0, True, "")
        assert len(episode.turns) == 1 and not episode.turns[0].reply.stopped


def test_an_exception_excludes_only_its_own_play():
    played, _, _ = play(by_seed(["raise", "3"]))
    faults = [episode.fault for episode in played.episodes]
    assert faults == ["environment", "", "environment", "", "environment"]
    assert played.episodes[0].detail == "error: ArithmeticError: in step"
    assert played.episodes[0].value == 0.0 and played.episodes[1].value == 1.0


@pytest.mark.parametrize("trick", ["bad", "nan", "huge", "forge", "words"])
def test_an_answer_against_the_contract_is_a_fault_of_its_play(trick):
    played, _, _ = play(by_seed([trick, "3", "3", "3", "3"]))
    assert [e.fault for e in played.episodes] == ["environment", "", "", "", ""]
    assert played.episodes[0].detail.startswith("step: ") and len(played.episodes[0].detail) > 8
    assert [e.value for e in played.episodes] == [0.0, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("trick", ["crash", "hang", "hog"])
def test_the_end_of_a_process_costs_the_plays_alive_in_it_and_no_others(trick):
    # In turn 1 the plays of the first group win, guess wrong (three times), win; in turn 2 the
    # second play ends the process. The second group wins at once.
    first = iter(["3", "0", "0", "0", "3"])

    def rule(prompt, seed):
        if prompt.count(">") > 1:
            return trick
        return next(first, "3")

    played, _, _ = play(rule, asked=groups(2))
    assert [e.fault for e in played.episodes[:5]] == ["", *["environment"] * 3, ""]
    assert [e.value for e in played.episodes[:5]] == [1.0, 0.0, 0.0, 0.0, 1.0]
    assert all(e.fault == "" and e.value == 1.0 for e in played.episodes[5:])


def test_own_processes_keep_a_crash_to_its_episode():
    config = dataclasses.replace(CONFIG, isolation="episode")
    played, sandbox, _ = play(by_seed(["crash", "3", "3", "3", "3"]), config=config)
    assert [e.fault for e in played.episodes] == ["environment", "", "", "", ""]
    assert len(sandbox.sessions) == 5


def test_one_process_may_serve_all_seeds_of_an_environment():
    first = groups()[0]
    asked = [first, dataclasses.replace(first, seed=15, seed_index=1)]
    config = dataclasses.replace(CONFIG, isolation="environment")
    played, sandbox, _ = play(lambda prompt, seed: "5", asked=asked, config=config)
    assert len(sandbox.sessions) == 1
    assert [e.value for e in played.episodes] == [0.0] * 5 + [1.0] * 5
    assert played.hint_refusals == {}


def test_a_reset_against_the_contract_is_a_fault_without_turns():
    broken = fakes.Sandbox(overrides={"reset": lambda r: {"observation": 3, "contract": ""}})
    played, _, policy = play(lambda prompt, seed: "3", broken)
    assert [(e.fault, e.turns) for e in played.episodes] == [("environment", ())] * 5
    assert policy.calls == []


@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("request_number", [0, 1])
def test_a_lost_process_is_replayed_once_and_changes_nothing(batch, request_number):
    def rule(prompt, seed):
        return "0" if prompt.count(">") < 2 else "3"

    config = dataclasses.replace(CONFIG, plays=2, hinted_plays=1)
    asked = groups(plays=(2, 1))
    calm, _, _ = play(rule, asked=asked, config=config)
    unlucky = fakes.Sandbox(lose=lambda s, b: request_number if (s, b) == (0, batch) else None)
    played, sandbox, _ = play(rule, unlucky, asked=asked, config=config)
    assert played.episodes == calm.episodes
    assert len(sandbox.sessions) == 2 and sandbox.alive() == []
    assert [e.value for e in played.episodes] == [1.0] * 3


def test_a_replayed_process_repeats_the_whole_history_of_each_play():
    unlucky = fakes.Sandbox(lose=lambda s, b: 0 if (s, b) == (0, 1) else None)
    config = dataclasses.replace(CONFIG, plays=2, hinted_plays=0, max_turns=3)
    answers = iter(["1", "2", "4", "5", "3", "3"])
    play(lambda p, s: next(answers), unlucky, groups(plays=(2, 0)), config)
    again = unlucky.sessions[1].batches[0]
    assert [(r["op"], r["play"], r.get("action")) for r in again] == [
        ("load", 0, None), ("reset", 0, None), ("tools", 0, None), ("step", 0, "1"),
        ("load", 1, None), ("reset", 1, None), ("tools", 1, None), ("step", 1, "2"),
    ]  # fmt: skip


def test_a_play_that_is_lost_last_in_its_batch_is_retried_too():
    # One plain play: load, reset, tools. The sandbox loses the process after load.
    config = dataclasses.replace(CONFIG, plays=2, hinted_plays=0)
    unlucky = fakes.Sandbox(lose=lambda s, b: 5 if (s, b) == (0, 0) else None)
    played, sandbox, _ = play(lambda p, s: "3", unlucky, groups(plays=(2, 0)), config)
    assert len(sandbox.sessions) == 2
    assert [(e.fault, e.value) for e in played.episodes] == [("", 1.0)] * 2


def test_what_is_lost_twice_is_masked_as_infra_and_other_groups_play_on():
    unlucky = fakes.Sandbox(lose=lambda s, b: 0 if s in (0, 2) and b == 0 else None)
    played, sandbox, _ = play(lambda p, s: "3", unlucky, groups(2))
    assert [e.fault for e in played.episodes] == ["infra"] * 5 + [""] * 5
    assert [e.value for e in played.episodes] == [0.0] * 5 + [1.0] * 5
    assert len(sandbox.sessions) == 3 and played.dropped == 0


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
    rule = by_seed(["3", "0", "raise"])
    narrow, _, _ = play(rule, asked=groups(4), config=dataclasses.replace(CONFIG, processes=1))
    wide, _, _ = play(rule, asked=groups(4))
    assert narrow.episodes == wide.episodes


def test_sessions_are_closed_when_the_sampler_fails():
    def fail(prompt, seed):
        raise MemoryError("sampler")

    sandbox = fakes.Sandbox()
    with pytest.raises(MemoryError):
        play(fail, sandbox, groups(3))
    assert len(sandbox.sessions) == 3 and sandbox.alive() == []


def test_sessions_are_closed_when_another_cannot_be_opened():
    sandbox = fakes.Sandbox()

    def open_two(environment, seed):
        if len(sandbox.sessions) == 2:
            raise OSError("no more")
        return sandbox.open(environment, seed)

    with pytest.raises(OSError):
        play(lambda p, s: "3", sandbox, groups(3), open=open_two)
    assert len(sandbox.sessions) == 2 and sandbox.alive() == []


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

BLOB = """
class BlobEnv(QAEnv):
    max_turns = 1

    def task(self, rng):
        n = rng.randint(100, 999)
        return f"say {n} backwards", str(n)[::-1], f"try {str(n)[::-1]}x"

    def step(self, action):
        return super().step(action.replace("x}", "}"))

    def solution(self):
        return self._answer + "x0"
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


def test_words_of_a_hint_that_win_in_a_real_process_refuse_it():
    setting = domains.get("compact")
    with crew.Crew(crew.CrewConfig(tier="subprocess", boxes=1)) as boxes:

        def start(environment, seed):
            modules, prelude = dict(setting.modules), setting.prelude
            return boxes.open(environment.source, modules=modules, prelude=prelude, seed=seed)

        asked = groups(2, source=BLOB)
        played, _, _ = play(lambda p, s: "0", asked=asked, open=start, action_of=setting.wrap)
    assert played.hint_refusals == {"leaks_answer": 2} and played.leaks_N == {0: 1.0, 1: 1.0}
    assert [(e.arm, e.fault) for e in played.episodes] == [(0, "")] * 6
