"""Scripted designers and agents drive the real loop: is difficulty adaptive, is collapse seen?

Shows:     200 iterations of the corridor (checks, pool, play, update, curriculum, safeguards) with
           a designer and an agent that follow rules. The agent wins with probability
           1 / (1 + exp(level - skill)), and its skill doubles. The designer knows neither: it takes
           a level from a remembered example and moves it by the difficulty word of its prompt. Win
           rates near one half are then the work of memory, target difficulty, credit and draw.
Source:    SPADE (arXiv:2608.19197), with text by rule in place of a model; nothing runs untrusted
           programs, the scripted sandbox reads a level out of the text.
Command:   python -m experiments.scripted_study
Hardware:  1 CPU core, minutes.
Result:    the table in experiments/README.md.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import re
import zlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from sandbox import records as sandbox_records
from spade_jax import loop, machine, records, settings
from spade_jax.domains import compact
from spade_jax.policy import tokenizer, transformer

PROMPT = "{difficulty}\n{win_rate}\n{memory}"  # all that the scripted designer reads
PROGRAM = """```python
class LockEnv(QAEnv):
    kind = "{kind}"
    def task(self, rng):
        return {level}, {salt}
```"""
KINDS = (  # what a program may be; the scripted sandbox acts accordingly
    "fair", "trivial", "unwinnable", "leak", "hole",
    "crash",  # at the first step
    "late",  # the same, but never on trial
)  # fmt: skip
TOKENIZER = "experiments/policies/small.tokenizer.json"
MODEL = transformer.ModelConfig(
    vocab_size=640, layers=1, width=16, heads=1, kv_heads=1, head_dim=16, mlp_width=16
)


def run_config(iterations: int = 200, **changes: Any) -> settings.RunConfig:
    """Sizes of the scripted runs."""
    fields = {
        "iterations": iterations,
        "setting": "compact",
        "mesh": settings.MeshConfig(data=len(jax.devices())),
        "policy": settings.PolicyConfig(tokenizer=TOKENIZER, model=MODEL),
        "design": settings.design.DesignConfig(
            drafts=12, every=2, positives=1, negatives=1, max_tokens=96
        ),
        "pool": settings.pool.PoolConfig(slots=48, memory=100),
        "rollout": settings.rollout.RolloutConfig(
            environments=12, seeds=2, plays=4, hinted_plays=4, max_turns=1, context_tokens=96,
            max_tokens=16,
        ),
        "batch": settings.batch.BatchConfig(row_tokens=384, rows=(32, 64, 128)),
        "validate": settings.validate.ValidateConfig(seeds=2, more_seeds=2, off=("duplicate",)),
        "learn": settings.learn.LearnConfig(learning_rate=1e-5),
    }  # fmt: skip
    return settings.RunConfig(**(fields | changes))


def start(config: settings.RunConfig, designer: Callable, agent: Callable, kind: Any = None):
    """Build a scripted world, of another kind where one is given, and a run's progress in it."""
    words = tokenizer.Tokenizer.load(config.policy.tokenizer)
    model = machine.fit_vocabulary(MODEL, words)
    world = (kind or World)(config, words, model, designer, agent)
    return loop.start(config, world, transformer.init(model, jax.random.key(0))), world


class World(machine.Machine):
    """A machine whose policy is two rules and whose sandbox reads the text of a program."""

    def __init__(self, config, words, model, designer: Callable, agent: Callable):
        super().__init__(config, ScriptedCrew(), words, model)
        self.domain = dataclasses.replace(compact.DOMAIN, designers={"scripted": PROMPT})
        self.rules = {records.DESIGNER: designer, records.AGENT: agent}

    def generate(self, params: Any, role: int, temperature: float, max_tokens: int) -> Callable:
        """Answer each prompt by the rule of the role: (prompt text, random stream) -> text."""

        def write(prompts: list, seeds: list) -> list[records.Reply]:
            return [self._reply(role, ids, seed) for ids, seed in zip(prompts, seeds, strict=True)]

        return write

    def _reply(self, role: int, ids: tuple[int, ...], seed: int) -> records.Reply:
        text = self.rules[role](self.words.decode(ids), np.random.default_rng(seed))
        said = (*self.words.encode(text), self.words.end_id)
        return records.Reply(ids=said, logps=(-0.5,) * len(said), stopped=True)


class ScriptedCrew:
    """Gives sessions that act as the text of a program says, without running it."""

    programs = 0

    def start(self, environment: records.Environment, seed: int) -> Session:
        """Open a session for plays."""
        self.programs += 1
        return Session(environment.source, playing=True)

    def open(self, source: str, **_: Any) -> Session:
        """Open a session for trials."""
        self.programs += 1
        return Session(source)


