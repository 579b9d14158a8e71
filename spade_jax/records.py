"""The records that rooms hand to each other, and the key of array shape suffixes.

Arrays end in one capital per axis:
  B rows of a batch, T tokens of a row, Q sequences of a batch (one draft, or one episode),
  N environments drawn, S seeds per environment, G plays per seed and arm, A arms (plain, hinted),
  M drafts in an update, P slots of the pool, Z skills, E episodes,
  V vocabulary, L layers, D width, F feed-forward width, H query heads, K kv heads,
  C channels per head, R rank of a role head, W positions of a KV cache, X experts of a layer.
"""

from __future__ import annotations

import dataclasses
from typing import Any

DESIGNER = 0  # role id of the policy head that writes environments
AGENT = 1  # role id of the policy head that plays them
ROLES = ("designer", "agent")

PLAIN = 0  # arm: the observation as the environment gives it
HINTED = 1  # arm: the first observation carries the hint
ARMS = ("plain", "hinted")

SKILLS = (
    "Mathematical Reasoning",
    "Logical Deduction",
    "Spatial Reasoning",
    "Pattern Recognition",
    "Optimization",
    "Causal Inference",
)
TOOL_SKILLS = (
    "API Orchestration",
    "Data Retrieval",
    "State Modification",
    "Error Recovery",
    "Tool Selection",
    "Multi-Step Workflows",
)
SKILLS_OF = {"compact": SKILLS, "games": SKILLS, "tool_use": TOOL_SKILLS}  # setting -> Z skills
MOST_SKILLS = max(map(len, SKILLS_OF.values()))  # Z of arrays; a setting may use fewer
DIFFICULTIES = ("easy", "medium", "hard")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """What the sampler wrote after one prompt."""

    ids: tuple[int, ...]  # sampled token ids, the end token included when one was sampled
    logps: tuple[float, ...]  # log-probability of each id under the sampled distribution
    stopped: bool  # an end token was sampled; False means the length limit cut the reply


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draft:
    """What the designer wrote: valid or not, it is training data."""

    uid: int  # unique within a run, in order of writing
    generation: int  # drafts written together share it
    skill: str  # one of SKILLS
    difficulty: str  # one of DIFFICULTIES
    prompt_ids: tuple[int, ...]
    reply: Reply
    text: str  # the reply as text
    source: str | None  # the program cut out of the text, None where there is none
    version: int  # parameter version that wrote it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a draft did not become an environment."""

    uid: int
    reason: str  # stable name of the first check that failed, a key of validate.CHECKS
    detail: str  # one line for people


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment:
    """A draft that passed every check, or a program from a directory."""

    uid: int  # the draft's, or a negative number for a program from a directory
    source: str  # program text; untrusted, only ever executed inside the sandbox
    setting: str  # "compact", "games" or "tool_use": which domain plays it
    skill: str
    difficulty: str
    generation: int
    class_name: str
    digest: str  # hash of the normalised AST
    max_turns: int  # the designer's limit, already capped by the config
    signature: str = ""  # its MinHash in hexadecimal digits, empty where nobody computed it
    similarity: float = 0.0  # to the nearest member of pool or memory, in [0, 1]
    hint: str | None = None  # written by the policy; None where the program computes it
    hint_failed: bool = False  # the gate refused all that the policy wrote: it is not asked again
    family: str = ""  # of a seed environment; empty for the designer's


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """One exchange of an episode, as token ids."""

    observed_ids: tuple[int, ...]  # tokens before the reply, behind the turn before: never trained
    reply: Reply
    action: str  # text that was sent to the environment
    reward: float
    answer: str = ""  # beginning of the observation that answered it, for people and reviewers
    malformed: bool = False  # it tries a tool call and none of it can be read
    rendered: bool = False  # observed_ids are the whole prompt, written anew, and follow nothing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Episode:
    """One run of the agent in one environment from one seed, in one arm."""

    environment: int  # index of the row in the table that was drawn, 0 .. N-1
    seed_index: int  # 0 .. S-1
    play: int  # 0 .. G-1
    arm: int  # PLAIN or HINTED
    seed: int  # given to the program
    turns: tuple[Turn, ...]
    value: float  # the return: last reward clipped to [-1, 1] if terminated, else 0
    fault: str  # "" played to an end, "environment" (designer pays), "infra" (nobody pays) or
    # "too_long" (the first prompt does not fit the context: nobody pays)
    detail: str  # what the fault was, empty otherwise
    truncated: bool  # a reply without end token, or the turn limit
    observation: str  # first observation as text, hint included


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passage:
    """A document of the grounding corpus."""

    text: str
    source: str


Metrics = dict[str, Any]  # stable metric name -> float or int
