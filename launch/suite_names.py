"""Read the names of suites, as `--suite` takes them.

known, held_out                new instances of the seed environments, by their split
environments:DIR               any directory of environment programs
humaneval[:FILE]  mbpp:FILE    programs, run against tests in the sandbox
livecodebench:FILE             the same, JSON lines of its code_generation_lite
aime:FILE  gpqa:FILE           questions with one short answer
reasoning_gym:FILE             JSON, data set -> configuration, of the installed package
gem:ID,ID                      environments of the installed package
bfcl:DIR                       multi-turn function calling, data of the unpacked package
PACKAGE.MODULE:FUNCTION        your own: FUNCTION(config) returns a `suites.suite.Suite`
"""

from __future__ import annotations

import dataclasses
import pkgutil
from collections.abc import Sequence

from spade_jax import settings
from spade_jax.suites import bfcl, code, environments, libraries, livecode, questions, suite

SPLITS = {"known": "train", "held_out": "held_out"}
PACKAGED = ("reasoning_gym", "gem")  # suites whose programs import a library of their name
NAMES = (
    *SPLITS,
    *("environments", "humaneval", "mbpp", "livecodebench", "aime", "gpqa"),
    *PACKAGED,
    "bfcl",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much of each suite is asked."""

    samples: int = 1  # tries of each question, where suites repeat them
    k: tuple[int, ...] = (1,)  # of pass@k
    instances: int = 0  # of each environment; 0 takes those of the configuration
    validation: str = ""  # suite that chooses, so that it is no test


def read(names: Sequence[str], config: settings.RunConfig, sizes: Sizes) -> list[suite.Suite]:
    """Make the suites of some names.

    Raises:
      ValueError: an unknown name, or two suites of one name.
    """
    made = [_one(name, config, sizes) for name in names]
    called = [one.name for one in made]
    twice = sorted({name for name in called if called.count(name) > 1})
    if twice:
        raise ValueError(f"--suite: {', '.join(twice)} more than once; give each name once.")
    return made


def packages(names: Sequence[str]) -> list[str]:
    """List the distributions that the programs of the suites import."""
    kinds = dict.fromkeys(name.partition(":")[0] for name in names)
    chosen = [libraries.LIBRARIES[kind].packages for kind in kinds if kind in PACKAGED]
    return list(dict.fromkeys(name for names in chosen for name in names))


def _one(name: str, config: settings.RunConfig, sizes: Sizes) -> suite.Suite:
    kind, _, rest = name.partition(":")
    known, held = config.evaluate.instances, config.evaluate.held_out_instances
    turns = config.rollout.max_turns
    if kind in SPLITS and not rest:
        instances = sizes.instances or (known if kind == "known" else held)
        role = "validation" if kind == "known" else "test"
        return environments.of_seeds(
            kind, config.seed_environments, config.setting, SPLITS[kind], instances, turns, role
        )
    if kind == "environments" and rest:
        made = environments.of_directory(rest, sizes.instances or held, turns)
        chooses = sizes.validation in (name, made.name)
        return dataclasses.replace(made, role="validation" if chooses else "test")
    if kind == "humaneval":
        return code.humaneval(rest, sizes.samples, sizes.k)
    if kind == "reasoning_gym" and rest:
        return environments.reasoning_gym(rest, sizes.instances or held, turns)
    if kind == "gem" and rest:
        return environments.gem(rest.split(","), sizes.instances or held, turns)
    if kind == "bfcl" and rest:
        return bfcl.multi_turn(rest)
    files = {"mbpp": code.mbpp, "livecodebench": livecode.livecodebench}
    files |= {"aime": questions.aime, "gpqa": questions.gpqa}
    if kind in files and rest:
        return files[kind](rest, sizes.samples, sizes.k)
    if rest.isidentifier():
        return _own(name, config)
    raise ValueError(
        f"--suite={name}: write one of {', '.join(NAMES)}, with :FILE or :DIR where it needs one "
        "(see launch/suite_names.py), or PACKAGE.MODULE:FUNCTION."
    )


def _own(name: str, config: settings.RunConfig) -> suite.Suite:
    """Call the operator's own function, of a module that Python finds."""
    try:
        made = pkgutil.resolve_name(name)(config)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--suite={name}: {error}. Put its folder on PYTHONPATH.") from error
    if not isinstance(made, suite.Suite):
        raise ValueError(
            f"--suite={name} returned a {type(made).__name__}, not a spade_jax.suites.suite.Suite."
        )
    return made
