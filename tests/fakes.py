"""Small real stand-ins: a sandbox that hosts a guessing game, and a policy that answers by rule.

The game: the environment thinks of a digit (its seed modulo 10); the action is a guess. Some
actions are tricks, each a fault that a program may have. Tokens are code points, 0 ends a reply.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from sandbox import records as sandbox_records
from spade_jax import hint, machine, records, rollout

END = 0
ENDS = {"crash": "crash", "hang": "timeout", "hog": "memory"}  # trick -> how the process ends
ANSWERS = {  # trick -> what step answers
    "bad": {"observation": "x", "reward": 1.0, "terminated": True, "truncated": False,
            "contract": "step() gave 3 values."},
    "nan": {"observation": "x", "reward": None, "terminated": True, "truncated": False,
            "contract": "step() gave a reward that is not finite: nan."},
    "huge": {"observation": "x", "reward": 10**400, "terminated": True, "truncated": False,
             "contract": ""},
    "forge": {"observation": "x", "reward": 1.0},
    "words": {"observation": "x", "reward": 1.0, "terminated": "yes", "truncated": 0,
              "contract": ""},
    "jackpot": {"observation": "x", "reward": 7.5, "terminated": True, "truncated": False,
                "contract": ""},
    "ruin": {"observation": "x", "reward": -3, "terminated": True, "truncated": False,
             "contract": ""},
    "limit": {"observation": "x", "reward": 0.5, "terminated": False, "truncated": True,
              "contract": ""},
}  # fmt: skip


def encode(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def decode(ids: tuple[int, ...]) -> str:
    return "".join(map(chr, ids))


class Session:
    """One process; `lost_from` says from which request of which batch on the sandbox loses it."""

    def __init__(self, sandbox: Sandbox, environment: records.Environment, seed: int):
        self.sandbox, self.environment, self.seed = sandbox, environment, seed
        self.secrets: dict[int, int] = {}
        self.batches: list[list[dict]] = []
        self.dead = ""
        self.closed = False

    def submit(self, requests: list[dict]) -> concurrent.futures.Future:
        future: concurrent.futures.Future = concurrent.futures.Future()
        lost_from = self.sandbox.lose(self.sandbox.sessions.index(self), len(self.batches))
        self.batches.append(list(requests))
        outcomes = []
        for number, request in enumerate(requests):
            if lost_from is not None and number >= lost_from:
                self.dead = "infra"
            outcomes.append(self._outcome(request))
        future.set_result(outcomes)
        return future

    def step(self, requests: list[dict]) -> list[sandbox_records.Outcome]:
        return self.submit(requests).result()

    def close(self) -> None:
        self.closed = True

    def requests(self) -> list[dict]:
        return [request for batch in self.batches for request in batch]

    def _outcome(self, request: dict) -> sandbox_records.Outcome:
        if self.dead:
            return sandbox_records.Outcome(status=self.dead, detail="the process is gone")
        answer = self.sandbox.overrides.get(request["op"]) or getattr(self, "_" + request["op"])
        try:
            return sandbox_records.Outcome(status="ok", value=answer(request))
        except Ended as end:
            self.dead = str(end)
            return sandbox_records.Outcome(status=self.dead, detail="it ended")
        except ArithmeticError as error:
            return sandbox_records.Outcome(status="error", detail=f"ArithmeticError: {error}")

    def _load(self, request: dict) -> dict:
        self.secrets[request["play"]] = request["seed"] % 10
        return {"class_name": "GuessEnv", "max_turns": request["max_turns"]}

    def _reset(self, request: dict) -> dict:
        return {"observation": "Guess my digit.", "contract": ""}

    def _tools(self, request: dict) -> dict:
        return {"tools": None}

    def _hint(self, request: dict) -> dict:
        parity = "even" if self.secrets[request["play"]] % 2 == 0 else "odd"
        return {"present": True, "hint": f"It is {parity}."}

    def _solution(self, request: dict) -> dict:
        return {"present": True, "solution": str(self.secrets[request["play"]])}

    def _drop(self, request: dict) -> dict:
        self.secrets.pop(request["play"], None)
        return {}

    def _step(self, request: dict) -> dict:
        action, secret = request["action"], self.secrets[request["play"]]
        action = action.removeprefix("\\boxed{").removesuffix("}")
        if action == "raise":
            raise ArithmeticError("in step")
        if action in ENDS:
            raise Ended(ENDS[action])
        if action in ANSWERS:
            return ANSWERS[action]
        won = action == str(secret)
        return {
            "observation": "Right." if won else f"Not {action}.",
            "reward": 1.0 if won else 0.0,
            "terminated": won,
            "truncated": False,
            "contract": "",
        }


class Ended(Exception):
    """The program ends its process; the message is the status."""


class Sandbox:
    """Opens sessions and remembers them.

    Args:
      lose: (number of the session, number of its batch) -> request from which on it is lost, or
        None.
      overrides: op -> answer, in place of the game's.
    """

    def __init__(
        self,
        lose: Callable[[int, int], int | None] = lambda session, batch: None,
        overrides: dict[str, Callable[[dict], dict]] | None = None,
    ):
        self.lose, self.overrides = lose, overrides or {}
        self.sessions: list[Session] = []
        self.most_alive = 0

    def open(self, environment: records.Environment, seed: int) -> Session:
        self.sessions.append(Session(self, environment, seed))
        self.most_alive = max(self.most_alive, len(self.alive()))
        return self.sessions[-1]

    def alive(self) -> list[Session]:
        return [session for session in self.sessions if not session.closed]

    def steps(self) -> list[str]:
        """Actions of all plays that somebody plays."""
        return self._actions(probes=False)

    def tries(self) -> list[str]:
        """Actions that were tried in plays which are asked for the hint."""
        return self._actions(probes=True)

    def _actions(self, probes: bool) -> list[str]:
        actions = []
        for session in self.sessions:
            asked = {r["play"] for r in session.requests() if r["op"] == "hint"}
            steps = [r for r in session.requests() if r["op"] == "step"]
            actions += [r["action"] for r in steps if (r["play"] in asked) == probes]
        return actions


class Policy:
    """Answers each prompt by a rule: (prompt text, sampler seed) -> reply text.

    A reply that ends in "..." has no end token: the length limit cut it.
    """

    def __init__(self, rule: Callable[[str, int], str]):
        self.rule = rule
        self.calls: list[tuple[list, list]] = []

    def generate(self, prompts: list, seeds: list) -> list[records.Reply]:
        self.calls.append((list(prompts), list(seeds)))
        return [
            reply(self.rule(decode(ids), seed)) for ids, seed in zip(prompts, seeds, strict=True)
        ]


def reply(text: str) -> records.Reply:
    """Make the reply that says a text."""
    ids = encode(text) if text.endswith("...") else (*encode(text), END)
    return records.Reply(ids=ids, logps=(-0.5,) * len(ids), stopped=ids[-1] == END)


def text_of(said: records.Reply) -> str:
    return decode(said.ids[:-1] if said.stopped else said.ids)


def world(sandbox: Sandbox, policy: Policy, **changes: Any) -> rollout.World:
    """Bind sandbox and policy as the machine does, with the real gate of hints."""

    def start(environment, observation, shown, tools, exchanges=()):
        listed, told = f"{tools}|" if tools else "", f" HINT: {shown}" if shown else ""
        later = "".join(f"{text}/{answer}>" for text, answer, _ in exchanges)
        return encode(f"{listed}{observation}{told}>{later}")

    bound = rollout.World(
        open=sandbox.open,
        generate=policy.generate,
        start=start,
        extend=lambda observation, role: encode(f"{observation}>"),
        text_of=text_of,
        action_of=lambda text: text,
        show_hint=functools.partial(machine.show_hint, config=hint.HintConfig()),
    )
    return dataclasses.replace(bound, **changes)


def environment(uid: int = 0, **changes: Any) -> records.Environment:
    """Make the record of an environment; its program is never run by these fakes."""
    fields = {
        "uid": uid,
        "source": f"class Guess{uid}Env: ...",
        "setting": "compact",
        "skill": records.SKILLS[0],
        "difficulty": "medium",
        "generation": 0,
        "class_name": f"Guess{uid}Env",
        "digest": f"{uid:x}",
        "max_turns": 3,
    }
    return records.Environment(**(fields | changes))


def draft(uid: int = 0, **changes: Any) -> records.Draft:
    """Make the record of a draft."""
    fields = {
        "uid": uid,
        "generation": 0,
        "skill": records.SKILLS[0],
        "difficulty": "medium",
        "prompt_ids": (1, 2),
        "reply": reply("class"),
        "text": "class",
        "source": "class GuessEnv: ...",
        "version": 0,
    }
    return records.Draft(**(fields | changes))


PLAY = rollout.RolloutConfig(plays=3, hinted_plays=2, max_turns=2, max_tokens=8)


def groups(count=1, plays=(3, 2), seed=13, **changes) -> list[rollout.Group]:
    """One group for each of `count` environments."""
    return [
        rollout.Group(
            environment=environment(n, **changes),
            row=n, seed_index=0, seed=seed + 10 * n, plays=plays,
        )
        for n in range(count)
    ]  # fmt: skip


def play(rule, sandbox=None, asked=None, config=PLAY, **changes):
    """Play groups by a rule; gives what was played, the sandbox and the policy."""
    sandbox = sandbox or Sandbox()
    policy = Policy(rule)
    played = rollout.play(
        groups() if asked is None else asked,
        world(sandbox, policy, **changes),
        config,
        np.random.default_rng(0),
    )
    return played, sandbox, policy


def arm(played, which):
    return [episode for episode in played.episodes if episode.arm == which]


def by_seed(actions):
    """A rule that gives the plays, in order of their first call, one action each, then "?"."""
    known = {}

    def rule(prompt, seed):
        if prompt.count(">") > 1:
            return "?"
        return known.setdefault(seed, actions[len(known) % len(actions)])

    return rule
