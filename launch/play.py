"""Door: a person plays an environment file in the terminal; the program runs in the sandbox.

    python -m launch.play FILE [--seed=N] [--hint]

Type an answer or a command; `\\boxed{...}` is added where the setting wants it. With tools, type
`call NAME {"argument": value}` and `answer TEXT`. An empty line or Ctrl-D ends the play.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable

from absl import app, flags

from launch import check_env
from sandbox import crew as crew_lib
from sandbox import records as sandbox_records
from spade_jax import domains
from spade_jax.domains import domain as domain_lib

PLAY = 0  # the only play of the process


def play(
    source: str,
    domain: domain_lib.Domain,
    crew: crew_lib.Crew,
    seed: int,
    show_hint: bool,
    ask: Callable[[], str | None],
    tell: Callable[[str], None],
) -> float | None:
    """Play one episode.

    Args:
      ask: gives the next line of the person, None to stop.
      tell: shows a text.
    Returns:
      the last reward if the episode terminated, None otherwise.
    """
    session = crew.open(source, modules=dict(domain.modules), prelude=domain.prelude, seed=seed)
    try:
        load = {"op": "load", "seed": seed, "max_turns": domain.max_turns, "pacing": "respect"}
        began = session.step(
            [{"play": PLAY, **request} for request in (load, {"op": "reset", "seed": seed})]
        )
        for outcome in began:
            if not _fine(outcome, tell):
                return None
        tell(clean(began[1].value["observation"]))
        if show_hint:
            tell(_hint(session))
        turns = began[0].value.get("max_turns") or domain.max_turns
        return _turns(session, domain, turns, ask, tell)
    finally:
        session.close()


def as_action(line: str, domain: domain_lib.Domain) -> str:
    """Turn what a person typed into an action of the setting."""
    word, _, rest = line.strip().partition(" ")
    if domain.uses_tools and word == "call":
        name, _, arguments = rest.strip().partition(" ")
        call = f'{{"name": {json.dumps(name)}, "arguments": {arguments or "{}"}}}'
        return f"<tool_call>{call}</tool_call>"
    if domain.uses_tools and word == "answer":
        return f"<answer>{rest}</answer>"
    return line if domain.uses_tools else domain.wrap(domain.action(line))


def clean(text: str) -> str:
    """Drop control characters: a program's text must not steer the terminal."""
    return "".join(c for c in text if c in "\n\t" or c.isprintable())


def _turns(session, domain, turns: int, ask, tell) -> float | None:
    for turn in range(1, turns + 1):
        line = ask()
        if line is None or not line.strip():
            tell("Stopped.")
            return None
        request = {"op": "step", "play": PLAY, "action": as_action(line, domain)}
        (outcome,) = session.step([request])
        if not _fine(outcome, tell):
            return None
        step = outcome.value
        tell(clean(step["observation"]))
        if step["terminated"]:
            tell(f"The episode is over after {turn} of {turns} turns; reward {step['reward']}.")
            return step["reward"]
        if step["truncated"]:
            break
    tell(f"The {turns} turns are used up; the episode counts 0.")
    return None


def _hint(session) -> str:
    (outcome,) = session.step([{"op": "hint", "play": PLAY}])
    hint = outcome.value.get("hint") if outcome.status == "ok" else None
    return f"HINT: {clean(hint)}" if hint else "This environment has no hint."


def _fine(outcome, tell) -> bool:
    """Say what went wrong; True where nothing did."""
    fault = outcome.detail or outcome.status if outcome.status != "ok" else ""
    fault = fault or outcome.value.get("contract", "")
    if fault:
        tell(f"The environment failed: {clean(str(fault))}")
    return not fault


def _ask() -> str | None:
    try:
        return input("> ")
    except EOFError:
        return None


def main(argv: list[str]) -> int:
    """Play the file that the command line names."""
    if len(argv) != 2 or not pathlib.Path(argv[1]).is_file():
        named = f"{argv[1]} is no file; " if len(argv) == 2 else ""
        print(
            f"play: {named}name one environment file, for example `python -m launch.play "
            "experiments/seed_environments/games/fuel_route.py`.",
            file=sys.stderr,
        )
        return 2
    tier = "subprocess" if flags.FLAGS.unsafe_subprocess else "gvisor"
    source = pathlib.Path(argv[1]).read_text(encoding="utf-8", errors="surrogateescape")
    chosen = flags.FLAGS.setting
    domain = domains.get(check_env.setting_of(source) if chosen == "auto" else chosen)
    try:
        with crew_lib.Crew(crew_lib.CrewConfig(tier=tier)) as crew:
            play(source, domain, crew, flags.FLAGS.seed, flags.FLAGS.hint, _ask, print)
    except sandbox_records.SandboxUnavailable as error:
        print(f"play: {error}{check_env.UNSAFE}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
    return 0


def define_flags() -> None:
    """Declare the flags of this door."""
    check_env.define_setting_flags()
    flags.DEFINE_integer("seed", 0, "Seed of the instance.")
    flags.DEFINE_bool("hint", False, "Show the environment's hint.")


def console() -> None:
    """Entry point of the installed command."""
    define_flags()
    app.run(main)


if __name__ == "__main__":
    console()
