"""One environment of RLVE as an environment of ours; runs in the sandbox only, never imported here.

A seed is one problem at a level of the package's parameter controller. An answer that the package
calls accurate wins with 1, any other may be tried again while turns are left. Only the modules of
this environment are loaded: the package itself would load 800 and asks for torch, of which it uses
nothing but the seed.
"""

import importlib
import json
import os
import random
import sys
import types

import Gym

MODULE, CLASS, CONTROLLER_MODULE, CONTROLLER, LEVEL, TURNS = json.loads(__DATA__)  # noqa: F821
LEVEL += 900000 - 900_000  # a window of levels turns the first number up; see libraries.py
NUMBER = __NUMBER__  # noqa: F821  tells it from the library's others, alike but for data
ASK = "\n\nPut your final answer within \\boxed{}."
TRIES = 20  # problems that the package may fail to make in a row


def load(module, name):
    """Import a class of the package without the package's own start.

    Args:
      module: "Gym.<part>.<rest>"; the part becomes a package whose `__init__` does not run.
      name: of the class.
    """
    torch = types.ModuleType("torch")
    torch.manual_seed = lambda seed: None
    torch.cuda = types.SimpleNamespace(manual_seed_all=lambda seed: None)
    sys.modules.setdefault("torch", torch)
    part = module.split(".")[1]
    package = types.ModuleType(f"Gym.{part}")
    package.__path__ = [os.path.join(list(Gym.__path__)[0], part)]
    sys.modules.setdefault(package.__name__, package)
    return getattr(importlib.import_module(module), name)


class RlveEnv:
    """One problem for each seed, at a level of the package's parameter controller."""

    max_turns = TURNS

    def __init__(self):
        controller = load(CONTROLLER_MODULE, CONTROLLER)()
        for _ in range(LEVEL):
            controller.update()
        self.parameters = controller.get_parameter_list()
        self.problem = load(MODULE, CLASS)()

    def reset(self, seed=None):
        """Make the problem of a seed; a RuntimeError where the package makes none."""
        rng = random.Random(seed)
        for _ in range(TRIES):
            chosen = rng.choice(self.parameters)
            if self.problem.generator(seed=rng.randrange(2**31), parameter=chosen):
                self.turns = 0
                self.answer = self.right_answer()
                self.solution = None if self.answer is None else self.told  # may be absent
                return self.problem.prompt_generator() + ASK, {}
        raise RuntimeError(f"{CLASS} made no problem in {TRIES} tries")

    def step(self, action):
        """Ask the package's verifier about an answer."""
        said = action.strip()
        if said.startswith("\\boxed{") and said.endswith("}"):
            said = said[7:-1]
        self.turns += 1
        if self.problem.verifier(f"<answer>{said}</answer>")["accuracy"] == 1:
            return "", 1.0, True, False, {}
        if self.turns >= self.max_turns:
            return "", 0.0, True, False, {}
        return "That is not right. Try again." + ASK, 0.0, False, False, {}

    def told(self):
        """Tell the reference answer, as `solution` does where there is one."""
        return "\\boxed{" + self.answer + "}"

    def right_answer(self):
        """The package's reference answer, where it has one and calls it accurate."""
        known = self.problem.parameter.get("reference_answer")
        if known is None:
            return None
        text = " ".join(map(str, known)) if isinstance(known, (list, tuple)) else str(known)
        right = self.problem.verifier(f"<answer>{text}</answer>")["accuracy"] == 1
        return text if right else None
