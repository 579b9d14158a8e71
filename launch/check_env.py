"""Door: the verdict on environment files, check by check.

    python -m launch.check_env FILE_OR_FOLDER... [--json] [--setting=auto|compact|games|tool_use]
        [--packages=reasoning-gym,...] [--imports=os,...] [--off=degenerate,...] [--max_turns=N]
        [--wall_seconds=S]

Every file is run in the sandbox. Exit code 0 only if all are accepted, 1 if any is refused, 2 if
nothing could be judged.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Sequence

from absl import app, flags

from sandbox import crew as crew_lib
from sandbox import records as sandbox_records
from spade_jax import domains, lent, programs, records, seed_files, validate

SETTINGS = ("auto", *domains.DOMAINS)
LISTED_IN_FULL = 3  # files up to which every check is listed for people
UNSAFE = (
    " Or add --unsafe_subprocess to run the files as plain processes of yours, which is no "
    "security boundary."
)


def expand(paths: Sequence[str]) -> list[pathlib.Path]:
    """List the files to check: files as they are, folders as the *.py files below them.

    Raises:
      FileNotFoundError: a path does not exist, or a folder holds no program.
    """
    files: list[pathlib.Path] = []
    for path in map(pathlib.Path, paths):
        if path.is_dir():
            below = sorted(p for p in path.rglob("*.py") if p.name != "__init__.py")
            if not below:
                raise FileNotFoundError(
                    f"{path} holds no *.py file. Name a file or another folder."
                )
            files += below
        elif path.is_file():
            files.append(path)
        else:
            raise FileNotFoundError(f"{path} does not exist. Check the spelling of the path.")
    return list(dict.fromkeys(files))


def check(
    files: Sequence[pathlib.Path],
    setting: str,
    crew: crew_lib.Crew,
    config: validate.ValidateConfig | None = None,
) -> list[validate.Verdict]:
    """Judge files, in their order; copies among the files of one setting count as duplicates."""
    config = config or validate.ValidateConfig()
    drafts = [_draft(path, i) for i, path in enumerate(files)]
    by_setting: dict[str, list[records.Draft]] = {}
    for draft in drafts:
        name = setting_of(draft.source) if setting == "auto" else setting
        by_setting.setdefault(name, []).append(draft)
    verdicts = {}
    for name, members in by_setting.items():
        for verdict in validate.examine(members, crew, domains.get(name), config):
            verdicts[verdict.uid] = verdict
    return [verdicts[i] for i in range(len(files))]


def setting_of(source: str) -> str:
    """Name the setting that a program was written for: its header says it, or its base class."""
    named = (seed_files.header(source) or {}).get("setting", "")
    return named if named in domains.DOMAINS else programs.setting_of(source)


def as_record(path: pathlib.Path, verdict: validate.Verdict) -> dict:
    """Write one verdict as plain values."""
    finding = verdict.finding
    environment = verdict.environment
    return {
        "file": str(path),
        "accepted": environment is not None,
        "reason": finding.reason if finding else None,
        "detail": finding.detail if finding else "",
        "class_name": environment.class_name if environment else None,
        "setting": environment.setting if environment else None,
        "checks": verdict.checks,
    }


def as_text(path: pathlib.Path, verdict: validate.Verdict, in_full: bool) -> str:
    """Write one verdict for people."""
    if verdict.environment is not None:
        environment = verdict.environment
        passed = sum(mark == "pass" for mark in verdict.checks.values())
        head = f"accepted  {path}: {environment.class_name}, {environment.setting}, {passed} checks"
    else:
        meaning = validate.CHECKS.get(verdict.finding.reason, "the sandbox failed, not the file")
        head = f"refused   {path}: {verdict.finding.reason} ({meaning}): {verdict.finding.detail}"
    if not in_full:
        return head
    lines = [f"  {mark:18}{name}" for name, mark in verdict.checks.items()]
    return "\n".join([head, *lines])


def _draft(path: pathlib.Path, uid: int) -> records.Draft:
    # Bytes that are no UTF-8 become surrogates, which the syntax check refuses.
    source = path.read_text(encoding="utf-8", errors="surrogateescape")
    keys = seed_files.header(source) or {}
    return records.Draft(
        uid=uid,
        generation=0,
        skill=keys.get("skill", ""),
        difficulty="medium",
        prompt_ids=(),
        reply=records.Reply(ids=(), logps=(), stopped=True),
        text=source,
        source=source,
        version=0,
    )


def main(argv: list[str]) -> int:
    """Judge what the command line names."""
    if len(argv) < 2:
        print(
            "check_env: name at least one environment file or folder, for example "
            "`python -m launch.check_env experiments/seed_environments`.",
            file=sys.stderr,
        )
        return 2
    tier = "subprocess" if flags.FLAGS.unsafe_subprocess else "gvisor"
    try:
        files = expand(argv[1:])
        lends = lent.lending(crew_lib.CrewConfig(tier=tier), flags.FLAGS.packages)
        config = validate.ValidateConfig(
            off=tuple(flags.FLAGS.off),
            more_imports=(*lent.brought(flags.FLAGS.packages), *flags.FLAGS.imports),
            max_turns=flags.FLAGS.max_turns,
            wall_seconds=flags.FLAGS.wall_seconds,
        )
        with crew_lib.Crew(lends) as crew:
            verdicts = check(files, flags.FLAGS.setting, crew, config)
    except (FileNotFoundError, PermissionError, ValueError) as error:
        print(f"check_env: {error}", file=sys.stderr)
        return 2
    except sandbox_records.SandboxUnavailable as error:
        print(f"check_env: {error}{UNSAFE}", file=sys.stderr)
        return 2
    for path, verdict in zip(files, verdicts, strict=True):
        if flags.FLAGS.json:
            print(json.dumps(as_record(path, verdict)))
        else:
            print(as_text(path, verdict, in_full=len(files) <= LISTED_IN_FULL))
    accepted = sum(verdict.environment is not None for verdict in verdicts)
    if not flags.FLAGS.json and len(files) > 1:
        print(f"{accepted} of {len(files)} files accepted")
    if any(v.finding is not None and v.finding.reason == validate.INFRA for v in verdicts):
        return 2
    return 0 if accepted == len(files) else 1


def define_flags() -> None:
    """Declare the flags of this door."""
    flags.DEFINE_bool("json", False, "Print one JSON object per file.")
    flags.DEFINE_list("off", [], "Checks not made, as config.validate.off names them.")
    flags.DEFINE_list("imports", [], "Modules allowed beside those of the setting.")
    flags.DEFINE_integer(
        "max_turns", None, "Replies of one play at most; the setting's by default."
    )
    flags.DEFINE_float(
        "wall_seconds",
        validate.ValidateConfig.wall_seconds,
        "Seconds that one message to a program may take.",
        lower_bound=0.1,
    )
    define_setting_flags()


def define_setting_flags() -> None:
    """Declare the flags that this door shares with `launch.play`."""
    flags.DEFINE_enum("setting", "auto", SETTINGS, "Setting; auto reads header and base class.")
    flags.DEFINE_list("packages", [], "Installed distributions that the files may import.")
    flags.DEFINE_bool(
        "unsafe_subprocess", False, "Run files as plain processes: no security boundary."
    )


def console() -> None:
    """Entry point of the installed command."""
    define_flags()
    app.run(main)


if __name__ == "__main__":
    console()
