"""Sampling: prompts in, replies with their log-probabilities out.

A `Sampler` fixes the shapes of the compiled programs; a `session.Session` owns a cache for one
version of the parameters. As sequences finish, their places in the batch go to the next prompts
(continuous batching), and when no prompt waits, the live ones go on in a smaller batch. What the
cache already holds of a prompt, from an earlier turn or from another play of its group, is not
computed again. Every array has one of a bounded set of shapes, which the buckets fix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from absl import logging

from spade_jax import records
from spade_jax.policy import laid_out, requests, session, transformer

SamplingConfig = requests.SamplingConfig

STEPS = 32  # most tokens that one call of the decode program samples in each sequence


class Sampler:
    """Owns the bucketed shapes of the programs; parameters come with each session."""

    def __init__(
        self,
        config: transformer.ModelConfig,
        *,
        end_ids: Sequence[int],
        max_length: int,
        batch_buckets: Sequence[int] = (16, 64, 128, 256, 512),
        prompt_buckets: Sequence[int] = (16, 32, 48, 64, 96, 128, 192, 256),
        prefill_rows: int = 64,
        refill_share: float = 0.25,
        rows: int | None = None,
        weight_bits: int = 16,
        cache_bits: int = 16,
        text_of: Callable[[Sequence[int]], str] | None = None,
    ):
        """Set the shapes.

        Args:
            config: the model's.
            end_ids: tokens that end a reply.
            max_length: most tokens of prompt and reply together.
            batch_buckets: allowed numbers of sequences in one call, rising; the last is the most
                that are sampled at a time.
            prompt_buckets: allowed padded lengths of a piece of prompt, rising; longer prompts are
                computed in pieces of the last.
            prefill_rows: most prompts in one prefill.
            refill_share: waiting prompts come in once this share of the sequences has finished.
            rows: most sequences whose cache a session keeps, those that wait for their next turn
                included; the last of batch_buckets by default.
            weight_bits: 8 rounds the layers' matrices, 16 keeps them as they are.
            cache_bits: 8 rounds keys and values, 16 keeps the model's compute dtype.
            text_of: tokens -> text, needed for stop texts only.
        Raises:
            ValueError: buckets that do not rise, end ids outside the vocabulary, or no refilling.
        """
        _check_shapes(config, end_ids, batch_buckets, prompt_buckets, refill_share, prefill_rows)
        rows = batch_buckets[-1] if rows is None else rows
        if rows < batch_buckets[-1]:
            raise ValueError(
                f"rows={rows}: a session keeps at least the {batch_buckets[-1]} sequences that are "
                f"sampled at a time; raise rows or lower the last of batch_buckets."
            )
        for name, bits in (("weight_bits", weight_bits), ("cache_bits", cache_bits)):
            if bits not in (8, 16):
                raise ValueError(f"{name}={bits} must be 8 or 16; 16 rounds nothing.")
        self.config = config
        self.end_ids = tuple(end_ids)
        self.max_length = max_length
        self.batch_buckets = tuple(batch_buckets)
        self.prompt_buckets = tuple(prompt_buckets)
        self.prefill_rows = prefill_rows
        self.refill_share = refill_share
        self.rows = rows
        self.steps = STEPS
        self.weight_bits, self.cache_bits = weight_bits, cache_bits
        self.text_of = text_of
        self.shapes: set[tuple] = set()  # of programs used so far; grows only by compiling

    def lay_out(self, params: dict) -> laid_out.Weights:
        """Bring parameters into the form that sessions read, for several sessions."""
        return laid_out.weights(params, self.config, self.weight_bits)

    def session(self, params: dict | laid_out.Weights) -> session.Session:
        """Open a session: a cache that lives across calls, for one version of the parameters."""
        return session.Session(self, params)

    def generate(
        self,
        params: dict,
        prompts: Sequence[Sequence[int]],
        roles: Sequence[int],
        seeds: Sequence[int],
        sampling: SamplingConfig | Sequence[SamplingConfig],
    ) -> list[records.Reply]:
        """Continue every prompt, as `session.Session.generate`, in a session of one call."""
        return self.session(params).generate(prompts, roles, seeds, sampling)

    def note(self, program: str, *shape) -> None:
        """Log each new shape: it costs a compilation."""
        if (program, *shape) not in self.shapes:
            self.shapes.add((program, *shape))
            logging.info("sampler: first use of %s%s", program, shape)


def _check_shapes(config, end_ids, batch_buckets, prompt_buckets, refill_share, prefill_rows):
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
