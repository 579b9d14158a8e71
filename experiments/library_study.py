"""Do environments of public libraries load, play and end in the sandbox, and score as at home?

    python -m launch.wrap_library --library=rlve --output=POOL
    python -m experiments.library_study POOL

Every environment is played from two seeds: once with its own solution where the library has one,
and with answers that are mostly wrong (nothing, a word, the answer of the other seed, the answer
and a digit more). Beside that the library itself, imported by this process, scores the same answers
to the same problems. Both must give the same last reward. Result: experiments/README.md.
"""

from __future__ import annotations

import ast
import collections
import json
import random
import re
import sys
import time
import types
from collections.abc import Callable

from sandbox import crew, records
from spade_jax import domains, lent, library, pool_files, seed_files
from spade_jax.suites import libraries

SEEDS = (11, 12)
TURNS = 60  # steps of one play here
_LIMITS = records.Limits(wall_seconds=40.0, cpu_seconds=40.0)
_FILLED = re.compile(r"json\.loads\((.*)\)$", re.MULTILINE)


def answers_to(solutions: dict[int, str | None], seed: int) -> list[str]:
    """What is said to one problem, without box."""
    own = solutions.get(seed)
    other = next((text for s, text in solutions.items() if s != seed and text), "7")
    return [*([own, own + "0"] if own else []), other, "", "zzz"]


class Boxed:
    """Plays one environment in the sandbox."""

    def __init__(self, boxes: crew.Crew, source: str):
        games = domains.get("games")
        self._session = boxes.open(
            source, modules=dict(games.modules), prelude=games.prelude, limits=_LIMITS
        )
        self._plays = 0

    def begin(self, seed: int) -> tuple[int, str | None]:
        """Start a play; returns its number and the solution, without box."""
        self._plays += 1
        load = {"op": "load", "seed": seed, "max_turns": None, "pacing": "respect"}
        _, _, solved = self.ask(
            self._plays, [load, {"op": "reset", "seed": seed}, {"op": "solution"}]
        )
        text = solved["solution"]
        return self._plays, text.removeprefix("\\boxed{").removesuffix("}") if text else None

    def ask(self, play: int, requests: list[dict]) -> list[dict]:
        """Ask; raises RuntimeError for what is no answer in the contract."""
        found = self._session.step([{"play": play, **request} for request in requests])
        for outcome in found:
            if outcome.status != records.OK or outcome.value.get("contract"):
                raise RuntimeError(f"{outcome.status}: {outcome.detail} {outcome.value}"[:300])
        return [outcome.value for outcome in found]

    def play(self, play: int, said: str) -> float | None:
        """Say one thing until the end; the last reward, None where there is no end."""
        for _ in range(TURNS):
            (step,) = self.ask(play, [{"op": "step", "action": f"\\boxed{{{said}}}"}])
            if step["terminated"] or step["truncated"]:
                return step["reward"]
        return None

    def close(self) -> None:
        self._session.close()


def at_home(name: str) -> Callable[[list, int], Callable[[str], float]]:
    """Import a library; returns (arguments, seed) -> scorer of answers."""
    return {"reasoning_gym": _reasoning_gym, "rlve": _rlve, "gem": _gem}[name]()


def _reasoning_gym():
    import reasoning_gym

    def problem(arguments, seed):
        name, config, level, _ = arguments
        if level is not None:
            curriculum = reasoning_gym.create_curriculum(name)
            curriculum.set_global_level(level)
            config = dict(vars(curriculum.generate_configuration(dict(config))))
        questions = reasoning_gym.create_dataset(name, **{**config, "size": 1, "seed": seed})
        entry = questions[0]

        def score(said):
            try:
                return min(1.0, float(questions.score_answer(answer=said, entry=entry)))
            except Exception:  # the library's scorer fails on this answer
                return 0.0

        return score

    return problem


def _rlve():
    torch = types.ModuleType("torch")
    torch.manual_seed = lambda seed: None
    torch.cuda = types.SimpleNamespace(manual_seed_all=lambda seed: None)
    sys.modules.setdefault("torch", torch)
    from Gym.environments import identifier2environment
    from Gym.parameter_controllers import identifier2controller

    classes = {c.__name__: c for c in identifier2environment.values()}
    controllers = {c.__name__: c for c in identifier2controller.values()}

    def problem(arguments, seed):
        _, name, _, controller_name, level, _ = arguments
        controller = controllers[controller_name]()
        for _ in range(level):
            controller.update()
        rng, made = random.Random(seed), classes[name]()
        for _ in range(20):
            chosen = rng.choice(controller.get_parameter_list())
            if made.generator(seed=rng.randrange(2**31), parameter=chosen):
                break
        return lambda said: float(made.verifier(f"<answer>{said}</answer>")["accuracy"])

    return problem


def _gem():
    import gem

    def problem(arguments, seed):
        def score(said):
            game = gem.make(arguments[0], **arguments[1])
            game.reset(seed=seed)
            for _ in range(TURNS):
                _, reward, terminated, truncated, _ = game.step(f"\\boxed{{{said}}}")
                if terminated or truncated:
                    return float(reward)
            return None

        return score

    return problem


def study(boxes: crew.Crew, seed_file: seed_files.SeedFile, home) -> collections.Counter:
    """Play one environment; counts what was found, faults by their text."""
    arguments = json.loads(ast.literal_eval(_FILLED.search(seed_file.code)[1]))
    found, boxed = collections.Counter(), Boxed(boxes, seed_file.code)
    try:
        solutions = {seed: boxed.begin(seed)[1] for seed in SEEDS}
        found["load"] += 1
        for seed in SEEDS:
            score = home(arguments, seed)
            for number, said in enumerate(answers_to(solutions, seed)):
                got = boxed.play(boxed.begin(seed)[0], said)
                want = score(said)
                found["plays"] += 1
                found["ended"] += got is not None
                found["won"] += got is not None and got >= 1.0
                same = got == want or (got is not None and abs(got - want) < 1e-9)
                found["agree"] += same
                if not same:
                    found[f"! {seed_file.family} {said[:40]!r}: {got} here, {want} at home"] += 1
                if number == 0 and solutions[seed]:
                    found["solutions"] += 1
                    found["solutions that win"] += got is not None and got >= 1.0
    except RuntimeError as error:
        found[f"! {seed_file.family} {error}"] += 1
    finally:
        boxed.close()
    return found


def main(folder: str) -> None:
    """Study a pool."""
    pool_files.read(folder)
    manifest = json.loads(open(f"{folder}/{pool_files.MANIFEST}").read())
    name = manifest["provenance"]["library"]
    packages, home, begun = libraries.LIBRARIES[name].packages, at_home(name), time.monotonic()
    total = collections.Counter()
    with crew.Crew(lent.lending(crew.CrewConfig(), packages)) as boxes:
        for seed_file in library.load(folder, ("games",), ("train",)):
            total += study(boxes, seed_file, home) + collections.Counter(files=1)
    for key, count in sorted(total.items()):
        print(f"{count:6}  {key}")
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1])
