"""Warm start: supervised training of both roles on the train split of the seed environments.

In: seed files, a sandbox, a tokenizer or none. Out: a policy that writes programs and plays them,
so that a model too small to be prompted can take part. Skipped where real weights load.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from spade_jax import corpus, files, lessons, library, records, seeds, settings, supervised
from spade_jax.domains import domain
from spade_jax.policy import chat, tokenizer, transformer

LESSONS = "lessons.jsonl"
TOKENIZER = "tokenizer.json"


def write_lessons(
    config: settings.RunConfig,
    open_session: Callable[[records.Environment, int], Any],
    workdir: epath.Path,
    say: Callable[[str], None],
) -> list[lessons.Lesson]:
    """Make the lessons by running the seed environments, or read those that a killed run made."""
    path = workdir / LESSONS
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines()
        return [lessons.Lesson(**json.loads(line)) for line in lines]
    begun = time.monotonic()
    found = library.load(config.seed_environments, (config.setting,), ("train",))

    def progress(done: int, total: int) -> None:
        say(f"warm start: programs run {done}/{total}  {time.monotonic() - begun:.0f} s")

    made = lessons.build(
        found,
        open_session,
        config.warmstart.lessons,
        seeds.stream(config.seed, "warmstart", 0),
        config.rollout.processes,
        progress,
    )
    files.replace(path, files.join(json.dumps(dataclasses.asdict(lesson)) for lesson in made))
    return made


def train_tokenizer(
    config: settings.RunConfig, taught: Sequence[lessons.Lesson], path: epath.Path
) -> tokenizer.Tokenizer:
    """Learn a vocabulary from the lessons, skill and difficulty words whole; read it if made."""
    if path.exists():
        with files.fetched(path) as local:
            return tokenizer.Tokenizer.load(local)
    plays = [lesson for lesson in taught if lesson.role == records.AGENT]
    some = plays[:: max(1, len(plays) // 4000)]
    texts = [lesson.reply for lesson in taught if lesson.role == records.DESIGNER]
    texts += [part for lesson in some for part in (lesson.prompt, lesson.reply)]
    words = tokenizer.Tokenizer.train(
        texts,
        vocab_size=config.warmstart.vocabulary,
        extra_tokens=(*records.SKILLS, *records.DIFFICULTIES),
    )
    with files.written(path) as local:
        words.save(local)
    return words


def examples(
    config: settings.RunConfig,
    taught: Sequence[lessons.Lesson],
    speech: chat.Chat,
    setting: domain.Domain,
    passages: corpus.Corpus | None,
) -> list[supervised.Example]:
    """Turn lessons into token sequences, designer lessons repeated up to their share of tokens."""
    writing, playing = [], []
    for lesson in taught:
        if lesson.role == records.DESIGNER:
            writing.append(lesson)
        else:
            messages = domain.agent_messages(setting, lesson.prompt, lesson.hint)
            playing.append(_example(speech, records.AGENT, messages, lesson.reply))
    share = config.warmstart.designer_share
    wanted = share / (1.0 - share) * sum(len(example.ids) for example in playing)
    made: list[supervised.Example] = []
    tokens = 0
    while writing and tokens < wanted:
        for lesson in writing:
            request = domain.Request(
                skill=lesson.skill,
                difficulty=lesson.difficulty,
                passage=passages.next().text if passages else "",
            )
            messages = domain.designer_messages(setting, request)
            made.append(_example(speech, records.DESIGNER, messages, lesson.reply))
            tokens += len(made[-1].ids)
    return playing + made


def train(
    state: supervised.State,
    batches: Any,
    model: transformer.ModelConfig,
    config: settings.RunConfig,
    mesh: jax.sharding.Mesh,
    save: Callable[[supervised.State, int, float], None],
    say: Callable[[str], None],
) -> supervised.State:
    """Take the remaining steps, saving every `log_every` of them.

    Args:
      batches: grain iterator of `supervised.pipeline`, at the place that belongs to `state`.
      save: called with the state, the steps done and the mean loss since the last call, in nats.
    """
    total, begun = config.warmstart.supervised.steps, time.monotonic()
    first, losses = int(state.step), []
    for number in range(first, total):
        batch = supervised.to_device(next(batches), mesh)
        state, loss = supervised.step(state, batch, model, config.warmstart.supervised, mesh)
        losses.append(loss)
        done = number + 1
        if done % config.warmstart.log_every == 0 or done == total:
            mean = float(np.mean(jax.device_get(losses)))
            rate = (done - first) / (time.monotonic() - begun)
            say(
                f"warm start: step {done}/{total}  loss {mean:.3f} nats  {rate:.1f} steps/s  "
                f"{(total - done) / rate:.0f} s left"
            )
            save(state, done, mean)
            losses = []
    return state


def _example(
    speech: chat.Chat, role: int, messages: list[dict[str, str]], reply: str
) -> supervised.Example:
    prompt = tuple(speech.start(role, messages))
    answer = tuple(speech.reply(reply))
    return supervised.Example(
        ids=prompt + answer, trained=(0,) * len(prompt) + (1,) * len(answer), role=role
    )
