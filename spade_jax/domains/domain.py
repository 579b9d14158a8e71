"""What a setting is, as data, and the messages that are written from it.

In: a `Domain` and what a prompt should say. Out: chat messages, [{"role", "content"}, ...].
The wording lives in `prompts/*.txt`; `{name}` in a text is replaced, nothing else is.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence

from spade_jax import programs

_HERE = pathlib.Path(__file__).parent
_HOLE = re.compile(r"\{([a-z_]+)\}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Domain:
    """One setting: how its environments are written, loaded and played."""

    name: str  # "compact", "games" or "tool_use"
    prelude: str  # code run in each play's namespace before the program: the names it may assume
    modules: Mapping[str, str]  # importable in the box: module name -> source
    allowed_imports: frozenset[str]
    action: Callable[[str], str]  # reply text -> action sent to the environment
    wrap: Callable[[str], str]  # content -> action: how a scripted player says something
    program: Callable[[str], str | None]  # designer reply -> program text, None where there is none
    max_turns: int  # cap on what a program asks for
    max_cheat_rate: float  # share of plays that a scripted player may win
    cheat_turns: int  # replies that a scripted player has, as many as the agent
    uses_tools: bool  # the agent sees tool schemas
    designers: Mapping[str, str]  # prompt family -> template of the designer's message
    malformed: Callable[[str], bool] = lambda action: False  # a tool call that cannot be read
    calls_tools: Callable[[str], bool] = lambda action: False  # what answers it is a tool's result
    designer_system: str = ""
    agent: str = "{observation}"  # template of the first message of a play
    agent_system: str = ""
    hint_system: str = ""
    hint: str = "{source}"  # template of the hint writer's message
    screen: str = "{source}"  # template that asks whether a program can be solved


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    """An environment of the past that a designer prompt shows."""

    source: str  # program text; empty for one that is only named
    name: str
    win_rate: float
    regret: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What a designer prompt asks for."""

    skill: str
    difficulty: str
    family: str = ""  # prompt family, the domain's first where empty
    passage: str = ""  # grounding document, already cut to length
    win_rate: float | None = None  # the agent's on this skill
    positives: Sequence[Example] = ()  # learnable environments: write another kind
    negatives: Sequence[Example] = ()  # too easy or too hard ones
    world: str = ""  # tool use: the domain of the real world to write about
    variant: str = ""  # tool use: what kind of task it should be


def designer_messages(domain: Domain, request: Request) -> list[dict[str, str]]:
    """Write the prompt that asks for one environment.

    Raises:
      ValueError: the domain has no prompt family of that name.
    """
    family = request.family or next(iter(domain.designers))
    if family not in domain.designers:
        raise ValueError(
            f"prompt family {family!r} is unknown in the setting {domain.name!r}; "
            f"use one of {', '.join(domain.designers)}."
        )
    content = fill(
        domain.designers[family],
        skill=request.skill,
        skill_description=SKILL_DESCRIPTIONS.get(request.skill, ""),
        difficulty=request.difficulty,
        least_turns="2" if request.difficulty == "easy" else "3",
        passage=request.passage,
        win_rate=_win_rate_line(request.win_rate, request.skill),
        memory=_memory(request),
        world=request.world,
        variant=request.variant,
    )
    return _messages(domain.designer_system, re.sub(r"\n{3,}", "\n\n", content).strip())


def agent_messages(
    domain: Domain, observation: str, hint: str | None = None
) -> list[dict[str, str]]:
    """Write the first messages of a play; the hint stands below the observation."""
    shown = observation if hint is None else f"{observation}\nHINT: {hint}"
    return _messages(domain.agent_system, fill(domain.agent, observation=shown))


def continued(
    messages: Sequence[Mapping[str, str]], exchanges: Sequence[tuple[str, str, str]]
) -> list[Mapping[str, str]]:
    """Append the turns of a play, earlier replies without their thinking.

    Args:
      exchanges: (reply text, observation that answered it, its role) of each turn.
    """
    messages = list(messages)
    for reply, observation, role in exchanges:
        said = programs.without_thinking(reply).lstrip("\n")
        messages.append({"role": "assistant", "content": said})
        messages.append({"role": role, "content": observation})
    return messages


def role_of(domain: Domain, tools_speak: bool, action: str) -> str:
    """Name the role of the message that answers an action: "tool" where tools do and may speak."""
    return "tool" if tools_speak and domain.calls_tools(action) else "user"


def hint_messages(domain: Domain, source: str) -> list[dict[str, str]]:
    """Write the prompt that asks for a hint, from the program's source alone."""
    return _messages(domain.hint_system, fill(domain.hint, source=source))


def screen_messages(domain: Domain, source: str) -> list[dict[str, str]]:
    """Write the prompt that asks whether an environment can be solved."""
    return _messages("", fill(domain.screen, source=source))


def review_messages(source: str, play: str) -> list[dict[str, str]]:
    """Write the prompt that asks whether a program is sound, beside one play of it."""
    return _messages("", fill(text("review"), source=source, play=play))


def fill(template: str, **values: str) -> str:
    """Replace each `{name}` that has a value; other braces stay as they are."""
    return _HOLE.sub(lambda hole: values.get(hole[1], hole[0]), template)


def text(name: str) -> str:
    """Read one prompt text of the package."""
    return (_HERE / "prompts" / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n")


def guest(name: str) -> str:
    """Read the source of a module that is shipped into the sandbox. It is never imported here."""
    return (_HERE / "guest" / f"{name}.py").read_text(encoding="utf-8")


def _messages(system: str, content: str) -> list[dict[str, str]]:
    opening = [{"role": "system", "content": system}] if system else []
    return [*opening, {"role": "user", "content": content}]


def _win_rate_line(win_rate: float | None, skill: str) -> str:
    if win_rate is None:
        return ""
    return f"The player's present win rate on {skill} is {win_rate:.0%}; aim at about one half."


def _memory(request: Request) -> str:
    parts = []
    for example in request.positives:
        parts.append(
            f"An earlier environment of this skill that taught well (win rate "
            f"{example.win_rate:.0%}, gain by hint {example.regret:+.2f}). Write a different one.\n"
            f"```python\n{example.source.strip()}\n```"
        )
    for example in request.negatives:
        verdict = "too easy" if example.win_rate > 0.5 else "too hard"
        parts.append(f"{example.name} was {verdict} (win rate {example.win_rate:.0%}).")
    return "\n\n".join(parts)


SKILL_DESCRIPTIONS = {
    "Mathematical Reasoning": "compute, compare and derive quantities over several dependent steps",
    "Logical Deduction": "derive what must hold from facts and rules, and rule out the rest",
    "Spatial Reasoning": "track positions, directions, shapes and their changes",
    "Pattern Recognition": "find the rule behind examples and apply it to a new case",
    "Optimization": "find the best choice under limits, weighing costs against gains",
    "Causal Inference": "tell causes from coincidence and predict what an intervention changes",
    "Strategic Planning": "plan moves ahead against limits or an opponent",
    "Memory Recall": "keep earlier facts in mind and use them later",
    "Language Understanding": "read a text closely and act on what it means",
    "API Orchestration": "combine several tools so that the result of one feeds the next",
    "Data Retrieval": "find the records that answer a question by querying tools",
    "State Modification": "change the state of a system exactly as asked, and nothing else",
    "Error Recovery": "notice that a call failed, understand why, and reach the goal another way",
    "Tool Selection": "choose the right tool among similar ones",
    "Multi-Step Workflows": "carry out a procedure whose steps depend on each other",
}
