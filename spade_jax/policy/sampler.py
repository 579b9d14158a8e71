"""Sampling: prompts in, replies with their log-probabilities out.

Prompts of similar length share slots: as sequences finish, their slots go to the next prompts
(continuous batching), and when no prompt waits, the live slots move together into a smaller batch.
Equal prompts of one role are prefilled once. Every array has one of a bounded set of shapes, which
the buckets fix. No cache outlives a call, so a reply never mixes two parameter versions.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from absl import logging

from spade_jax import records
from spade_jax.policy import decode, transformer

_PLACES_STEP = 32  # the cache ring is a multiple of this many places
_MOST_STEPS = 128  # of one call of the decode program, which may also return earlier


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How replies are drawn."""

    max_tokens: int  # of one reply, the end token included
    temperature: float = 1.0  # divides the logits; 0 takes the best token
    top_p: float = 1.0  # below 1: sample among the best tokens that reach this probability
    top_k: int = 0  # above 0: sample among this many best tokens

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

    @property
    def kind(self) -> str:
        """Which distribution the log-probs belong to: "full", "truncated" or "greedy".

        Only "full" equals what the trainer computes, log_softmax(logits / temperature).
        """
        if self.temperature == 0:
            return "greedy"
        return "truncated" if self.top_p < 1 or self.top_k > 0 else "full"


