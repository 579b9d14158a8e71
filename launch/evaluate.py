"""Evaluate: `python -m launch.evaluate --config=FILE --workdir=DIR [--suite=NAME ...] [--watch]`.

Scores checkpoints of a run in a process of its own: the newest, one `--step`, or with `--watch`
each new one once, until the run has ended. `DIR/evaluations` holds the results; see
`spade_jax/jobs.py`. `launch/suite_names.py` lists the suites. With `--completions=FILE` it scores
completions of HumanEval that somebody else wrote, and with `--policy` the policy that the
configuration names (`--config.policy.weights=...`), without a run.
"""

from __future__ import annotations

import dataclasses
import sys

from absl import app, flags
from ml_collections import config_flags

from launch import entry, overrides

_CONFIG = config_flags.DEFINE_config_file("config", None, "Configuration of the run.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.")
_SUITE = flags.DEFINE_multi_string(
    "suite", ["known", "held_out"], "Suite to score; give the flag once for each."
)
_STEP = flags.DEFINE_integer("step", None, "Iteration to score; the newest by default.")
_POLICY = flags.DEFINE_bool(
    "policy", False, "Score the policy that --config.policy names; no checkpoint is read."
)
_WATCH = flags.DEFINE_bool("watch", False, "Score every checkpoint that comes.")
_POLL = flags.DEFINE_float("poll_seconds", 10.0, "Seconds between looks for new checkpoints.")
_VALIDATION = flags.DEFINE_string(
    "validation", None, "Suite that chooses the best checkpoint; `known` where it is scored."
)
_SAMPLES = flags.DEFINE_integer("samples", 1, "Tries of each question.", lower_bound=1)
_K = flags.DEFINE_list("k", ["1"], "Values of k of pass@k, at most --samples.")
_INSTANCES = flags.DEFINE_integer("instances", 0, "Questions of each environment.", lower_bound=0)
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", 0, "Tokens of one reply; 0: the run's.")
_CONTEXT = flags.DEFINE_integer("context_tokens", 0, "Tokens of one episode; 0: the run's.")
_MAX_TURNS = flags.DEFINE_integer("max_turns", 0, "Replies of one episode; 0: the run's.")
_TEMPERATURE = flags.DEFINE_float("temperature", None, "Of sampling; the run's by default.")
_COMPLETIONS = flags.DEFINE_string("completions", None, "Completions of HumanEval to score.")


def main(argv: list[str]) -> None:
    """Score what the flags name."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments {argv[1:]}.")
    if _COMPLETIONS.value is None and _WORKDIR.value is None:
        raise app.UsageError("Give --workdir of a run, or --completions.")
    entry.set_up()
    with entry.one_paragraph():
        from spade_jax import jobs

        config = entry.settings_of(_CONFIG.value)
        if _COMPLETIONS.value is not None:
            problems = [name.partition(":")[2] for name in _SUITE.value if "humaneval:" in name]
            jobs.score_completions(config.sandbox, *(problems or [""]), _COMPLETIONS.value)
        else:
            print(_score(config))


def _score(config) -> str:
    """Make the suites and score them; returns the table."""
    from launch import suite_names
    from spade_jax import jobs

    if _MAX_TURNS.value:
        longer = dataclasses.replace(config.rollout, max_turns=_MAX_TURNS.value)
        config = dataclasses.replace(config, rollout=longer)
    validation = _VALIDATION.value
    if validation is None:
        validation = "known" if "known" in _SUITE.value else ""
    sizes = suite_names.Sizes(
        samples=_SAMPLES.value,
        k=tuple(int(k) for k in _K.value),
        instances=_INSTANCES.value,
        validation=validation,
    )
    if max(sizes.k) > sizes.samples:
        raise app.UsageError(f"--k={_K.value} needs --samples of at least {max(sizes.k)}.")
    suites = suite_names.read(_SUITE.value, config, sizes)
    job = jobs.JobConfig(
        step=_STEP.value,
        policy=_POLICY.value,
        watch=_WATCH.value,
        poll_seconds=_POLL.value,
        validation=validation,
        max_tokens=_MAX_TOKENS.value or config.rollout.max_tokens,
        context_tokens=_CONTEXT.value or config.rollout.context_tokens,
        temperature=(
            config.evaluate.temperature if _TEMPERATURE.value is None else _TEMPERATURE.value
        ),
    )
    return jobs.run_job(config, _WORKDIR.value, suites, job, suite_names.packages(_SUITE.value))


if __name__ == "__main__":
    flags.mark_flags_as_required(["config"])
    sys.exit(app.run(main, flags_parser=overrides.parse_flags))
