"""What a user can get wrong or run out of ends in one paragraph with a remedy, through the door."""

import ctypes
import os
import pathlib
import resource
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = '''"""Say the last letter.

family: {name}
skill: Pattern Recognition
setting: compact
kind: single_turn
split: {split}
"""


class LastEnv(QAEnv):
    def task(self, rng):
        letters = rng.sample("abcd", 4)
        return letters, max(letters)
'''
EXPERIMENT = """
from spade_jax import config, corpus, settings
from spade_jax.policy import transformer

MODEL = transformer.ModelConfig(
    vocab_size=300, layers=1, width=16, heads=2, kv_heads=1, head_dim=8, mlp_width=16
)


def get_config(arg=""):
    run = config.to_config_dict(settings.RunConfig(policy=settings.PolicyConfig(model=MODEL)))
    run.mode = "fixed_pool"
    run.iterations = 0
    run.seed_environments = {programs!r}
    run.sandbox.tier = "subprocess"
    run.sandbox.boxes = 1
    run.warmstart.lessons.variants = run.warmstart.lessons.plays = 1
    run.warmstart.vocabulary = 300
    run.warmstart.supervised.steps = 0
    run.evaluate.instances = run.evaluate.held_out_instances = 1
    run.pool.slots = 4
    run.rollout.environments = run.rollout.seeds = 1
    run.rollout.plays, run.rollout.hinted_plays = 2, 0
    run.rollout.context_tokens, run.rollout.max_tokens = 64, 4
    run.batch.row_tokens = 64
    if arg:
        run.corpus = config.to_config_dict(corpus.CorpusConfig(paths=(arg,)))
    return run
"""


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment")
    (folder / "programs").mkdir()
    for split in ("train", "held_out"):
        text = PROGRAM.format(name=f"last_{split}", split=split)
        (folder / "programs" / f"{split}.py").write_text(text)
    path = folder / "tiny.py"
    path.write_text(EXPERIMENT.format(programs=str(folder / "programs")))
    return path


@pytest.fixture(scope="module")
def begun(experiment, tmp_path_factory):
    """The work directory of a run with one checkpoint."""
    workdir = tmp_path_factory.mktemp("begun") / "run"
    done = train(experiment, workdir)
    assert done.returncode == 0, done.stderr
    assert "What this run did" in done.stdout
    return workdir


def train(config, workdir, *flags, environment=None, **options):
    """Run the door on one device, from another directory than the project's."""
    own = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | {"PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "launch.train", f"--config={config}", f"--workdir={workdir}"]
    return subprocess.run(
        [*line, *flags], cwd="/", env=own | (environment or {}), capture_output=True, text=True,
        timeout=300, **options,
    )  # fmt: skip


def told(done):
    """The only paragraph that the door printed, after it failed as it should."""
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stderr.strip().rpartition("\n")[2]


def copied(begun, tmp_path):
    return pathlib.Path(shutil.copytree(begun, tmp_path / "run"))


def test_a_work_directory_that_cannot_be_made(experiment, tmp_path):
    (tmp_path / "file").touch()
    text = told(train(experiment, tmp_path / "file" / "run"))
    assert "file/run" in text and "name another path" in text


def test_a_work_directory_without_permission(experiment, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o555)

    def heed_permissions():  # as root does not, unless it gives the capability up
        drop_from_bounding_set, dac_override = 24, 1
        ctypes.CDLL(None).prctl(drop_from_bounding_set, dac_override, 0, 0, 0)

    done = train(experiment, tmp_path / "locked" / "run", preexec_fn=heed_permissions)
    assert "PermissionError" in told(done) and "permissions" in told(done)


def test_no_gvisor(experiment, tmp_path):
    nowhere = {"PATH": str(tmp_path), "RUNSC_PATH": ""}
    done = train(experiment, tmp_path / "run", "--config.sandbox.tier=gvisor", environment=nowhere)
    assert "runsc (gVisor) is not installed" in told(done) and "RUNSC_PATH" in told(done)
    assert not (tmp_path / "run" / "config.json").exists()  # the directory is nobody's yet


def test_an_empty_corpus(experiment, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    text = told(train(f"{experiment}:{tmp_path}/empty.jsonl", tmp_path / "run"))
    assert "no usable document" in text and "launch.build_corpus" in text
    assert not (tmp_path / "run" / "config.json").exists()


def test_another_configuration_in_a_begun_directory(experiment, begun):
    text = told(train(experiment, begun, "--config.seed=7"))
    assert "seed = 0 then, 7 now" in text and "--workdir" in text


def test_a_damaged_checkpoint(experiment, begun, tmp_path):
    workdir = copied(begun, tmp_path)
    for path in (workdir / "checkpoints" / "0" / "arrays").rglob("*"):
        if path.is_file():
            path.write_bytes(b"\0" * path.stat().st_size)
    text = told(train(experiment, workdir, "--config.iterations=1"))
    assert "step 0" in text and f"Remove {workdir}/checkpoints" in text


def test_a_full_disk(experiment, begun, tmp_path):
    """A limit on the size of files stands for it: a checkpoint does not fit, a line does."""
    workdir = copied(begun, tmp_path)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (12288, 12288))

    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}  # the limit cuts its files too
    done = train(experiment, workdir, "--config.iterations=1", environment=cache, preexec_fn=limit)
    text = told(done)
    assert "Could not save" in text and "Free disk space" in text
    assert (workdir / "checkpoints" / "0").is_dir()
    done = train(experiment, workdir, "--config.iterations=1")
    assert done.returncode == 0, done.stderr
