"""A run's environments become a pool on which another run trains; its policy leaves, or plays."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys

import broken_programs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import quickstart
from launch import entry
from spade_jax import (
    archive,
    checkpoint,
    claim,
    fingerprints,
    learn,
    library,
    loop,
    machine,
    memory,
    pool,
    pool_export,
    programs,
    records,
    restored,
    run,
)
from spade_jax.policy import load

ROOT = pathlib.Path(__file__).parents[1]
CONFIG = """
from experiments import quickstart


def get_config():
    run = quickstart.get_config()
    run.iterations = 1
    run.rollout.environments = 2
    run.rollout.seeds = 1
    run.rollout.plays = 3
    run.rollout.hinted_plays = 2
    run.evaluate.instances = 1
    run.evaluate.held_out_instances = 1
    run.corpus = None
    run.sandbox.tier = "subprocess"
    run.sandbox.boxes = 1
    return run
"""


def settings_here():
    """The run's settings over the eight devices that tests simulate."""
    config = quickstart.get_config()
    config.mesh.data = 8
    return entry.settings_of(config)


def made(number, generation=2, family=""):
    """An environment of the designer; programs differ by the number of addends."""
    source = broken_programs.COMPACT.replace("range(4)", f"range({number + 2})")
    tree = programs.parse(source)
    return records.Environment(
        uid=number, source=source, setting="compact", skill=records.SKILLS[number % 6],
        difficulty="hard", generation=generation, class_name="TotalEnv",
        digest=fingerprints.digest(tree), max_turns=1, family=family,
        signature=fingerprints.to_text(fingerprints.signature(tree)),
    )  # fmt: skip


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A work directory with one checkpoint: 2 environments alive, 1 remembered, 1 of the past."""
    folder = tmp_path_factory.mktemp("run")
    config = settings_here()
    (folder / "tiny.py").write_text(CONFIG)
    _, model, params = machine.load_policy(config, config.policy.tokenizer, config.policy.weights)
    train = learn.init(
        params, model, config.learn, config.curriculum, config.pool.slots, machine.make_mesh(config)
    )
    kept = archive.Archive(folder / run.PROGRAMS)
    current = pool.empty(config.pool, kept)
    for number in (0, 1):
        kept.append(made(number, generation=1))
    slots = pool.admit(current, [made(2), made(3, family="adder")], config.pool)
    current.memory = memory.of([1], [memory.skill_code(records.SKILLS[1])], [0.25], [0.125])
    current.win_rate_P[slots[0]], current.regret_P[slots[0]] = 0.5, 0.0625
    pool.note_hint(current, slots[0], dataclasses.replace(made(2), hint="Add two at a time."))
    visits_P = np.zeros(config.pool.slots, np.float32)
    visits_P[slots] = 3, 1
    train = dataclasses.replace(
        train, curriculum=dataclasses.replace(train.curriculum, visits_P=jnp.asarray(visits_P))
    )
    claim.take(folder, config)
    store = checkpoint.Store(folder, config.checkpoint)
    store.save(7, train, loop.to_host(loop.Progress(train=train, pool=current, iteration=7)))
    store.close()
    return folder


def door(name, *arguments):
    return subprocess.run(
        [sys.executable, "-m", f"launch.{name}", *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, timeout=900,
        env={k: v for k, v in os.environ.items() if k != "XLA_FLAGS"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def exported(work):
    done = door(
        "export_pool", f"--config={work / 'tiny.py'}", f"--workdir={work}",
        f"--output={work / 'pool'}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2 environments of step 7, 1 hints" in done.stdout
    return work / "pool"


def test_an_exported_pool_says_what_is_known_of_each_environment(exported, work):
    manifest = json.loads((exported / "manifest.json").read_text())
    first, second = manifest["environments"]
    assert first["statistics"] == {
        "win_rate": 0.5, "regret": 0.0625, "draws": 3.0, "plays": 0.0, "score": 1.0, "leaks": 0.0,
        "blind_wins": 0.0,
    }  # fmt: skip
    assert first["hint"] == "Add two at a time." and second["hint"] is None
    assert second["statistics"]["win_rate"] is None and second["statistics"]["draws"] == 1.0
    assert first["origin"] == {
        "number": 2, "uid": 2, "generation": 2, "family": "", "digest": made(2).digest,
        "alive": True,
    }  # fmt: skip
    assert manifest["provenance"]["step"] == 7
    assert manifest["provenance"]["workdir"] == str(work)
    assert manifest["provenance"]["config"]["mode"] == "'self_play'"


def test_an_exported_pool_is_read_back_with_the_same_programs(exported):
    seeds = library.load(exported, ("compact",), ("train",))
    assert [seed.family for seed in seeds] == ["adder_000003", "compact_000002"]
    back = [library.environment(seed, uid=-1, max_turns=4) for seed in seeds]
    for environment, original in zip(back, (made(3), made(2)), strict=True):
        for name in ("source", "digest", "signature", "skill", "difficulty", "max_turns"):
            assert getattr(environment, name) == getattr(original, name), name


def test_environments_that_left_the_pool_are_exported_where_asked(work):
    current = restored.pool_of(restored.restore(settings_here(), work))
    none_P = np.zeros(len(current.number_P))
    numbers = {
        which: [e.origin["number"] for e in pool_export.entries(current, none_P, none_P, which)]
        for which in pool_export.CHOICES
    }
    assert numbers == {"pool": [2, 3], "remembered": [1, 2, 3], "all": [0, 1, 2, 3]}
    past, remembered = pool_export.entries(current, none_P, none_P, "all")[:2]
    assert past.statistics == {}
    assert remembered.statistics == {"win_rate": 0.25, "regret": 0.125}
    assert not past.origin["alive"]


def test_a_run_trains_on_an_exported_pool(exported, work):
    asked = work / "asked"  # by the evaluations
    asked.mkdir()
    for split in ("train", "held_out"):
        seeds = library.load(ROOT / "experiments/seed_environments", ("compact",), (split,))
        shutil.copy(seeds[0].path, asked)
    done = door(
        "train", f"--config={work / 'tiny.py'}", f"--workdir={work / 'again'}",
        "--config.mode=fixed_pool", f"--config.pool_folder={exported}",
        f"--config.seed_environments={asked}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = (work / "again" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["count/episodes"] == 2 * (3 + 2)


def test_a_run_refuses_a_damaged_pool_by_name(exported, work, tmp_path):
    copy = tmp_path / "pool"
    copy.mkdir()
    (copy / "manifest.json").write_bytes((exported / "manifest.json").read_bytes())
    done = door(
        "train", f"--config={work / 'tiny.py'}", f"--workdir={tmp_path / 'run'}",
        "--config.mode=fixed_pool", f"--config.pool_folder={copy}",
    )  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "compact_000002.py is missing" in done.stderr


def test_a_pool_folder_needs_a_fixed_pool():
    config = quickstart.get_config()
    config.pool_folder = "somewhere"
    with pytest.raises(ValueError, match="Set mode='fixed_pool'"):
        entry.settings_of(config)


def test_the_newest_checkpoint_becomes_a_hugging_face_directory(work):
    done = door(
        "export", f"--config={work / 'tiny.py'}", f"--workdir={work}", f"--output={work / 'hf'}"
    )
    assert done.returncode == 0, done.stderr
    assert "step 7" in done.stdout and (work / "hf" / "adapter_agent").is_dir()
    trained = jax.device_get(restored.restore(settings_here(), work).train.params)
    params, model = load.load(work / "hf")
    assert model.layers == 4 and model.qk_norm
    del trained["head"]  # it is in the adapters
    for path, leaf in jax.tree_util.tree_leaves_with_path(trained):
        found = params
        for key in path:
            found = found[key.key]
        np.testing.assert_array_equal(np.asarray(found), np.asarray(leaf), err_msg=str(path))


@pytest.mark.parametrize("arguments", [(), ("--weights=x.npz", "--workdir=y"), ("--workdir=y",)])
def test_an_export_says_what_it_needs(arguments, tmp_path):
    done = door("export", f"--output={tmp_path / 'hf'}", *arguments)
    told = "--workdir needs the --config" if len(arguments) == 1 else "Give --weights"
    assert done.returncode == 1 and told in done.stderr + done.stdout


def test_the_policy_of_a_checkpoint_plays_and_hints(work, tmp_path):
    program = tmp_path / "total.py"
    program.write_text(broken_programs.COMPACT)
    policy = (f"--config={work / 'tiny.py'}", f"--workdir={work}", "--unsafe_subprocess")
    done = door("play", program, "--policy=plays", "--hint", *policy)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"policy: step 7 of {work}" and lines[1].startswith("total [")
    assert lines[2].startswith("HINT: the first two make") and lines[3].startswith("POLICY: ")
    assert lines[-1].split()[0] == "The"  # how the episode ended
    done = door("play", program, "--policy=hints", *policy)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2].startswith(("HINT: ", "The policy has no hint: "))


def test_a_policy_needs_a_configuration(tmp_path):
    program = tmp_path / "total.py"
    program.write_text(broken_programs.COMPACT)
    done = door("play", program, "--policy=plays")
    assert done.returncode == 2 and "--config together" in done.stderr
