"""Door: a person or a policy plays an environment file; the program runs in the sandbox.

    python -m launch.play FILE [--seed=N] [--hint]
    python -m launch.play FILE --policy=plays|hints --config=FILE [--workdir=DIR] [--step=N]

Type an answer or a command; `\\boxed{...}` is added where the setting wants it. With tools, type
`call NAME {"argument": value}` and `answer TEXT`. An empty line or Ctrl-D ends the play. A policy
is that of a run's checkpoint or, without --workdir, the one that --config names
(`--config.policy.weights=PATH`): it plays, or writes the hint for you.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Protocol

from absl import app, flags
from ml_collections import config_flags

from launch import check_env, entry
from sandbox import crew as crew_lib
from sandbox import records as sandbox_records
from spade_jax import domains, lent, seed_files
from spade_jax.domains import domain as domain_lib

PLAY = 0  # the only play of the process


class Player(Protocol):
    """A policy, as `spade_jax.seat.Player` is one."""

    def act(self, observation: str, tools: list | None = None) -> tuple[str, str | None]:
        """Answer an observation: the reply, and the action in it."""

    def hint(self, source: str) -> tuple[str | None, str]:
        """Write a hint: it, or None and why there is none."""


def play(
    source: str,
    domain: domain_lib.Domain,
    crew: crew_lib.Crew,
    seed: int,
    show_hint: bool,
    ask: Callable[[], str | None],
    tell: Callable[[str], None],
    player: Player | None = None,
    writes_hint: bool = False,
) -> float | None:
    """Play one episode.

    Args:
      show_hint: the environment's own hint stands below the first observation.
      ask: gives the next line of the person, None to stop.
      tell: shows a text.
      player: a policy, which plays unless `writes_hint`: then the person plays with its hint.
    Returns:
      the last reward if the episode terminated, None otherwise.
    """
    session = crew.open(source, modules=dict(domain.modules), prelude=domain.prelude, seed=seed)
    try:
        load = {"op": "load", "seed": seed, "max_turns": domain.max_turns, "pacing": "respect"}
        opening = (load, {"op": "reset", "seed": seed}, {"op": "tools"})
        began = session.step([{"play": PLAY, **request} for request in opening])
        for outcome in began:
            if not _fine(outcome, tell):
                return None
        observation = began[1].value["observation"]
        tell(clean(observation))
        if show_hint:
            hint = _hint(session)
            tell(f"HINT: {clean(hint)}" if hint else "This environment has no hint.")
            observation += f"\nHINT: {hint}" if hint else ""
        if writes_hint:
            hint, reason = player.hint(_program(source))
            tell(f"HINT: {clean(hint)}" if hint else f"The policy has no hint: {clean(reason)}.")
        turns = began[0].value.get("max_turns") or domain.max_turns
        if player is None or writes_hint:
            return _turns(session, turns, observation, _by_person(domain, ask, tell), tell)
        tools = began[2].value.get("tools") or None
        return _turns(session, turns, observation, _by_policy(player, tools, tell), tell)
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


def _program(source: str) -> str:
    """Cut off the header of a seed file, which a policy does not see in its run either."""
    named = "family" in (seed_files.header(source) or {})
    return seed_files.without_header(source) if named else source


def _by_person(domain, ask, tell) -> Callable[[str], str | None]:
    def decide(_: str) -> str | None:
        line = ask()
        if line is None or not line.strip():
            tell("Stopped.")
            return None
        return as_action(line, domain)

    return decide


def _by_policy(player: Player, tools: list | None, tell) -> Callable[[str], str | None]:
    left = [tools]  # told with the first observation only

    def decide(observation: str) -> str | None:
        text, action = player.act(observation, left.pop() if left else None)
        tell(f"POLICY: {clean(text)}")
        if action is None:
            tell("The policy is out of the play; the episode counts 0.")
        return action

    return decide


def _turns(session, turns: int, observation: str, decide, tell) -> float | None:
    for turn in range(1, turns + 1):
        action = decide(observation)
        if action is None:
            return None
        (outcome,) = session.step([{"op": "step", "play": PLAY, "action": action}])
        if not _fine(outcome, tell):
            return None
        step = outcome.value
        observation = step["observation"]
        tell(clean(observation))
        if step["terminated"]:
            tell(f"The episode is over after {turn} of {turns} turns; reward {step['reward']}.")
            return step["reward"]
        if step["truncated"]:
            break
    tell(f"The {turns} turns are used up; the episode counts 0.")
    return None


def _hint(session) -> str | None:
    (outcome,) = session.step([{"op": "hint", "play": PLAY}])
    hint = outcome.value.get("hint") if outcome.status == "ok" else None
    return hint if isinstance(hint, str) else None


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
    if bool(flags.FLAGS.policy) != (flags.FLAGS.config is not None):
        print("play: give --policy=plays or --policy=hints and --config together.", file=sys.stderr)
        return 2
    try:
        lends = lent.lending(crew_lib.CrewConfig(tier=tier), flags.FLAGS.packages)
    except ValueError as error:
        print(f"play: {error}", file=sys.stderr)
        return 2
    player = _seated(domain) if flags.FLAGS.policy else None
    writes = flags.FLAGS.policy == "hints"
    try:
        with crew_lib.Crew(lends) as crew:
            seed, hint = flags.FLAGS.seed, flags.FLAGS.hint
            play(source, domain, crew, seed, hint, _ask, print, player, writes)
    except sandbox_records.SandboxUnavailable as error:
        print(f"play: {error}{check_env.UNSAFE}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
    return 0


def _seated(domain: domain_lib.Domain) -> Player:
    """Load the policy that the flags name."""
    entry.set_up()
    with entry.one_paragraph():
        from spade_jax import seat

        config = entry.settings_of(flags.FLAGS.config)
        policy = seat.load(config, flags.FLAGS.workdir, flags.FLAGS.step)
        print(f"policy: {policy.name}")
        return seat.Player(policy, config, domain, flags.FLAGS.seed)


def define_flags() -> None:
    """Declare the flags of this door."""
    config_flags.DEFINE_config_file("config", None, "Configuration of the policy's run.")
    flags.DEFINE_string("workdir", None, "Folder of the policy's run.")
    flags.DEFINE_integer("step", None, "Checkpoint of the run; the newest by default.")
    flags.DEFINE_enum("policy", None, ("plays", "hints"), "What the policy does.")
    check_env.define_setting_flags()
    flags.DEFINE_integer("seed", 0, "Seed of the instance.")
    flags.DEFINE_bool("hint", False, "Show the environment's hint.")


def console() -> None:
    """Entry point of the installed command."""
    define_flags()
    app.run(main)


if __name__ == "__main__":
    console()
