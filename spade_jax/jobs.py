"""Evaluation jobs: score checkpoints of a run beside it, each once, task by task.

In: a run's work directory and suites. Out: `evaluations/STEP/SUITE.jsonl` while tasks are scored,
`evaluations/STEP.json` when a checkpoint is done, and `table.md` and `table.csv` over all of them.
The run is only read. A job that is killed goes on where it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from spade_jax import checkpoint, files, loop, machine, records, rollout, run, settings
from spade_jax.policy import sharding
from spade_jax.suites import board, code, sheet, suite

FOLDER = "evaluations"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobConfig:
    """How a job scores."""

    step: int | None = None  # one checkpoint; None takes the newest
    policy: bool = False  # the policy that the configuration names, and no checkpoint of a run
    watch: bool = False  # score every checkpoint that comes, until the run has ended
    poll_seconds: float = 10.0  # between looks for new checkpoints
    validation: str = ""  # suite that chooses the best checkpoint
    max_tokens: int = 32  # of one reply
    context_tokens: int = 256  # of one episode
    temperature: float = 1.0

    def __post_init__(self):
        if self.watch and self.step is not None:
            raise ValueError(f"--step={self.step} and --watch exclude each other; give one.")
        if self.policy and self.watch:
            raise ValueError("--policy scores one policy and has nothing to watch; leave --watch.")


def run_job(
    config: settings.RunConfig,
    workdir: epath.PathLike,
    suites: Sequence[suite.Suite],
    job: JobConfig,
    packages: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> str:
    """Score the checkpoints asked for; returns the table.

    A policy without a run is scored as step 0, or as the step that is named.

    Args:
      packages: distributions that programs of the suites may import.
    Raises:
      checkpoint.CheckpointError: the step asked for does not exist or cannot be read.
      sheet.SheetError: results stand there that were made with other settings.
      FileNotFoundError: there are no checkpoints.
    """
    board.check_validation(suites, job.validation)
    folder, config = files.at(workdir), _with_lengths(config, job)
    if not job.policy and not (folder / "checkpoints").is_dir():
        raise FileNotFoundError(f"{folder} holds no checkpoints; set --workdir to that of a run.")
    words, model, params = run.load_policy(config, folder)
    with machine.ProgramCrew(config.sandbox, packages) as crew:
        world = machine.Machine(config, crew, words, model)
        if job.policy:
            params = jax.device_put(params, sharding.param_shardings(model, world.mesh))
            _score(job.step or 0, params, world, folder, suites, job, say)
            return write_table(folder, job.validation)
        like = loop.start(config, world, params).train
        opened = checkpoint.Store(folder, config.checkpoint, read_only=True)
        with contextlib.closing(opened) as store:
            for step in _steps(store, folder, config, job, say):
                if not unscored(folder, step, suites):
                    check_settings(folder, step, suites, _shared(config, job))
                else:
                    _score_step(store, step, like, world, folder, suites, job, say)
                table = write_table(folder, job.validation)
    return table


def unscored(folder: epath.Path, step: int, suites: Sequence[suite.Suite]) -> bool:
    """Tell whether a suite has not been summed up at this step."""
    done = summaries(folder).get(step, {})
    return any(one.name not in done for one in suites)


def check_settings(
    folder: epath.Path, step: int, suites: Sequence[suite.Suite], shared: dict
) -> None:
    """Refuse to show results as those of settings that they were not made with.

    Raises:
      sheet.SheetError: names the suite and what differs.
    """
    for one in suites:
        sheet.Sheet(folder / FOLDER / f"{step:06d}", one, shared)


def score_suite(
    given: suite.Suite, bench: suite.Bench, folder: epath.Path, shared: dict, say: Callable
) -> sheet.Score:
    """Score the tasks of a suite that have no result yet."""
    kept = sheet.Sheet(folder, given, shared)
    left = kept.missing()
    if len(left) < len(given.tasks):
        say(f"{given.name}: {len(given.tasks) - len(left)} of {len(given.tasks)} tasks are known")
    begun = time.monotonic()
    for result in given.score(bench, left) if left else ():
        kept.add(result)
    score = kept.score()
    say(
        f"{given.name}: {score.solved}/{score.questions} = {100 * score.rate:.1f}% "
        f"[{100 * score.low:.1f}, {100 * score.high:.1f}], {score.faults} faults "
        f"({time.monotonic() - begun:.0f} s)"
    )
    return score


def summaries(folder: epath.Path) -> dict[int, dict[str, dict]]:
    """Read what has been scored: step -> suite -> score."""
    found = {}
    for path in sorted((folder / FOLDER).glob("*.json")):
        if path.stem.isdigit():
            found[int(path.stem)] = json.loads(path.read_text())["suites"]
    return found


def write_summary(folder: epath.Path, step: int, scores: Sequence[sheet.Score]) -> None:
    """Write what a checkpoint has come to; suites scored before stay."""
    together = summaries(folder).get(step, {})
    together |= {score.suite: _plain(score) for score in scores}
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    text = json.dumps({"iteration": step, "suites": together}, indent=1)
    files.replace(folder / FOLDER / f"{step:06d}.json", text)


def write_table(folder: epath.Path, validation: str) -> str:
    """Write the table over all checkpoints scored so far; returns it."""
    found = summaries(folder)
    text = board.markdown(found, validation)
    files.replace(folder / FOLDER / "table.md", text)
    files.replace(folder / FOLDER / "table.csv", board.as_csv(found))
    return text


def score_completions(
    config: settings.SandboxConfig,
    problems: str,
    completions: str,
    say: Callable[[str], None] = print,
) -> float:
    """Score completions of HumanEval that somebody else wrote; no policy is loaded.

    Args:
      problems: file of the problems; empty takes that of the installed package.
      completions: JSON lines with `task_id` and `completion`, as the package's own harness reads.
    Returns:
      the share that passed. `COMPLETIONS_results.jsonl` holds every line with its verdict.
    Raises:
      ValueError: a line of a task that does not exist.
    """
    known = {p["task_id"]: p for p in code.humaneval_problems(problems)}
    rows = code.read_lines(completions)
    strangers = sorted({str(row.get("task_id")) for row in rows} - known.keys())
    if strangers:
        raise ValueError(f"{completions}: no task is called {', '.join(strangers[:5])}.")
    sources = [[code.completed(known[row["task_id"]], row["completion"])] for row in rows]
    with machine.ProgramCrew(config) as crew:
        found = list(code.judge(crew, [row["task_id"] for row in rows], sources))
    told = [
        {**row, "passed": result.answers == "1", "fault": result.answers == "x"}
        | {"result": result.detail or "passed"}
        for row, result in zip(rows, found, strict=True)
    ]
    files.replace(f"{completions}_results.jsonl", files.join(map(json.dumps, told)))
    passed, faults = sum(row["passed"] for row in told), sum(row["fault"] for row in told)
    say(f"{passed}/{len(told)} passed, {faults} faults; verdicts in {completions}_results.jsonl")
    return passed / max(len(told), 1)


def _steps(store, folder: epath.Path, config, job: JobConfig, say):
    """Yield the steps to score, oldest first; with `watch` until the run has ended."""
    found = store.steps()
    if not job.watch:
        if not found or (job.step is not None and job.step not in found):
            raise checkpoint.CheckpointError(
                f"{store.folder} has no step {job.step}; it has {found}. Choose one with --step."
            )
        yield found[-1] if job.step is None else job.step
        return
    seen: set[int] = set()
    while True:
        ended = (folder / run.RESULTS).exists()  # before the look, so that the last one is seen
        fresh = [step for step in store.steps() if step not in seen]
        yield from fresh
        seen |= set(fresh)
        if ended and not fresh:
            return
        if not fresh:
            time.sleep(job.poll_seconds)


def _score_step(store, step, like, world, folder, suites, job: JobConfig, say) -> None:
    try:
        train, _ = store.restore(step, like)
    except checkpoint.CheckpointError:
        if step in store.steps() or not job.watch:
            raise
        say(f"step {step} was removed by the run before it could be read; it is left out")
        return
    _score(step, train.params, world, folder, suites, job, say)


def _score(step: int, params: Any, world, folder, suites, job: JobConfig, say) -> None:
    say(f"step {step}")
    bench = make_bench(world, params, job)
    shared = _shared(world.config, job)
    scores = [
        score_suite(one, bench, folder / FOLDER / f"{step:06d}", shared, say) for one in suites
    ]
    write_summary(folder, step, scores)


def _shared(config: settings.RunConfig, job: JobConfig) -> dict:
    """What the results of all suites depend on."""
    seed = config.evaluate.seed
    return {"temperature": job.temperature, "max_tokens": job.max_tokens, "seed": seed}


def make_bench(world: machine.Machine, params: Any, job: JobConfig) -> suite.Bench:
    """Bind policy and sandbox to what suites ask for."""
    write = world.generate(params, records.AGENT, job.temperature, job.max_tokens)
    limits = dataclasses.replace(world.config.rollout, isolation="environment")
    bound = world.rollout(params, job.temperature, job.max_tokens)

    def ask(talks, sampler_seeds) -> list[str | None]:
        prompts = [world.chat.start(records.AGENT, talk) for talk in talks]
        room = world.sampler.max_length - job.max_tokens
        fits = [i for i, prompt in enumerate(prompts) if len(prompt) <= room]
        replies: list[str | None] = [None] * len(prompts)
        said = write([prompts[i] for i in fits], [sampler_seeds[i] for i in fits])
        for i, reply in zip(fits, said, strict=True):
            replies[i] = world.text_of(reply)
        return replies

    def play(groups: list[rollout.Group], rng: np.random.Generator) -> list[records.Episode]:
        return rollout.play(groups, bound, limits, rng).episodes

    return suite.Bench(ask=ask, crew=world.crew, play=play, seed=world.config.evaluate.seed)


def _with_lengths(config: settings.RunConfig, job: JobConfig) -> settings.RunConfig:
    """Let prompts and replies of the suites be as long as the job says."""
    rows = max(config.batch.row_tokens, job.context_tokens)
    return dataclasses.replace(
        config,
        batch=dataclasses.replace(config.batch, row_tokens=rows),
        rollout=dataclasses.replace(
            config.rollout, max_tokens=job.max_tokens, context_tokens=job.context_tokens
        ),
    )


def _plain(score: sheet.Score) -> dict:
    """Write a score as JSON does: an unknown rate is null."""
    values = dataclasses.asdict(score)
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in values.items()}
