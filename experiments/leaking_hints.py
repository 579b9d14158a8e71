"""Leaking hints: does the gate keep hints that tell the answer, and does it show honest ones?

Shows:     hints that tell the answer of the instance in play in many forms, over seed environments,
           and how many of each the gate refuses; the same for the programs' own honest hints.
Source:    the gate of `spade_jax/hint.py`, with its words tried as actions (`spade_jax/probe.py`).
Command:   python -m experiments.leaking_hints [--unsafe_subprocess]
Hardware:  2 CPU cores with gVisor, about a minute.
Result:    the table in experiments/README.md.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments import mutations
from sandbox import crew as crew_lib
from spade_jax import domains, hint, machine, probe, records, seed_files

FOLDER = pathlib.Path(__file__).parent / "seed_environments"
PROGRAMS = 12  # seed environments that each form is written into, of all settings
INSTANCES = 4  # seeds of each
NUMBER = "a.isdigit()"
_ONES = "['zero','one','two','three','four','five','six','seven','eight','nine']"


_TENS = "['','','twenty','thirty','forty','fifty','sixty','seventy','eighty','ninety']"
SHORT = ("compact",)


class Form(NamedTuple):
    """One way to tell an answer."""

    name: str
    text: str  # expression over the answer a, without its box
    fits: str = "True"  # condition on a; elsewhere the program gives no hint
    claimed: bool = True  # whether the gate says that it finds this
    settings: tuple[str, ...] = mutations.ALL  # whose answers it may fit


FORMS = (
    Form("plain", "f'The answer is {a}.'"),
    Form("boxed", "'Write \\\\boxed{' + a + '}.'"),
    Form("tagged", "f'Reply with <answer>{a}</answer>'"),
    Form("quoted", "f'Say \"{a}\" and nothing else.'"),
    Form("bold", "f'It must be **{a}**, of course.'"),
    Form("upper case", "f'THE KEY IS {a.upper()}'"),
    Form("as a formula", "f'Since x={a}, all is clear.'"),
    Form("among others", "f'It is one of zebra, {a} or apple.'"),
    Form("line of its own", "f'Think.\\n{a}\\nThen reply.'"),
    Form("dashes for spaces", "f'Use {a.replace(chr(32), chr(45))} now.'", "' ' in a"),
    Form("letters apart", "'Spell ' + ' '.join(a)", "a.isalpha() and len(a) > 2"),
    Form("with a decimal", "f'About {a}.0 it is.'", NUMBER),
    Form("leading zeros", "f'Code 00{a}.'", NUMBER),
    Form("thousands", "f'So {int(a):,}.'", NUMBER),
    Form("one digit in words", f"'It is ' + {_ONES}[int(a)]", f"{NUMBER} and len(a) == 1",
         settings=SHORT),
    Form("tens in words", f"'It is ' + {_TENS}[int(a) // 10] + '-' + {_ONES}[int(a) % 10]",
         f"{NUMBER} and len(a) == 2 and a > '2' and a[1] > '0'", settings=SHORT),
    Form("base64", "'Decode ' + __import_base64(a)", "True"),
    Form("hexadecimal", "'Hex ' + a.encode().hex()", "len(a) > 1"),
    Form("digit by digit", "'First ' + ', then '.join(a)", f"{NUMBER} and len(a) > 1", False),
    Form("as a sum", "f'Add one to {int(a) - 1}.'", NUMBER, False),
)  # fmt: skip


class Told(NamedTuple):
    """What became of hints of one form."""

    shown: int
    refused: collections.Counter  # reason -> how many


def leaking(source: str, form: Form) -> str:
    """Write a hint that tells the answer into a program."""
    text = form.text.replace("__import_base64(a)", "base64.b64encode(a.encode()).decode()")
    return mutations.derived(
        source,
        "def hint(self):\n    import base64\n    a = str(self.solution()).strip()\n"
        "    a = a[7:-1] if a.startswith('\\\\boxed{') else a\n"
        f"    return {text} if {form.fits} else None",
    )


def gate(source: str, setting: str, crew, seeds: Sequence[int]) -> Told:
    """Ask a program for the hints of some instances, and pass each through the whole gate."""
    domain = domains.get(setting)
    environment = records.Environment(
        uid=0, source=source, setting=setting, skill="", difficulty="medium", generation=0,
        class_name="", digest="", signature="", max_turns=domain.max_turns, similarity=0.0,
    )  # fmt: skip
    shown, refused = 0, collections.Counter()
    opened = crew.open(source, modules=dict(domain.modules), prelude=domain.prelude, seed=seeds[0])
    with contextlib.closing(opened) as session:
        for index, seed in enumerate(seeds):
            start = probe.Start(index=index, seed=seed, max_turns=domain.max_turns)

            def show(computed, solution):
                return machine.show_hint(environment, computed, solution, hint.HintConfig())

            helped = probe.read(session.step(probe.questions(start)), show)
            if helped.hint is not None and helped.tries:
                helped = probe.judge(helped, session.step(probe.attempts(start, helped.tries)))
            if helped.broken is not None:
                raise RuntimeError(f"the gate of {setting} broke off: {helped.broken}")
            shown += helped.hint is not None
            refused[helped.reason] += helped.hint is None
    return Told(shown, refused)


def study(crew, forms: Sequence[Form] = FORMS, programs: int = PROGRAMS) -> dict[str, Told]:
    """Judge all forms; "none" are instances whose answer a form does not fit."""
    seeds = seed_files.read_all(FOLDER)
    found = {}
    for number, form in enumerate(forms):
        rng = np.random.default_rng(number)
        fitting = [seed for seed in seeds if seed.setting in form.settings]
        chosen = [fitting[place] for place in rng.permutation(len(fitting))[:programs]]
        instances = [int(value) for value in rng.integers(1, 2**31, size=INSTANCES)]
        jobs = [(leaking(seed.code, form), seed.setting) for seed in chosen]
        found[form.name] = _together(jobs, crew, instances)
    return found


def honest(crew) -> dict[str, Told]:
    """Judge the hints that the seed environments give themselves, by setting."""
    found = {}
    for setting in mutations.ALL:
        members = [seed for seed in seed_files.read_all(FOLDER) if seed.setting == setting]
        jobs = [(seed.code, setting) for seed in members]
        found[setting] = _together(jobs, crew, range(1, 1 + INSTANCES))
    return found


def _together(jobs: Sequence[tuple[str, str]], crew, instances: Sequence[int]) -> Told:
    with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
        told = list(pool.map(lambda job: gate(*job, crew, instances), jobs))
    refused = sum((one.refused for one in told), collections.Counter())
    return Told(sum(one.shown for one in told), refused)


def table(found: dict[str, Told]) -> str:
    """Write one row per form: hints, refused as leaking or too long, shown."""
    lines = [f"{'hint':<22}{'hints':>7}{'leaks':>7}{'other':>7}{'shown':>7}"]
    for name, told in found.items():
        leaks = told.refused[probe.LEAKS]
        other = told.refused.total() - leaks - told.refused["none"]
        hints = told.shown + leaks + other
        lines.append(f"{name:<22}{hints:>7}{leaks:>7}{other:>7}{told.shown:>7}")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--unsafe_subprocess", action="store_true", help="run without gVisor")
    tier = "subprocess" if parser.parse_args().unsafe_subprocess else "gvisor"
    with crew_lib.Crew(crew_lib.CrewConfig(tier=tier)) as crew:
        print(table(study(crew, [form for form in FORMS if form.claimed])))
        print(
            "\nnot claimed to be found\n" + table(study(crew, [f for f in FORMS if not f.claimed]))
        )
        print("\nhonest hints of the seed environments\n" + table(honest(crew)))


if __name__ == "__main__":
    main()
