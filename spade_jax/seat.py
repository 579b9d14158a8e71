"""A policy at the table: it plays one environment turn by turn, or writes its hint.

In: the policy of a checkpoint or of a file. Out: actions for observations, and hints through the
gate. The crew that runs the environment belongs to the caller; nothing is run here.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from etils import epath

from spade_jax import hint, machine, programs, records, restored, settings
from spade_jax.domains import domain
from spade_jax.policy import sampler, transformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """What is needed to speak with a policy."""

    name: str  # for people
    words: machine.Words
    model: transformer.ModelConfig
    params: Any


def load(
    config: settings.RunConfig, workdir: epath.PathLike | None, step: int | None = None
) -> Policy:
    """Load the policy of a run's checkpoint, or without a run the one that the configuration names.

    Raises:
      FileNotFoundError, ValueError, checkpoint.CheckpointError: there is none; names the remedy.
    """
    if workdir is None:
        named = config.policy.weights
        words, model, params = machine.load_policy(config, config.policy.tokenizer, named)
        return Policy(name=named, words=words, model=model, params=params)
    found = restored.restore(config, workdir, step)
    return Policy(
        name=f"step {found.step} of {found.folder}",
        words=found.words,
        model=found.model,
        params=found.train.params,
    )


class Player:
    """Owns the conversation of one play, and the sampler's cache of it."""

    def __init__(
        self, policy: Policy, config: settings.RunConfig, setting: domain.Domain, seed: int
    ):
        self._policy, self._config, self._domain = policy, config, setting
        self._chat = machine.open_chat(policy.words)
        alone = dataclasses.replace(config.sampler, sequences=1, rows=0)
        made = machine.make_sampler(
            dataclasses.replace(config, sampler=alone), policy.model, self._chat
        )
        self._room = made.max_length
        self._session = made.session(policy.params)
        self._rng = np.random.default_rng(seed)
        self._ids: tuple[int, ...] = ()  # of the conversation so far
        self._opening: tuple = ()  # messages and tools of the first prompt
        self._said = ""  # the last reply
        self._exchanges: list[tuple[str, str, str]] = []  # see `domain.continued`
        machine.check_history(config.rollout, self._chat)
        self._answers = "user"  # the message role of the next observation

    def act(self, observation: str, tools: list | None = None) -> tuple[str, str | None]:
        """Answer an observation; the first one comes with the tools.

        Returns:
          the reply, and the action cut out of it. The action is None where the play is over for the
          policy, and the text then says why.
        """
        if not self._ids:
            messages = domain.agent_messages(self._domain, observation)
            self._opening = (messages, tools)
            self._ids = tuple(self._chat.start(records.AGENT, messages, tools))
        elif self._config.rollout.history == "rendered":
            self._exchanges.append((self._said, observation, self._answers))
            messages, tools = self._opening
            messages = domain.continued(messages, self._exchanges)
            self._ids = tuple(self._chat.start(records.AGENT, messages, tools))
        else:
            self._ids += tuple(self._chat.extend(observation, self._answers))
        limits = self._config.rollout
        if len(self._ids) + limits.max_tokens > self._room:
            return self._no_room(self._ids, limits.max_tokens), None
        reply = self._generate(self._ids, limits.temperature, limits.max_tokens)
        self._ids += reply.ids
        text = self._text_of(reply)
        self._said = text
        if not reply.stopped:
            return f"{text} (cut after rollout.max_tokens={limits.max_tokens})", None
        action = self._domain.action(text)
        self._answers = domain.role_of(self._domain, self._chat.answers_as_tool, action)
        return text, action

    def hint(self, source: str) -> tuple[str | None, str]:
        """Write a hint from a program's source; the gate does not know the instance's answer.

        Returns:
          the hint, or None and the reason why there is none.
        """
        config, reason = self._config.hint, ""
        messages = domain.hint_messages(self._domain, source)
        ids = tuple(self._chat.start(records.AGENT, messages))
        if len(ids) + config.max_tokens > self._room:
            return None, self._no_room(ids, config.max_tokens)
        for _ in range(2):
            reply = self._generate(ids, config.temperature, config.max_tokens)
            if not reply.stopped:
                reason = f"its text was cut after hint.max_tokens={config.max_tokens}"
                continue
            verdict = hint.judge(programs.without_thinking(self._text_of(reply)), (), config)
            if verdict.hint is not None:
                return verdict.hint, ""
            reason = f"the gate refused what the policy wrote: {verdict.reason}"
        return None, reason

    def _no_room(self, ids: tuple[int, ...], most: int) -> str:
        return (
            f"{len(ids)} tokens and a reply of {most} do not fit {self._room}; raise "
            "--config.batch.row_tokens or --config.rollout.context_tokens"
        )

    def _generate(self, ids: tuple[int, ...], temperature: float, most: int) -> records.Reply:
        chosen = sampler.SamplingConfig(temperature=temperature, max_tokens=most)
        drawn = int(self._rng.integers(2**32))
        (reply,) = self._session.generate([ids], [records.AGENT], [drawn], chosen)
        return reply

    def _text_of(self, reply: records.Reply) -> str:
        ids = reply.ids[:-1] if reply.stopped else reply.ids
        return self._policy.words.decode(ids)
