"""A whole run: warm start if asked, evaluation, iterations, evaluation, closing table.

In: a configuration and a work directory. Out: checkpoints, metrics, samples and `results.json`
there. The same call again continues from the newest checkpoint; a finished run only prints its
table, unless more iterations are asked for. The directory keeps the configuration: see `claim.py`.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from typing import Any

import jax
from etils import epath

from spade_jax import (
    answering,
    archive,
    checkpoint,
    claim,
    closing,
    domains,
    evaluate,
    files,
    hosts,
    learn,
    ledger,
    loop,
    machine,
    metrics,
    preemption,
    records,
    safeguards,
    seeds,
    settings,
    supervised,
    warmstart,
)
from spade_jax.domains import domain
from spade_jax.policy import sharding, transformer, weights

RESULTS = "results.json"
POLICY = "policy.npz"
PROGRAMS = "programs.jsonl"


def run(config: settings.RunConfig, workdir: str, say: Callable[[str], None] = print) -> dict:
    """Do everything the configuration says; returns what `results.json` holds.

    Raises:
      checkpoint.CheckpointError, sandbox.records.SandboxUnavailable, ledger.DivergedError,
      FileNotFoundError, ValueError: each with a message that names the remedy.
      preemption.Preempted: SIGTERM came, and the state is saved.
    """
    folder = files.at(workdir)
    with preemption.Notice() as notice, hosts.Hosts(folder, config.hosts) as group:
        try:
            return _run(config, folder, notice, group, say if group.index == 0 else _silent)
        except preemption.Preempted:
            group.close()  # all processes end together: none of them is missing
            raise


def _run(config: settings.RunConfig, folder: epath.Path, notice, group: hosts.Hosts, say) -> dict:
    learn.check_rows(config.learn, config.batch, machine.make_mesh(config))
    folder.mkdir(parents=True, exist_ok=True)
    moved = group.first(lambda: claim.compare(folder, config), lambda: [])
    if moved:
        say(
            f"{', '.join(moved)} changed since the last start: arrays are laid out anew, and "
            "numbers equal those of the old mesh to rounding, not bit for bit"
        )
    if (folder / RESULTS).exists():
        results = _read_results(folder / RESULTS)
        if config.mode == "supervised" or results["iterations"] >= config.iterations:
            say(closing.table(results, folder))
            return results
    with machine.ProgramCrew(config.sandbox) as crew:
        if group.count == 1:
            notice.hold(lambda: True)  # the supervised start saves as it goes
        say(f"sandbox: tier {config.sandbox.tier}, {crew.describe()}")
        words, model, params = find_policy(config, crew, folder, group, say)
        world = machine.Machine(config, crew, words, model, group)
        check_prompts(config, world)
        _take(config, folder, group)  # nothing that a start needs is missing any more
        results = _iterations(config, world, params, folder, notice, say)
    if group.index == 0:
        files.replace(folder / RESULTS, json.dumps(results, indent=1))
    say(closing.table(results, folder))
    return results


def _read_results(path: epath.Path) -> dict:
    """Read what a finished run left.

    Raises:
      ValueError: the file is damaged.
    """
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        results["iterations"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{path} is damaged ({error}). Remove it and run the same command again: it is written "
            "anew from the newest checkpoint."
        ) from error
    return results


def _take(config: settings.RunConfig, folder: epath.Path, group: hosts.Hosts) -> None:
    group.first(lambda: claim.take(folder, config), lambda: None)


def _silent(text: str) -> None:
    """Say nothing: the first process speaks for all."""


def check_prompts(config: settings.RunConfig, world: machine.Machine) -> None:
    """Refuse rows that no draft fits, before anything is generated.

    Counts prompts without passage, win rate and memory; with them they are longer.

    Raises:
      ValueError: the longest prompt and design.max_tokens together exceed batch.row_tokens.
    """
    if config.mode != "self_play":
        return
    longest = 0
    for skill in records.SKILLS_OF[config.setting]:
        for difficulty in records.DIFFICULTIES:
            request = domain.Request(
                skill=skill, difficulty=difficulty, family=config.design.family, passage=""
            )
            messages = domain.designer_messages(world.domain, request)
            longest = max(longest, len(world.chat.start(records.DESIGNER, messages)))
    if longest + config.design.max_tokens > config.batch.row_tokens:
        raise ValueError(
            f"batch.row_tokens={config.batch.row_tokens}: a designer's prompt of {longest} tokens "
            f"and a draft of design.max_tokens={config.design.max_tokens} do not fit. Set it to "
            f"at least {longest + config.design.max_tokens}."
        )


def load_policy(
    config: settings.RunConfig, folder: epath.Path
) -> tuple[machine.Words, transformer.ModelConfig, Any]:
    """Load the policy that a run made in its folder, or else the one it was given.

    Raises:
      FileNotFoundError: there is none.
    """
    if (folder / POLICY).exists():
        return machine.load_policy(config, str(folder / warmstart.TOKENIZER), str(folder / POLICY))
    if config.mode == "supervised" or config.warmstart.from_scratch or not config.policy.weights:
        raise FileNotFoundError(
            f"{folder / POLICY} does not exist: the supervised start of this run has not ended. "
            "Run `python -m launch.train` with the same --config and --workdir first."
        )
    return machine.load_policy(config, config.policy.tokenizer, config.policy.weights)


def find_policy(
    config: settings.RunConfig,
    crew: machine.ProgramCrew,
    folder: epath.Path,
    group: hosts.Hosts,
    say: Callable[[str], None],
) -> tuple[machine.Words, transformer.ModelConfig, Any]:
    """Load the policy, or train it on the seed environments where there is none to load."""
    made = folder / POLICY
    scratch = config.warmstart.from_scratch or not config.policy.weights
    if made.exists() or (config.mode != "supervised" and not scratch):
        return load_policy(config, folder)
    passages = machine.open_corpus(config)
    _take(config, folder, group)  # the supervised start writes into the directory
    words, model, params = _warm_start(config, crew, folder, scratch, passages, group, say)
    if group.count > 1:
        params = sharding.gather(params, model, machine.make_mesh(config))
    if group.index == 0:
        with files.written(made) as local:
            weights.save(local, params, model)
    say(f"warm start: policy written to {made}")
    return words, model, params


def _warm_start(config, crew, folder: epath.Path, scratch: bool, passages, group: hosts.Hosts, say):
    def teach():
        return warmstart.write_lessons(config, crew.start, folder, say)

    taught, path = group.first(teach, teach), folder / warmstart.TOKENIZER
    if scratch:
        words = group.first(
            lambda: warmstart.train_tokenizer(config, taught, path),
            lambda: machine.load_tokenizer(str(path)),
        )
        model = machine.fit_vocabulary(config.policy.model, words)
        key = jax.random.key(int(seeds.stream(config.seed, "weights").integers(2**31)))
        params = transformer.init(model, key)
    else:
        words, model, params = machine.load_policy(
            config, config.policy.tokenizer, config.policy.weights
        )
        if group.index == 0:
            with files.written(path) as local:
                words.save(local)
    mesh = machine.make_mesh(config)
    params = sharding.place(params, sharding.param_shardings(model, mesh))
    shown = warmstart.examples(
        config, taught, machine.open_chat(words), domains.get(config.setting), passages
    )
    say(f"warm start: {len(taught)} lessons, {len(shown)} examples, {words.vocab_size} tokens")
    batches = supervised.pipeline(shown, config.warmstart.supervised, config.seed)
    state = supervised.start(params, config.warmstart.supervised, mesh)
    store = checkpoint.Store(folder / "warmstart", checkpoint.CheckpointConfig(keep=1))
    if store.steps():
        state, host = store.restore(store.steps()[-1], state)
        batches.set_state(host["batches"])
        say(f"warm start: continues at step {int(state.step)}")

    def save(now: supervised.State, done: int, loss: float) -> None:
        store.save(done, now, {"batches": batches.get_state(), "loss": loss})

    state = warmstart.train(state, batches, model, config, mesh, save, say)
    store.close()
    return words, model, state.params


def _iterations(config, world: machine.Machine, params, folder, notice, say) -> dict:
    begun = time.monotonic()
    store = checkpoint.Store(folder, config.checkpoint)
    if store.steps():
        progress = loop.start(config, world, params)
        progress = _restore(store, progress, world, say)
    else:
        progress = loop.start(config, world, params, archive.Archive(_programs(folder)))
    healthy = None
    if safeguards.may_roll_back(config.safeguards):
        healthy = checkpoint.Store(folder / "healthy", checkpoint.CheckpointConfig())
    group = world.group
    records_folder = folder / hosts.FOLDER / str(group.index) if group.index else folder
    writer = metrics.MetricWriter(records_folder, resume_step=progress.iteration - 1)
    compiled = 0
    if not progress.evaluations:
        progress.evaluations.append(_evaluate(progress, world, config, say)[0])
        notice.release()
        store.save(progress.iteration, progress.train, loop.to_host(progress))
    while progress.iteration < config.iterations and config.mode != "supervised":
        answer = safeguards.answer(progress.health, config.safeguards)
        if undone := answering.roll_back(progress, healthy, answer):
            say(f"safeguards: {undone}")
        step = _iterate(progress, world, config, store, notice)
        answering.keep_healthy(progress, healthy, config)
        done = progress.iteration
        named = dict(step.metrics)
        if _due(config, done):
            scores, scored = _evaluate(progress, world, config, say)
            progress.evaluations.append(scores)
            named |= scored
        named["count/compiles"] = len(world.sampler.shapes) - compiled
        compiled = len(world.sampler.shapes)
        writer.write(done - 1, named, step.sample)
        say(metrics.progress_line(done - 1, config.iterations, time.monotonic() - begun, named))
        if step.notice:
            say(f"safeguards: {step.notice}")
        ledger.check_steps(int(progress.totals["skipped_in_a_row"]))
        last, ending = done == config.iterations, any(group.gather(notice.received))
        if done % config.checkpoint.every == 0 or last or ending:
            store.save(done, progress.train, loop.to_host(progress))
        if ending and group.count > 1:
            store.wait()
            notice.check()
            raise preemption.Preempted("SIGTERM came to another process; the state is saved.")
    final = world.gathered(progress.train.params)
    if group.index == 0:
        with files.written(folder / "final.npz") as local:
            weights.save(local, final, world.model)
    writer.close()
    store.wait()
    store.close()
    return closing.results(progress, config, records_folder)


def _iterate(progress, world, config, store: checkpoint.Store, notice) -> loop.Step:
    """Advance by one iteration; if SIGTERM comes before the update, save where it began."""
    began, train = progress.iteration, progress.train
    # Rooms change pool and counters in place, so what the iteration began with is copied.
    host = copy.deepcopy(loop.snapshot(progress))
    try:
        if world.group.count == 1:  # several save together, at the end of the iteration
            notice.hold(lambda: preemption.intact(train))
        step = loop.iterate(progress, world, config)
        notice.release()
        return step
    except preemption.Preempted:
        store.wait()
        if began not in store.steps():
            progress.pool.archive.sync()
            store.save(began, train, host)
            store.wait()
        raise


def _restore(store: checkpoint.Store, progress: loop.Progress, world, say) -> loop.Progress:
    _, train, host = store.restore_newest(progress.train, say)
    progress = loop.from_host(train, host, _programs(store.folder.parent))
    if world.corpus is not None and progress.corpus is not None:
        world.corpus.restore(progress.corpus)
    say(f"restored iteration {progress.iteration} from {store.folder}")
    return progress


def _programs(folder: epath.Path) -> epath.Path:
    """Name the file of programs; hosts beside the first keep copies of their own."""
    index = jax.process_index()
    return folder / (f"programs.{index}.jsonl" if index else PROGRAMS)


def _due(config: settings.RunConfig, done: int) -> bool:
    every = config.evaluate.every
    return done == config.iterations or (every > 0 and done % every == 0)


def _evaluate(progress, world, config, say) -> tuple[dict, dict]:
    world.group.enter("evaluate")
    scores = evaluate.run(world, progress.train.params, config)
    for suite, score in scores.items():
        details = score.fault_details
        left_out = f"; {score.faults} left out, {details[0]}" if score.faults else ""
        say(
            f"evaluation at iteration {progress.iteration}: {suite} {score.solved}/"
            f"{score.questions} = {100 * score.rate:.1f}% "
            f"[{100 * score.low:.1f}, {100 * score.high:.1f}]  ({score.seconds:.0f} s){left_out}"
        )
    return evaluate.to_json(scores, progress.iteration), evaluate.as_metrics(scores)