class Sampler:
    """Owns the compiled programs and their bucketed shapes; parameters come with each call."""

    def __init__(
        self,
        config: transformer.ModelConfig,
        *,
        end_ids: Sequence[int],
        max_length: int,
        batch_buckets: Sequence[int] = (16, 64, 128, 256, 512),
        prompt_buckets: Sequence[int] = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024),
        prefill_rows: int = 64,
        refill_share: float = 0.25,
    ):
        """Set the shapes.

        Args:
            config: the model's.
            end_ids: tokens that end a reply.
            max_length: most tokens of prompt and reply together.
            batch_buckets: allowed numbers of slots, rising; the last is the most in flight.
            prompt_buckets: allowed padded lengths of a prompt, rising.
            prefill_rows: most distinct prompts in one prefill.
            refill_share: free slots are filled once this share of all is free.
        Raises:
            ValueError: buckets that do not rise, end ids outside the vocabulary, or no refilling.
        """
        for name, buckets in (("batch_buckets", batch_buckets), ("prompt_buckets", prompt_buckets)):
            if not buckets or list(buckets) != sorted(set(buckets)) or buckets[0] < 1:
                raise ValueError(f"{name}={tuple(buckets)} must be positive, rising and not empty.")
        if not end_ids or not all(0 <= i < config.vocab_size for i in end_ids):
            raise ValueError(
                f"end_ids={tuple(end_ids)} must be at least one token id below "
                f"vocab_size={config.vocab_size}."
            )
        if not 0 < refill_share <= 1 or prefill_rows < 1:
            raise ValueError(
                f"refill_share={refill_share} must be in (0, 1] and prefill_rows={prefill_rows} at "
                f"least 1."
            )
        self.config = config
        self.end_ids = tuple(end_ids)
        self.max_length = max_length
        self.batch_buckets = tuple(batch_buckets)
        inside = [bucket for bucket in prompt_buckets if bucket < max_length]
        self.prompt_buckets = (*inside, max_length)
        self.prefill_rows = prefill_rows
        self.refill_share = refill_share
        self.shapes: set[tuple] = set()  # of programs used so far; grows only by compiling

    def generate(
        self,
        params: dict,
        prompts: Sequence[Sequence[int]],
        roles: Sequence[int],
        seeds: Sequence[int],
        sampling: SamplingConfig,
    ) -> list[records.Reply]:
        """Continue every prompt until an end token or the limit.

        A reply is a function of its prompt, role, seed, the parameters and `sampling`; other
        prompts, order and padding change its log-probs by rounding only (1e-6 in float32).

        Args:
            params: as from `transformer.init`; sharded or not.
            prompts: token ids, at least one each.
            roles: role id of each prompt.
            seeds: sampler seed of each prompt, uint32. Equal prompts want different seeds.
            sampling: limits and distribution.
        Returns:
            One reply per prompt, in order. Log-probs are those of the distribution that was
            sampled, temperature and truncation included; at temperature 0 those of temperature 1.
            A prompt that leaves no room below `max_length` gets an empty reply, not stopped.
        Raises:
            ValueError: arguments of different lengths, an empty prompt, a token outside the
                vocabulary, an unknown role, a seed outside uint32.
        """
        self._check(prompts, roles, seeds)
        request = _Request(prompts, roles, seeds, sampling, self.max_length)
        for members in self._groups(request):
            self._run(params, request, members)
        return request.replies(self.end_ids)

    def _groups(self, request) -> list[list[int]]:
        """Split the prompts so that the padded lengths in a group are within a factor of two."""
        members = [i for i, limit in enumerate(request.limits) if limit > 0]
        groups, shortest = [], 0
        for index in sorted(members, key=lambda i: (len(request.prompts[i]), request.identity(i))):
            width = _bucket(self.prompt_buckets, len(request.prompts[index]))
            if not groups or width > 2 * shortest:
                groups.append([])
                shortest = width
            groups[-1].append(index)
        return groups

    def _run(self, params, request, members):
        """Sample one group of prompts in rising order of length."""
        rows = _bucket(self.batch_buckets, min(len(members), self.batch_buckets[-1]))
        longest = _bucket(self.prompt_buckets, len(request.prompts[members[-1]]))
        places = longest + max(request.limits[i] for i in members)
        slots = decode.empty(self.config, rows, -(-places // _PLACES_STEP) * _PLACES_STEP)
        queue, owners_B = collections.deque(members), np.full(rows, -1)
        while queue or (owners_B >= 0).any():
            if queue:
                slots = self._refill(params, request, slots, queue, owners_B)
            stop_at = self._stop_at(rows, bool(queue))
            slots, emitted, active_B = self._advance(params, request, slots, stop_at)
            request.record(emitted, owners_B)
            owners_B[~active_B] = -1
            live = int(active_B.sum())
            if live and not queue and live <= stop_at:
                rows = _bucket(self.batch_buckets, live)
                slots, owners_B = self._compact(slots, owners_B, rows)

    def _stop_at(self, rows: int, waiting: bool) -> int:
        """Live slots at which a run of steps returns: time to refill, or to use a smaller batch."""
        if waiting:
            return int(rows * (1 - self.refill_share))
        # A quarter, and not the next bucket: each size costs a compilation.
        smaller = [bucket for bucket in self.batch_buckets if bucket <= rows // 4]
        return smaller[-1] if smaller else 0

    def _refill(self, params, request, slots, queue, owners_B):
        """Put waiting prompts into the free slots, a prefill's worth at a time."""
        free = collections.deque(np.flatnonzero(owners_B < 0).tolist())
        while free and queue:
            taken, distinct = [], {}
            while len(taken) < len(free) and queue:
                identity = request.identity(queue[0])
                if identity not in distinct and len(distinct) == self.prefill_rows:
                    break
                distinct.setdefault(identity, len(distinct))
                taken.append(queue.popleft())
            chosen = np.array([free.popleft() for _ in taken])
            owners_B[chosen] = taken
            keys, values = self._prefill(params, [prompt for prompt, _ in distinct])
            arrivals = _arrivals(
                request,
                taken,
                [distinct[request.identity(i)] for i in taken],
                chosen,
                _bucket(self.batch_buckets, len(taken)),
                len(owners_B),
            )
            self._note("admit", keys.shape, slots.keys_LBKCW.shape, arrivals.slots_R.shape)
            slots = decode.admit(slots, keys, values, jax.device_put(arrivals))
        return slots

    def _prefill(self, params, prompts):
        """Cache all but the last token of each prompt."""
        rows = min(_bucket(self.batch_buckets, len(prompts)), self.prefill_rows)
        width = _bucket(self.prompt_buckets, max(len(prompt) - 1 for prompt in prompts))
        tokens_UT, lengths_U = np.zeros((rows, width), np.int32), np.zeros(rows, np.int32)
        for row, prompt in enumerate(prompts):
            lengths_U[row] = len(prompt) - 1
            tokens_UT[row, width - lengths_U[row] :] = prompt[:-1]
        self._note("prefill", rows, width)
        return decode.prefill(params, self.config, *jax.device_put((tokens_UT, lengths_U)))

    def _compact(self, slots, owners_B, rows):
        """Move the live slots into a smaller batch."""
        kept_R = np.full(rows, len(owners_B), np.int32)
        live = np.flatnonzero(owners_B >= 0)
        kept_R[: len(live)] = live
        self._note("compact", slots.keys_LBKCW.shape, rows)
        return decode.compact(slots, jax.device_put(kept_R)), np.append(owners_B, -1)[kept_R]

    def _advance(self, params, request, slots, stop_at):
        sampling = request.sampling
        shape = decode.Truncation(
            temperature=np.float32(sampling.temperature),
            top_k=np.int32(sampling.top_k),
            top_p=np.float32(sampling.top_p),
        )
        arguments = (shape, np.asarray(self.end_ids, np.int32), np.int32(stop_at))
        steps = min(_MOST_STEPS, 1 << (sampling.max_tokens - 1).bit_length())
        self._note("advance", slots.keys_LBKCW.shape, steps, sampling.kind)
        slots, emitted = decode.advance(
            params,
            self.config,
            slots,
            *jax.device_put(arguments),
            steps=steps,
            kind=sampling.kind,
        )
        return slots, *jax.device_get((emitted, slots.active_B))

    def _note(self, program: str, *shape):
        if (program, *shape) not in self.shapes:
            self.shapes.add((program, *shape))
            logging.info("sampler: first use of %s%s", program, shape)

    def _check(self, prompts, roles, seeds):
        if not len(prompts) == len(roles) == len(seeds):
            raise ValueError(
                f"{len(prompts)} prompts, {len(roles)} roles and {len(seeds)} seeds: give one role "
                f"and one seed per prompt."
            )
        vocabulary = self.config.vocab_size
        for index, prompt in enumerate(prompts):
            if not len(prompt) or min(prompt) < 0 or max(prompt) >= vocabulary:
                raise ValueError(
                    f"prompt {index} = {tuple(prompt)[:20]}: give at least one token id, each from "
                    f"0 to {vocabulary - 1}."
                )
        for index, (role, seed) in enumerate(zip(roles, seeds, strict=True)):
            if not 0 <= role < len(records.ROLES) or not 0 <= seed < 2**32:
                raise ValueError(
                    f"prompt {index} has role {role} and seed {seed}: roles are 0 to "
                    f"{len(records.ROLES) - 1}, seeds 0 to 2**32 - 1."
                )


class _Request:
    """The prompts of one call and what has been sampled for them so far."""

    def __init__(self, prompts, roles, seeds, sampling, max_length):
        self.prompts = [tuple(map(int, prompt)) for prompt in prompts]
        self.roles = [int(role) for role in roles]
        self.seeds = [int(seed) for seed in seeds]
        self.sampling = sampling
        self.limits = [min(sampling.max_tokens, max_length - len(p)) for p in self.prompts]
        self._ids_ET = np.zeros((len(prompts), sampling.max_tokens), np.int32)
        self._logps_ET = np.zeros((len(prompts), sampling.max_tokens), np.float32)
        self._lengths_E = np.zeros(len(prompts), np.int64)

    def identity(self, index: int) -> tuple:
        """Prompts with equal identity share one prefill."""
        return self.prompts[index], self.roles[index]

    def record(self, emitted: decode.Emitted, owners_B: np.ndarray):
        for step in range(int(emitted.steps)):
            live_B = emitted.live_TB[step]
            owners = owners_B[live_B]
            at = self._lengths_E[owners]
            self._ids_ET[owners, at] = emitted.ids_TB[step][live_B]
            self._logps_ET[owners, at] = emitted.logps_TB[step][live_B]
            self._lengths_E[owners] += 1

    def replies(self, end_ids: tuple[int, ...]) -> list[records.Reply]:
        found = []
        for ids_T, logps_T, length in zip(
            self._ids_ET, self._logps_ET, self._lengths_E, strict=True
        ):
            ids = tuple(ids_T[:length].tolist())
            stopped = bool(ids) and ids[-1] in end_ids
            found.append(
                records.Reply(ids=ids, logps=tuple(logps_T[:length].tolist()), stopped=stopped)
            )
        return found


def _bucket(buckets: Sequence[int], size: int) -> int:
    return next(bucket for bucket in buckets if bucket >= size)


def _arrivals(request, taken, prompts, chosen, rows, slots) -> decode.Arrivals:
    """Describe the sequences `taken`, padded to `rows` with a slot number that does not exist."""

    def column(values, dtype=np.int32, fill=0):
        padded = np.full(rows, fill, dtype)
        padded[: len(taken)] = values
        return padded

    return decode.Arrivals(
        slots_R=column(chosen, fill=slots),
        prompts_R=column(prompts),
        tokens_R=column([request.prompts[i][-1] for i in taken]),
        lengths_R=column([len(request.prompts[i]) - 1 for i in taken]),
        limits_R=column([request.limits[i] for i in taken]),
        roles_R=column([request.roles[i] for i in taken]),
        seeds_R=column([request.seeds[i] for i in taken], np.uint32),
    )
