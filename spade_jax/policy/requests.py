"""What is asked of the sampler: how replies are drawn, and a reply in the making."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from spade_jax import records


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How replies are drawn."""

    max_tokens: int  # of one reply, the end token included
    temperature: float = 1.0  # divides the logits; 0 takes the best token
    top_p: float = 1.0  # below 1: sample among the best tokens that reach this probability
    top_k: int = 0  # above 0: sample among this many best tokens
    stop: tuple[str, ...] = ()  # a reply also ends with the token that completes one of these

    def __post_init__(self):
        if self.max_tokens < 1:
            raise ValueError(f"sampling.max_tokens={self.max_tokens} must be at least 1.")
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(
                f"sampling.temperature={self.temperature} must be at least 0 and finite; "
                f"0 takes the best token."
            )
        if not 0 < self.top_p <= 1:
            raise ValueError(f"sampling.top_p={self.top_p} must be in (0, 1]; 1 keeps all tokens.")
        if self.top_k < 0:
            raise ValueError(f"sampling.top_k={self.top_k} must be at least 0; 0 keeps all tokens.")
        if isinstance(self.stop, str) or not all(self.stop):
            raise ValueError(
                f"sampling.stop={self.stop!r} must be a tuple of texts that are not empty."
            )

    @property
    def truncated(self) -> bool:
        """Whether tokens are cut off. The trainer's log-probs, log_softmax(logits / temperature),
        are those of the sampler only where this is False and the temperature is above 0."""
        return self.top_p < 1 or self.top_k > 0


class Request:
    """A prompt and what has been sampled for it so far."""

    def __init__(
        self,
        prompt: Sequence[int],
        role: int,
        seed: int,
        sampling: SamplingConfig,
        max_length: int,
    ):
        self.prompt = tuple(map(int, prompt))
        self.role, self.seed, self.sampling = int(role), int(seed), sampling
        self.limit = min(sampling.max_tokens, max_length - len(self.prompt))
        self.ids: list[int] = []
        self.logps: list[float] = []
        self.stopped = False
        self._searched = 0  # tokens of the reply that complete no stop text

    @property
    def done(self) -> bool:
        """Say whether nothing is left to sample."""
        return self.stopped or len(self.ids) >= self.limit

    @property
    def tokens(self) -> tuple[int, ...]:
        """Prompt and reply."""
        return (*self.prompt, *self.ids)

    def append(
        self,
        ids: Sequence[int],
        logps: Sequence[float],
        end_ids: Sequence[int],
        text_of: Callable[[Sequence[int]], str] | None,
    ) -> None:
        """Take what a call of the decode program sampled, and see whether the reply is over."""
        self.ids += ids
        self.logps += logps
        self.stopped = bool(self.ids) and self.ids[-1] in end_ids
        if self.sampling.stop:
            self._cut(text_of)

    def reply(self) -> records.Reply:
        """Give what was sampled so far as a reply."""
        return records.Reply(ids=tuple(self.ids), logps=tuple(self.logps), stopped=self.stopped)

    def _cut(self, text_of) -> None:
        """End the reply with the first token that completes a stop text.

        A program learns of it only between calls; what was sampled after that token is dropped.
        """
        whole = text_of(self.ids)
        if any(stop in whole for stop in self.sampling.stop):
            for count in range(self._searched + 1, len(self.ids) + 1):
                text = text_of(self.ids[:count])
                if any(stop in text for stop in self.sampling.stop):
                    del self.ids[count:], self.logps[count:]
                    self.stopped = True
                    return
        self._searched = len(self.ids)
