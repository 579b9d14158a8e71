"""What public environment libraries hold; runs in the sandbox only, never imported here.

Each function takes levels of difficulty and returns rows [name, category, arguments], where the
arguments are those that the environment of the library is filled in with, less its turns.
"""

import sys
import types


def reasoning_gym_list(levels):
    """Every data set, at the default configuration (level -1) or those of its curriculum."""
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    rows = []
    for name in sorted(DATASETS):
        category = DATASETS[name][0].__module__.split(".")[1]
        for level in levels:
            if level < 0:
                rows.append([name, category, [name, {}, None]])
            elif reasoning_gym.has_curriculum(name):
                rows.append([f"{name}_level_{level}", category, [name, {}, level]])
    return rows


def gem_list(levels):
    """The games, and the data sets of reasoning-gym as GEM has them; others need a network."""
    from gem.envs.registration import ENV_REGISTRY

    names = [name for name in ENV_REGISTRY if name.startswith(("game:", "rg:"))]
    return [[name, name.split(":")[0], [name, {}]] for name in sorted(names)]


def rlve_list(levels):
    """Every environment, at so many steps of its parameter controller."""
    torch = types.ModuleType("torch")
    torch.manual_seed, torch.cuda = None, None  # named where modules load, called where they run
    sys.modules.setdefault("torch", torch)
    from Gym.environments import identifier2environment
    from Gym.parameter_controllers import identifier2controller

    rows = []
    for name in sorted(identifier2environment):
        classes = identifier2environment[name], identifier2controller[name]
        told = [text for one in classes for text in (one.__module__, one.__name__)]
        for level in levels:
            suffix = f"_level_{level}" if level > 0 else ""
            rows.append([name + suffix, "", [*told, max(level, 0)]])
    return rows
