"""Thinking models: the prompt of each turn is written anew, without earlier thinking."""

import dataclasses

import fakes
import jax
import pytest
from test_policy_published import CHATML, speech

from spade_jax import domains, machine, records, rollout, seat, settings
from spade_jax.domains import domain
from spade_jax.policy import transformer

# Drops it from earlier replies, as Qwen3's does.
QWEN = CHATML.replace(
    "{{ message.content }}", "{{ message.content.split('</think>')[-1].lstrip('\\n') }}"
)


def test_rendered_prompts_are_written_anew_from_all_turns_and_follow_nothing():
    config = dataclasses.replace(fakes.PLAY, max_turns=2, history="rendered")
    played, _, policy = fakes.play(lambda p, s: "0" if p.count(">") < 2 else "3", config=config)
    for number, episode in enumerate(played.episodes):
        prompts = [fakes.decode(call[0][number]) for call in policy.calls]
        assert prompts[1] == f"{prompts[0]}0/Not 0.>"
        assert [fakes.decode(turn.observed_ids) for turn in episode.turns] == prompts
        assert [turn.rendered for turn in episode.turns] == [False, True]


def test_rendered_results_of_tool_calls_are_tool_messages_too():
    messages = domain.continued([], [("call", "42", "tool"), ("so it is", "right", "user")])
    assert [m["role"] for m in messages] == ["assistant", "tool", "assistant", "user"]
    asked = []

    def start(environment, observation, shown, tools, exchanges=()):
        asked.append([role for _, _, role in exchanges])
        return fakes.encode(f"{observation}{len(exchanges)}>")

    config = dataclasses.replace(fakes.PLAY, max_turns=2, history="rendered")
    fakes.play(lambda p, s: "0", config=config, start=start, role_of=lambda action: "tool")
    assert ["tool"] in asked


def test_thinking_conversations_may_be_written_anew(tmp_path):
    chat = speech(tmp_path, QWEN)
    assert chat.rendering == ""
    exchanges = [("<think>\nhm\n</think>\n\nr1", "wrong", "user"), ("r2", "wrong again", "user")]
    messages = domain.continued([{"role": "user", "content": "q"}], exchanges)
    assert [m["content"] for m in messages] == ["q", "r1", "wrong", "r2", "wrong again"]
    openly = chat._rendered_openly(
        [{"role": "user", "content": "q"}]
        + [
            {"role": role, "content": text}
            for pair in exchanges
            for role, text in zip(("assistant", "user"), pair[:2], strict=True)
        ]
    )
    assert chat._words.decode(chat.start(records.AGENT, messages)) == openly
    one = rollout.RolloutConfig(max_turns=2)
    with pytest.raises(ValueError, match="history='appended' with max_turns=2.*'rendered'"):
        machine.check_history(one, chat)
    machine.check_history(dataclasses.replace(one, history="rendered"), chat)


def test_a_template_that_does_not_drop_thinking_is_not_written_anew(tmp_path):
    keeping = speech(tmp_path, CHATML)
    assert "exactly the thinking" in keeping.rendering
    machine.check_history(rollout.RolloutConfig(max_turns=2), keeping)
    with pytest.raises(ValueError, match="history='rendered' with max_turns=2"):
        machine.check_history(rollout.RolloutConfig(max_turns=2, history="rendered"), keeping)


def test_a_player_at_the_table_writes_prompts_anew_too(tmp_path, monkeypatch):
    chat = speech(tmp_path, QWEN)
    words = chat._words
    model = transformer.ModelConfig(
        vocab_size=words.vocab_size, layers=1, width=8, heads=1, kv_heads=1, head_dim=8, mlp_width=8
    )
    params = transformer.init(model, jax.random.key(0))
    limits = rollout.RolloutConfig(max_turns=2, history="rendered", max_tokens=8)
    config = dataclasses.replace(settings.RunConfig(), rollout=limits)
    policy = seat.Policy(name="p", words=words, model=model, params=params)
    player = seat.Player(policy, config, domains.get("games"), seed=0)
    said = iter(["<think>\na\n</think>\n\nr1", "r2"])
    asked = []

    def generate(ids, temperature, most):
        asked.append(ids)
        return records.Reply(ids=chat.reply(next(said)), logps=(), stopped=True)

    monkeypatch.setattr(player, "_generate", generate)
    player.act("q")
    player.act("wrong")
    messages = domain.agent_messages(domains.get("games"), "q")
    later = domain.continued(messages, [("r1", "wrong", "user")])
    assert asked == [chat.start(records.AGENT, messages), chat.start(records.AGENT, later)]
