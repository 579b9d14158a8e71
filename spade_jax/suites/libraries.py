"""Public environment libraries in the contract: reasoning-gym, GEM and RLVE.

In: the name of a library, what to wrap. Out: program texts that import the library, and entries of
a pool. A library is never imported here: it is installed on the host, lent to the sandbox, and
even its list of environments is asked for there.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import zlib
from collections.abc import Sequence
from typing import Any

from sandbox import records as sandbox_records
from spade_jax import pool_files

_GUEST = pathlib.Path(__file__).parent / "guest"
_LISTING = sandbox_records.Limits(wall_seconds=240.0, cpu_seconds=240.0, memory_bytes=2 << 30)
_SKILLS = {
    "algorithmic": "Pattern Recognition",
    "arc": "Pattern Recognition",
    "code": "Logical Deduction",
    "cognition": "Pattern Recognition",
    "game": "Optimization",
    "games": "Optimization",
    "geometry": "Spatial Reasoning",
    "graphs": "Spatial Reasoning",
    "induction": "Causal Inference",
    "logic": "Logical Deduction",
}  # category of a library -> skill; any other is mathematical


@dataclasses.dataclass(frozen=True, kw_only=True)
class Library:
    """A library that can be wrapped."""

    packages: tuple[str, ...]  # distributions that its environments import; pip install them
    program: str  # file of the guest folder
    listing: str  # function of library_lists.py
    levels: tuple[int, ...]  # where none are named
    imports: tuple[str, ...] = ()  # beside the packages: modules that no draft may import
    knobs: str = ""  # of its program, for a window of levels; see seed_files.py


LIBRARIES = {
    "reasoning_gym": Library(
        packages=("reasoning-gym",),
        program="reasoning_gym_env.py",
        listing="reasoning_gym_list",
        levels=(-1,),
    ),
    "gem": Library(
        packages=("gem-llm", "reasoning-gym"),
        program="gem_env.py",
        listing="gem_list",
        levels=(0,),
    ),
    "rlve": Library(
        packages=("rlve-gym", "networkx", "numpy", "sympy"),  # it declares none of the others
        program="rlve_env.py",
        listing="rlve_list",
        levels=(0,),
        imports=("importlib", "os", "sys"),  # loads parts of a package that is too large
        knobs="900000 -> 900000 900010 900020",  # steps of the parameter controller, from 0
    ),
}


def program(library: str, arguments: Sequence[Any], turns: int) -> str:
    """Write one environment of a library as a program.

    Args:
      arguments: as `library_lists.py` gives them, JSON-able.
      turns: replies of one episode, where the library sets none itself.
    """
    text = (_GUEST / LIBRARIES[library].program).read_text(encoding="utf-8")
    content = json.dumps([*arguments, turns])
    filled = text.replace("__DATA__", repr(content))
    filled = filled.replace("__NUMBER__", str(zlib.crc32(content.encode())))
    return re.sub(r"  # noqa: F821(  filled.*)?", "", filled).replace("  tells", "  # tells")


def entries(
    library: str, crew: Any, turns: int, levels: Sequence[int] = ()
) -> list[pool_files.Entry]:
    """Wrap every environment of a library.

    Args:
      crew: runs programs that may import the library's packages.
      levels: of difficulty; empty takes the library's first.
    Raises:
      ValueError: the library cannot be loaded in the sandbox, or lists nothing.
    """
    chosen = LIBRARIES[library]
    source = (_GUEST / "library_lists.py").read_text(encoding="utf-8")
    asked = [list(levels) or list(chosen.levels)]
    outcome = crew.start_call(source, chosen.listing, asked, _LISTING).result()
    rows = outcome.value[0] if outcome.status == sandbox_records.OK else None
    if not isinstance(rows, list) or not rows:
        raise ValueError(
            f"{library} cannot be listed in the sandbox: {outcome.status} {outcome.detail} "
            f"{outcome.stderr[-300:]}. Is it whole? pip install {' '.join(chosen.packages)}"
        )
    return [_entry(library, *row, turns) for row in rows]


def _entry(library: str, name: str, category: str, arguments: list, turns: int) -> pool_files.Entry:
    return pool_files.Entry(
        family=re.sub(r"[^A-Za-z0-9_.-]+", "_", f"{library}_{name}"),
        source=program(library, arguments, turns),
        setting="games",
        skill=_SKILLS.get(category, "Mathematical Reasoning"),
        knobs=LIBRARIES[library].knobs,
        origin={"library": library, "name": name, "category": category},
    )
