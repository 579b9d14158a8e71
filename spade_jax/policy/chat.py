"""Messages to token ids, so that a later turn only ever appends.

    <|agent|>{system}<|tool|>{tools}<|user|>{content}<|assistant|>{reply}<|end|><|user|>...

The role of the policy stands first. A prompt ends with <|assistant|>, the reply with <|end|>. What
was sampled is kept as ids and never encoded again: the prompt of turn k + 1 is the prompt of turn
k, the sampled ids of its reply, and `extend` of the observation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from spade_jax import records
from spade_jax.policy import tokenizer

_HEADERS = {"user": "<|user|>", "assistant": "<|assistant|>", "tool": "<|tool|>"}


class Chat:
    """Renders with one tokenizer."""

    def __init__(self, words: tokenizer.Tokenizer):
        self._words = words
        self._headers = {name: words.id(token) for name, token in _HEADERS.items()}
        self._roles = [words.id(f"<|{name}|>") for name in records.ROLES]
        self.end_ids: tuple[int, ...] = (words.end_id,)  # each ends a reply
        self.refusal = ""  # why conversations could not be continued: they can
        self.rendering = ""  # why they could not be written anew: they can
        self.answers_as_tool = True  # there is a message role for what tools say

    def start(
        self,
        role: int,
        messages: Sequence[Mapping[str, str]],
        tools: Sequence[Mapping] | None = None,
    ) -> tuple[int, ...]:
        """Write the prompt of a first turn, up to and with the assistant's header.

        Args:
            role: records.DESIGNER or records.AGENT.
            messages: each {"role": "system" | "user" | "assistant" | "tool", "content": text}; a
                system message may only come first.
            tools: JSON schemas of tools, shown once in front of the messages.
        Raises:
            ValueError: unknown message role, or a system message that is not the first.
        """
        ids = [self._roles[role]]
        messages = list(messages)
        if messages and messages[0]["role"] == "system":
            ids += self._words.encode(messages.pop(0)["content"])
        if tools:
            ids += [self._headers["tool"], *self._words.encode(json.dumps(list(tools)))]
        for message in messages:
            ids += self._message(message)
        return (*ids, self._headers["assistant"])

    def reply(self, text: str) -> tuple[int, ...]:
        """Write what the policy should have sampled after a prompt: for supervised training."""
        return (*self._words.encode(text), self._words.end_id)

    def extend(self, observation: str, role: str = "user", close: bool = False) -> tuple[int, ...]:
        """Write what follows a sampled reply, up to and with the assistant's next header.

        Args:
            observation: what the environment answered.
            role: "user" or "tool".
            close: put an end token first, for a reply that the length limit cut.
        """
        end = [self._words.end_id] if close else []
        message = self._message({"role": role, "content": observation})
        return (*end, *message, self._headers["assistant"])

    def _message(self, message: Mapping[str, str]) -> list[int]:
        role = message["role"]
        if role not in self._headers:
            raise ValueError(
                f"message role {role!r}: use one of {tuple(self._headers)}, or 'system' for the "
                f"first message only."
            )
        end = [self._words.end_id] if role == "assistant" else []
        return [self._headers[role], *self._words.encode(message["content"]), *end]