class Session:
    """One process. The task: turn a code back into the number it stands for.

    A program without kind and level, like a seed environment, is a fair task of level 0.
    """

    def __init__(self, source: str, playing: bool = False):
        kind = re.search(r'kind = "(\w+)"', source)
        told = re.search(r"return (-?[\d.]+), (\d+)", source)
        self.kind = kind[1] if kind else "fair"
        self.level, self.salt = (float(told[1]), told[2]) if told else (0.0, "0")
        self.crashes = self.kind == "crash" or (self.kind == "late" and playing)
        self.seeds: dict[int, int] = {}

    def submit(self, requests: list[dict]) -> concurrent.futures.Future:
        """Answer a batch."""
        future: concurrent.futures.Future = concurrent.futures.Future()
        future.set_result([self._outcome(request) for request in requests])
        return future

    def step(self, requests: list[dict]) -> list[sandbox_records.Outcome]:
        """Answer a batch at once."""
        return self.submit(requests).result()

    def close(self) -> None:
        """Nothing is held."""

    def _outcome(self, request: dict) -> sandbox_records.Outcome:
        if self.crashes and request["op"] == "step":
            return sandbox_records.Outcome(status="crash", detail="died by signal 11")
        return sandbox_records.Outcome(status="ok", value=self._answer(request))

    def _answer(self, request: dict) -> dict:
        play = request["play"]
        if request["op"] == "load":
            self.seeds[play] = request["seed"]
            return {"class_name": "LockEnv", "max_turns": 1}
        if request["op"] == "reset":
            return {"observation": self._observation(play), "contract": ""}
        if request["op"] == "hint":
            return {"present": True, "hint": self._hint(play)}
        if request["op"] == "solution":
            return {"present": True, "solution": str(self.number(play))}
        if request["op"] == "step":
            return self._step(play, request["action"])
        return {request["op"]: None}

    def number(self, play: int) -> int:
        """The answer of a play."""
        return 1000 + zlib.crc32(f"{self.salt} {self.seeds[play]}".encode()) % 9000

    def _observation(self, play: int) -> str:
        return f"{self.kind} {self.level} lock {self.number(play) * 7 + 3}"

    def _hint(self, play: int) -> str:
        return f"The number is {self.number(play)}." if self.kind == "leak" else "Take three off."

    def _step(self, play: int, action: str) -> dict:
        won = action == f"\\boxed{{{self.number(play)}}}"
        won |= self.kind == "hole" and "__eq__" in action
        return {
            "observation": "Right." if won else "No.",
            "reward": float(won),
            "terminated": True,
            "truncated": False,
            "contract": "",
        }


def agent(text: str, rng: np.random.Generator, skill: Callable[[], float]) -> str:
    """Win by chance that falls with the level; a hint helps by one and a half levels."""
    kind, level, code = re.search(r"(\w+) (-?[\d.]+) lock (\d+)", text).groups()
    number = (int(code) - 3) // 7
    if kind == "hole":
        return "\\boxed{__eq__}"
    ease = skill() - float(level) + 1.5 * ("HINT" in text)
    wins = rng.random() < 1 / (1 + np.exp(-ease))
    wins = {"trivial": True, "unwinnable": False}.get(kind, wins)
    return f"\\boxed{{{number if wins else number + 1}}}"


def designer(text: str, rng: np.random.Generator, kind: str = "fair") -> str:
    """Take the level of an example, or of what was too easy or hard, and move it as asked."""
    found = re.findall(r"return (-?[\d.]+), \d+", text)
    level = float(found[0]) if found else rng.normal(0.0, 1.0)
    level += {"easy": -0.7, "medium": 0.0, "hard": 0.7}[text_difficulty(text)]
    level += rng.normal(0.0, 0.5)
    return PROGRAM.format(kind=kind, level=f"{level:.2f}", salt=rng.integers(10**6))


def text_difficulty(text: str) -> str:
    """Read the difficulty word out of a prompt."""
    return re.search(r"easy|medium|hard", text)[0]


def collapsed_designer(text: str, rng: np.random.Generator, kind: str) -> str:
    """Write one kind only; of the kind "one" the very same program."""
    if kind == "one":
        return PROGRAM.format(kind="fair", level="0.00", salt=7)
    return designer(text, rng, kind)


def whole_config(iterations: int = 200) -> settings.RunConfig:
    """Sizes of the study: tables of 24 environments, so that a win rate has an error of 0.04."""
    small = run_config(iterations)
    return dataclasses.replace(
        small,
        design=dataclasses.replace(small.design, drafts=24),
        pool=settings.pool.PoolConfig(slots=96, memory=200),
        rollout=dataclasses.replace(small.rollout, environments=24),
    )


def study(config: settings.RunConfig, first: float = 2.0) -> list[dict]:
    """Let the agent's skill double over the run; give the metrics of every iteration."""
    now, iterations = {"skill": first}, config.iterations
    playing = functools.partial(agent, skill=lambda: now["skill"])
    progress, world = start(config, designer, playing)
    lines = []
    for t in range(iterations):
        now["skill"] = first * (1 + t / max(iterations - 1, 1))
        lines.append(loop.iterate(progress, world, config).metrics | {"skill": now["skill"]})
    return lines


def table(lines: list[dict], parts: int = 10) -> str:
    """Average tenths of a run."""
    names = ("rollout/win_rate", "env/learnable", "env/regret", "env/validity", "env/vendi")
    rows = [f"{'iterations':<12}{'skill':>6}" + "".join(f"{n:>18}" for n in names)]
    for part in np.array_split(np.arange(len(lines)), parts):
        means = [np.mean([lines[t][n] for t in part if n in lines[t]]) for n in names]
        shown = f"{part[0] + 1}-{part[-1] + 1}"
        skill = np.mean([lines[t]["skill"] for t in part])
        rows.append(f"{shown:<12}{skill:>6.2f}" + "".join(f"{mean:>18.3f}" for mean in means))
    return "\n".join(rows)


if __name__ == "__main__":
    found = study(whole_config())
    print(table(found))
    rates = [line["rollout/win_rate"] for line in found[10:]]
    inside = np.mean([0.3 <= rate <= 0.7 for rate in rates])
    print(f"after 10 iterations: {min(rates):.2f} to {max(rates):.2f}; {inside:.1%} in [0.3, 0.7]")
