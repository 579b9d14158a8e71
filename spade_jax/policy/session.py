"""A cache that lives across calls: prompts are recognised by their tokens and not computed twice.

Comes in: parameters once, prompts with every call. Goes out: replies. Each of N rows holds the
keys and values of one sequence. A prompt looks for the row that begins most like it: a later turn
finds its own history and takes the row over, so that only the observation is computed; plays of one
group, and prompts that share their beginning, copy the row of the first. Rows of finished sequences
stay until their place is needed, the longest unused going first. The caller names no conversations:
what is reused depends on tokens alone, and a reply is the same with and without reuse, up to
rounding.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence

import jax
import numpy as np

from spade_jax import records
from spade_jax.policy import cache, decode, draw, laid_out, requests, table

_SHORTEST_COPY = 8  # tokens: copying fewer from another row is not worth a program call
_PREFILL_TOKENS = 8192  # of one prefill, padding included
_FIRST_PLACES = 32  # smallest number of places that are read; then half more, double, ...


class Session:
    """Owns the cache; one version of the parameters at a time."""

    def __init__(self, sampler, params: dict | laid_out.Weights):
        """Take the parameters.

        Args:
            sampler: a `sampler.Sampler`, which fixes shapes and limits.
            params: as from `transformer.init`, sharded or not, or from `Sampler.lay_out`.
        """
        self._sampler = sampler
        self.config = sampler.config
        self._cache: cache.Cache | None = None
        self._table = table.Table()
        self._active: dict[int, requests.Request] = {}
        self.prefilled = 0  # tokens that were computed for prompts, padding not counted
        self.update(params)

    def update(self, params: dict | laid_out.Weights) -> None:
        """Go on with another version of the parameters: what the cache holds is forgotten."""
        ready = isinstance(params, laid_out.Weights)
        self._weights = params if ready else self._sampler.lay_out(params)
        self._table.forget()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        roles: Sequence[int],
        seeds: Sequence[int],
        sampling: requests.SamplingConfig | Sequence[requests.SamplingConfig],
    ) -> list[records.Reply]:
        """Continue every prompt until an end token, a stop text or the limit.

        A reply is a function of its prompt, role, seed, the parameters and its sampling; other
        prompts, order, padding and reuse change its log-probs by rounding only (1e-6 in float32),
        and within equal shapes by nothing.

        Args:
            prompts: token ids, at least one each; later turns with their whole history.
            roles: role id of each prompt.
            seeds: sampler seed of each prompt, uint32. Equal prompts want different seeds.
            sampling: limits and distribution, for all prompts or one for each.
        Returns:
            One reply per prompt, in order. Log-probs are those of the distribution that was
            sampled, temperature and truncation included; at temperature 0 those of temperature 1.
            A prompt that leaves no room below `max_length` gets an empty reply, not stopped.
        Raises:
            ValueError: arguments of different lengths, an empty prompt, a token outside the
                vocabulary, an unknown role, a seed outside uint32, stop texts without `text_of`.
        """
        if isinstance(sampling, requests.SamplingConfig):
            sampling = [sampling] * len(prompts)
        self._check(prompts, roles, seeds, sampling)
        asked = [
            requests.Request(*one, self._sampler.max_length)
            for one in zip(prompts, roles, seeds, sampling, strict=True)
        ]
        waiting = [request for request in asked if request.limit > 0]
        self._make_room(waiting)
        queue, reserved = self._line_up(waiting)
        try:
            while queue or self._active:
                self._admit(queue, reserved)
                self._advance(bool(queue))
        except BaseException:  # rows are noted before they are computed: none can be trusted
            self._active.clear()
            self._cache, self._table = None, table.Table()
            raise
        return [request.reply() for request in asked]

    def _make_room(self, waiting) -> None:
        """Let the cache hold these requests, as far as the limit of rows allows."""
        if not waiting:
            return
        sampler = self._sampler
        wanted, largest = min(len(waiting), sampler.rows), sampler.batch_buckets[-1]
        rows = _bucket(sampler.batch_buckets, wanted)
        if wanted > largest:
            rows = min(-(-wanted // largest) * largest, sampler.rows)
        places = max(len(request.prompt) + request.limit for request in waiting)
        rows, places = max(rows, self._table.rows), _places(max(places, self._table.places))
        if (rows, places) == (self._table.rows, self._table.places):
            return
        sampler.note("grow", self._table.rows, self._table.places, rows, places)
        if self._cache is None:
            self._cache = cache.empty(
                self.config, rows, places, sampler.cache_bits, self._weights.cache
            )
        else:
            self._cache = cache.grow(self._cache, rows, places)
        self._table.grow(rows, places)

    def _line_up(self, waiting) -> tuple[collections.deque, set[int]]:
        """Order requests: those with a row of their own first, then by length."""
        reserved, order = set(), []
        for place, request in enumerate(waiting):
            row, shared = self._table.match(request.prompt[:-1])
            own = shared > 0 and shared == self._table.lengths_N[row]
            if own:
                reserved.add(row)
            order.append((not own, len(request.prompt), request.prompt, place))
        return collections.deque(waiting[place] for *_, place in sorted(order)), reserved

    def _admit(self, queue, reserved: set[int]) -> None:
        """Give rows to waiting requests, and compute what their rows do not hold yet."""
        while queue and len(self._active) < self._sampler.batch_buckets[-1]:
            leaders, copies, followers = self._assign(queue, reserved)
            if not leaders:
                return
            self._copy(copies)
            self._extend(leaders)
            self._copy(followers)

    def _assign(self, queue, reserved):
        """Take requests off the queue that can be admitted together.

        Returns:
            leaders: row -> tokens that it has already; one for each distinct prompt.
            copies: (source, target, tokens) to copy before the leaders are computed.
            followers: the same, for rows with equal prompts, to copy after that.
        """
        leaders, copies, followers = {}, [], []
        row_of: dict[tuple, int] = {}
        pinned: set[int] = set()
        while queue and len(self._active) < self._sampler.batch_buckets[-1]:
            request = queue[0]
            known = row_of.get(request.prompt)
            if known is None and len(leaders) == self._sampler.prefill_rows:
                break
            if known is None:
                source, shared = self._table.match(request.prompt[:-1])
            else:
                source, shared = known, len(request.prompt) - 1
            row = self._table.take(source, shared, pinned | self._active.keys(), reserved)
            if row is None:
                break
            queue.popleft()
            if row == source:
                pass
            elif known is not None:
                followers.append((source, row, shared))
            elif shared >= _SHORTEST_COPY:
                copies.append((source, row, shared))
                pinned.add(source)
            else:
                shared = 0
            self._active[row] = request
            if known is None:
                row_of[request.prompt], leaders[row] = row, shared
        return leaders, copies, followers

    def _copy(self, pairs) -> None:
        if not pairs:
            return
        size = 1 << (len(pairs) - 1).bit_length()
        sources_R, targets_R = np.zeros(size, np.int32), np.zeros(size, np.int32)
        for index, (source, target, _) in enumerate(pairs):
            sources_R[index], targets_R[index] = source, target
        places = min(_places(max(shared for *_, shared in pairs)), self._cache.places)
        self._sampler.note("copy", self._cache.keys_L[0].shape, size, places)
        self._cache = cache.copy(
            self._cache, *jax.device_put((sources_R, targets_R)), places=places
        )
        for _, target, _ in pairs:
            self._table.remember(target, self._active[target].prompt)

    def _extend(self, leaders: dict[int, int]) -> None:
        """Compute what the prompts of these rows have beyond the tokens they share."""
        tails = []
        for row, shared in leaders.items():
            self._table.remember(row, self._active[row].prompt)
            tokens = self._active[row].prompt[shared:-1]
            if tokens:
                tails.append((row, shared, tokens))
        # Rows that start at 0 need no cache, and those of like length little padding.
        tails.sort(key=lambda tail: (tail[1] > 0, len(tail[2])))
        for fresh in (True, False):
            members = [tail for tail in tails if (tail[1] == 0) == fresh]
            while members:
                width = _bucket(self._sampler.prompt_buckets, len(members[-1][2]))
                size = min(self._sampler.prefill_rows, max(1, _PREFILL_TOKENS // width))
                self._prefill(members[-size:])
                del members[-size:]

    def _prefill(self, tails) -> None:
        """Compute the tokens of some rows, in pieces of the largest bucket."""
        piece = self._sampler.prompt_buckets[-1]
        rows = min(_power_of_four(len(tails)), self._sampler.prefill_rows)
        for begin in range(0, max(len(tokens) for *_, tokens in tails), piece):
            parts = [
                (row, shared + begin, tokens[begin : begin + piece])
                for row, shared, tokens in tails
            ]
            width = _bucket(self._sampler.prompt_buckets, max(len(p[2]) for p in parts))
            tokens_UT = np.zeros((rows, width), np.int32)
            rows_U, starts_U, counts_U = np.zeros((3, rows), np.int32)
            for index, (row, start, tokens) in enumerate(parts):
                tokens_UT[index, : len(tokens)] = tokens
                rows_U[index], starts_U[index], counts_U[index] = row, start, len(tokens)
            self.prefilled += int(counts_U.sum())
            self._compute(rows_U, tokens_UT, starts_U, counts_U)

    def _compute(self, rows_U, tokens_UT, starts_U, counts_U) -> None:
        longest = int(starts_U.max())
        on_device = jax.device_put((tokens_UT, starts_U, rows_U, counts_U))
        tokens, starts, rows, counts = on_device
        past = self._read(rows, longest) if longest else None
        self._sampler.note("extend", tokens_UT.shape, past.places if longest else 0)
        exact = self._weights.ready if self._weights.exact is None else self._weights.exact
        fresh = decode.extend(
            exact, self.config, past, tokens, starts, bits=self._sampler.cache_bits
        )
        self._write(fresh, rows, starts, counts)

    def _advance(self, waiting: bool) -> None:
        """Sample a few tokens in every active row, and take finished ones out."""
        sampler = self._sampler
        size = _bucket(sampler.batch_buckets, len(self._active))
        whole = (
            size == self._table.rows
        )  # then the cache itself is read, and not a copy of some rows
        order = range(size) if whole else sorted(self._active)
        rows_B, lengths_B = np.zeros((2, size), np.int32)
        for index, row in enumerate(order):
            rows_B[index] = row
            if row in self._active:
                lengths_B[index] = len(self._active[row].tokens) - 1
        stop_at = self._stop_at(size, waiting)
        longest = max(request.sampling.max_tokens for request in self._active.values())
        steps = min(sampler.steps, 1 << (longest - 1).bit_length())
        truncated = any(request.sampling.truncated for request in self._active.values())
        state = _state([self._active.get(row) for row in order], lengths_B)
        rows, lengths, state, ends, stop = jax.device_put(
            (rows_B, lengths_B, state, np.asarray(sampler.end_ids, np.int32), np.int32(stop_at))
        )
        past = self._read(None if whole else rows, max(1, int(lengths_B.max())))
        sampler.note("advance", size, past.places, steps, truncated)
        fresh, emitted = decode.advance(
            self._weights.ready,
            self.config,
            past,
            state,
            ends,
            stop,
            steps=steps,
            truncated=truncated,
        )
        emitted = jax.device_get(emitted)
        counts_B = emitted.live_TB.sum(axis=0, dtype=np.int32)
        self._write(fresh, rows, lengths, jax.device_put(counts_B))
        for index, row in enumerate(order):
            if row in self._active:
                self._record(row, emitted, index, counts_B[index])

    def _stop_at(self, size: int, waiting: bool) -> int:
        """Live rows at which a call returns: time to refill, or to use a smaller batch."""
        if waiting:
            return int(len(self._active) * (1 - self._sampler.refill_share))
        # A quarter, and not the next bucket: each size costs a compilation.
        smaller = [bucket for bucket in self._sampler.batch_buckets if bucket <= size // 4]
        return smaller[-1] if smaller else 0

    def _record(self, row: int, emitted: decode.Emitted, index: int, count: int) -> None:
        request = self._active[row]
        request.append(
            emitted.ids_TB[:count, index].tolist(),
            emitted.logps_TB[:count, index].tolist(),
            self._sampler.end_ids,
            self._sampler.text_of,
        )
        if request.done:
            del self._active[row]
            self._table.remember(row, request.tokens)

    def _read(self, rows, longest: int) -> cache.Cache:
        """Give the cache of some rows, None for all, up to the longest sequence."""
        places = min(_places(longest), self._cache.places)
        if rows is None and places == self._cache.places:
            return self._cache
        size = self._table.rows if rows is None else len(rows)
        self._sampler.note("read", self._cache.keys_L[0].shape, size, places)
        return cache.read(self._cache, rows, places)

    def _write(self, fresh, rows, starts, counts) -> None:
        self._sampler.note("write", self._cache.keys_L[0].shape, fresh.keys_L[0].shape)
        self._cache = cache.write(self._cache, fresh, rows, starts, counts)

    def _check(self, prompts, roles, seeds, sampling) -> None:
        if not len(prompts) == len(roles) == len(seeds) == len(sampling):
            raise ValueError(
                f"{len(prompts)} prompts, {len(roles)} roles, {len(seeds)} seeds and "
                f"{len(sampling)} samplings: give one role, one seed and one sampling per prompt."
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
        if self._sampler.text_of is None and any(one.stop for one in sampling):
            raise ValueError("sampling.stop is text: give the sampler `text_of` to read tokens.")


def _state(members: list[requests.Request | None], lengths_B) -> decode.Rows:
    """Describe the sequences of a batch; None and what is missing at the end is padding."""

    def column(value, dtype=np.int32, fill=0):
        padded = np.full(len(lengths_B), fill, dtype)
        for index, request in enumerate(members):
            if request is not None:
                padded[index] = value(request)
        return padded

    return decode.Rows(
        tokens_B=column(lambda request: request.tokens[-1]),
        lengths_B=lengths_B,
        steps_B=column(lambda request: len(request.ids)),
        limits_B=column(lambda request: request.limit),
        roles_B=column(lambda request: request.role),
        seeds_B=column(lambda request: request.seed, np.uint32),
        shape=draw.Shape(
            temperatures_B=column(lambda request: request.sampling.temperature, np.float32, 1),
            top_k_B=column(lambda request: request.sampling.top_k),
            top_p_B=column(lambda request: request.sampling.top_p, np.float32, 1),
        ),
    )


def _bucket(buckets: Sequence[int], size: int) -> int:
    """Give the smallest bucket that holds a size, the largest where none does."""
    return next((bucket for bucket in buckets if bucket >= size), buckets[-1])


def _power_of_four(size: int) -> int:
    return 1 << (-(-(size - 1).bit_length() // 2) * 2)


def _places(size: int) -> int:
    """Round up to 32, 48, 64, 96, 128, 192, ...: at most half as much again."""
    whole = _FIRST_PLACES
    while whole < size:
        if whole * 3 // 2 >= size:
            return whole * 3 // 2
        whole *= 2
    return whole
