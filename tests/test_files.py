"""A work directory may be a bucket: nothing of a run but the sandbox makes plain file calls on it.

The bucket is fsspec's file system in memory under the name s3://. A plain file call on such a path
would make a folder `s3:` in the current directory, or find nothing.
"""

import dataclasses
import json

import fsspec
import numpy as np
import pytest
from etils import epath
from fsspec.implementations import memory

from spade_jax import claim, config, files, hosts, jobs, machine, metrics, run, settings
from spade_jax.policy import tokenizer, transformer, weights
from spade_jax.suites import sheet, suite


class Bucket(memory.MemoryFileSystem):
    protocol = "s3"
    store: dict = {}
    pseudo_dirs = [""]

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(str(path).replace("s3://", "memory://"))


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    fsspec.register_implementation("s3", Bucket, clobber=True)
    monkeypatch.chdir(tmp_path)
    yield epath.Path("s3://bucket/run")
    assert list(tmp_path.iterdir()) == []
    Bucket.store.clear()
    Bucket.pseudo_dirs[:] = [""]


def test_a_file_is_replaced_whole_on_both(bucket, tmp_path_factory):
    for folder in (bucket, files.at(tmp_path_factory.mktemp("local"))):
        folder.mkdir(parents=True, exist_ok=True)
        files.replace(folder / "a.txt", "one\ntwo\nto")
        files.replace(folder / "a.txt", "one\ntwo\nthr")
        assert files.whole_lines(folder / "a.txt") == ["one", "two"]
        assert files.whole_lines(folder / "b.txt") == []
        assert [path.name for path in folder.iterdir()] == ["a.txt"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    folder = files.at(tmp_path)
    files.replace(folder / "a.txt", "old")

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.replace(folder / "a.txt", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_the_heart_of_a_process_beats_in_a_bucket(bucket):
    with hosts.Hosts(bucket, hosts.HostsConfig()) as group:
        group.enter("rollout")
        (bucket / hosts.FOLDER).mkdir(parents=True)
        group._beat(3)
    beat = json.loads((bucket / hosts.FOLDER / "0.json").read_text())
    assert (beat["beats"], beat["room"]) == (3, "rollout")


def test_relative_folders_become_absolute_and_buckets_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(files.at("runs/a")) == f"{tmp_path}/runs/a"
    assert str(files.at("s3://bucket/run")) == "s3://bucket/run"


def test_a_configuration_claims_a_bucket(bucket):
    bucket.mkdir(parents=True)
    begun = settings.RunConfig()
    assert claim.compare(bucket, begun) == []
    claim.take(bucket, begun)
    with pytest.raises(config.ConfigError, match="seed = 0 then, 3 now"):
        claim.compare(bucket, dataclasses.replace(begun, seed=3))
    moved = claim.compare(bucket, dataclasses.replace(begun, mesh=settings.MeshConfig(fsdp=2)))
    assert moved == ["mesh.fsdp"]


def test_metrics_and_samples_go_on_in_a_bucket(bucket):
    writer = metrics.MetricWriter(bucket, resume_step=-1)
    for iteration in range(3):
        writer.write(iteration, {"rollout/win_rate": iteration / 4}, f"said {iteration}")
    writer.close()
    writer = metrics.MetricWriter(bucket, resume_step=0)  # killed after the checkpoint of 0
    writer.write(1, {"rollout/win_rate": 0.75}, "again")
    writer.close()
    lines = metrics.read_metrics(bucket / "metrics.jsonl")
    assert [(x["iteration"], x["rollout/win_rate"]) for x in lines] == [(0, 0.0), (1, 0.75)]
    assert (bucket / "samples" / "000001.txt").read_text() == "again\n"
    assert not (bucket / "samples" / "000002.txt").exists()
    assert len(list((bucket / "tensorboard").iterdir())) == 2


def test_a_policy_is_written_to_a_bucket_and_read_from_it(bucket):
    words = tokenizer.Tokenizer.train(["a b c"], vocab_size=300)
    model = transformer.ModelConfig(
        vocab_size=300, layers=1, width=16, heads=2, kv_heads=1, head_dim=8, mlp_width=16
    )
    params = transformer.init(model, run.jax.random.key(0))
    bucket.mkdir(parents=True)
    with files.written(bucket / run.warmstart.TOKENIZER) as local:
        words.save(local)
    with files.written(bucket / run.POLICY) as local:
        weights.save(local, params, model)
    found, found_model, loaded = run.load_policy(settings.RunConfig(), bucket)
    assert found_model == model and found.encode("a b") == words.encode("a b")
    assert np.array_equal(loaded["embed"], params["embed"])
    with pytest.raises(FileNotFoundError, match="s3://bucket/no.json"):
        machine.load_policy(settings.RunConfig(), "s3://bucket/no.json", "s3://bucket/no.npz")


def test_evaluations_are_kept_in_a_bucket(bucket):
    given = suite.Suite(
        name="quiz", tasks=("a", "b"), settings={},
        score=lambda _, tasks: (suite.Result(task=task, answers="1") for task in tasks),
    )  # fmt: skip
    folder = bucket / jobs.FOLDER / "000003"
    sheet.Sheet(folder, given, {}).add(suite.Result(task="b", answers="0"))
    score = jobs.score_suite(given, None, folder, {}, lambda _: None)
    jobs.write_summary(bucket, 3, [score])
    assert "| 3 | 50.0%" in jobs.write_table(bucket, "")
    assert json.loads((bucket / jobs.FOLDER / "000003.json").read_text())["iteration"] == 3
