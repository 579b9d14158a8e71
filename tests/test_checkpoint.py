"""A committed step comes back whole; one that cannot is named, with what to do."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax import checkpoint

ROOT = pathlib.Path(__file__).resolve().parent.parent
SAVES = """
import sys
import jax.numpy as jnp
from spade_jax import checkpoint
store = checkpoint.Store(sys.argv[1], checkpoint.CheckpointConfig(keep=2))
for step in range(1000):
    store.save(step, {"weights": jnp.full(1 << 22, step, jnp.float32)}, {"step": step})
"""
HOST = {"iteration": 3, "win_rate_Z": [0.5, float("nan")], "pool": {"waiting": [], "order": 2}}


def arrays(scale=1.0):
    return {
        "weights": jnp.arange(6, dtype=jnp.float32).reshape(2, 3) * scale,
        "half": jnp.ones(4, jnp.bfloat16),
        "step": jnp.int32(7),
    }


def equal(a, b):
    flat = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in flat)


@pytest.fixture
def store(tmp_path):
    made = checkpoint.Store(tmp_path, checkpoint.CheckpointConfig(keep=2))
    yield made
    made.close()


def test_a_step_comes_back_as_it_was_saved(store):
    store.save(3, arrays(), HOST)
    found, host = store.restore(3, arrays(0.0))
    assert equal(found, arrays())
    assert host["iteration"] == 3 and host["pool"] == HOST["pool"]
    assert host["win_rate_Z"][0] == 0.5 and np.isnan(host["win_rate_Z"][1])


def test_arrays_come_back_on_the_shards_of_the_target(store):
    mesh = jax.make_mesh((2,), ("fsdp",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("fsdp"))
    store.save(1, {"weights": arrays()["weights"]}, HOST)
    found, _ = store.restore(1, {"weights": jax.device_put(arrays()["weights"], split)})
    assert found["weights"].sharding == split
    assert np.array_equal(found["weights"], arrays()["weights"])


def test_the_newest_steps_stay_and_another_program_sees_them(store, tmp_path):
    assert store.steps() == []
    for step in range(4):
        store.save(step, arrays(step), HOST)
    assert store.steps() == [2, 3]
    again = checkpoint.Store(tmp_path, checkpoint.CheckpointConfig(keep=2))
    assert again.steps() == [2, 3]
    assert equal(again.restore(2, arrays())[0], arrays(2))
    again.close()


def test_steps_of_the_period_stay_for_good(tmp_path):
    store = checkpoint.Store(tmp_path, checkpoint.CheckpointConfig(keep=1, keep_period=2))
    for step in range(1, 6):
        store.save(step, arrays(), HOST)
    assert store.steps() == [2, 4, 5]
    store.close()


def truncate(folder: pathlib.Path) -> None:
    """Cut every file of a step to its half, as a full disk or a power cut may."""
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2])


def test_a_damaged_step_is_named_with_the_step_to_continue_from(store, tmp_path):
    store.save(1, arrays(1), HOST)
    store.save(2, arrays(2), HOST)
    truncate(tmp_path / "checkpoints" / "2")
    with pytest.raises(checkpoint.CheckpointError) as caught:
        store.restore(2, arrays())
    folder = tmp_path / "checkpoints" / "2"
    assert f"Remove {folder} to continue from step 1" in str(caught.value)
    assert "restore the configuration" in str(caught.value)
    assert equal(store.restore(1, arrays())[0], arrays(1))


def test_a_damaged_only_step_says_to_start_again(store, tmp_path):
    store.save(1, arrays(), HOST)
    truncate(tmp_path / "checkpoints" / "1")
    with pytest.raises(checkpoint.CheckpointError, match="to start the run again"):
        store.restore(1, arrays())


def test_a_step_of_another_model_is_refused(store):
    store.save(1, arrays(), HOST)
    with pytest.raises(checkpoint.CheckpointError, match="model configuration differs"):
        store.restore(1, arrays() | {"weights": jnp.zeros((3, 3))})


def test_a_step_that_was_never_committed_is_not_listed(tmp_path):
    first = checkpoint.Store(tmp_path, checkpoint.CheckpointConfig())
    first.save(1, arrays(), HOST)
    first.close()
    torn = tmp_path / "checkpoints" / "2.orbax-checkpoint-tmp"
    (torn / "arrays").mkdir(parents=True)
    (torn / "arrays" / "manifest.ocdbt").write_bytes(b"half")
    again = checkpoint.Store(tmp_path, checkpoint.CheckpointConfig())
    assert again.steps() == [1]
    again.save(2, arrays(2), HOST)
    assert equal(again.restore(2, arrays())[0], arrays(2))
    again.close()


def test_a_disk_that_cannot_be_written_is_an_error_with_a_remedy(store, tmp_path):
    store.save(1, arrays(), HOST)
    folder = tmp_path / "checkpoints"
    folder.rename(tmp_path / "aside")
    folder.write_text("a file where the directory was")
    with pytest.raises(checkpoint.CheckpointError, match="Could not save step 2"):
        store.save(2, arrays(), HOST)
    folder.unlink()
    (tmp_path / "aside").rename(folder)


@pytest.mark.parametrize(("field", "value"), [("every", 0), ("keep", 0), ("keep_period", 0)])
def test_a_setting_that_cannot_work_is_refused_with_its_name(field, value):
    with pytest.raises(ValueError, match=f"checkpoint.{field}={value}"):
        checkpoint.CheckpointConfig(**{field: value})


def test_a_damaged_newest_step_is_put_aside_for_the_one_before(store, tmp_path):
    for step in (1, 2):
        store.save(step, arrays(step), HOST | {"iteration": step})
    truncate(tmp_path / "checkpoints" / "2")
    said = []
    step, found, host = store.restore_newest(arrays(), said.append)
    assert (step, host["iteration"]) == (1, 1) and equal(found, arrays(1))
    assert "step 2 cannot be read" in said[0] and "FELL BACK to step 1" in said[1]
    assert store.steps() == [1] and (tmp_path / "damaged" / "2.0").is_dir()
    store.save(2, arrays(5), HOST)  # its number is free again
    assert store.restore_newest(arrays(), said.append)[0] == 2


def test_nothing_is_put_aside_where_no_step_can_be_read(store, tmp_path):
    for step in (1, 2):
        store.save(step, arrays(step), HOST)
    with pytest.raises(checkpoint.CheckpointError, match="step 2"):
        store.restore_newest({"weights": jnp.zeros((3, 3))}, print)
    assert store.steps() == [1, 2] and not (tmp_path / "damaged").exists()


def test_a_number_that_changed_on_disk_is_damage(store, tmp_path):
    store.save(1, arrays(), HOST)
    path = tmp_path / "checkpoints" / "1" / "host" / "metadata"
    path.write_text(
        path.read_text().replace('"order": 2', '"order": 3').replace('"order":2', '"order":3')
    )
    with pytest.raises(checkpoint.CheckpointError, match="digests of host differ"):
        store.restore(1, arrays())


def test_an_async_save_keeps_what_the_state_was_when_it_was_asked_for(tmp_path):
    store = checkpoint.Store(tmp_path, checkpoint.CheckpointConfig(saves="async"))
    step = jax.jit(lambda tree: jax.tree.map(lambda x: x * 0 + 9, tree), donate_argnums=0)
    state, host = {"weights": jnp.arange(1 << 20, dtype=jnp.float32)}, {"list": [1]}
    store.save(1, state, host)
    state = step(state)  # donated while it may still be written
    host["list"].append(2)
    store.wait()
    found, kept = store.restore(1, state)
    assert np.array_equal(found["weights"], np.arange(1 << 20)) and kept == {"list": [1]}
    store.close()


def test_a_reader_removes_nothing_and_sees_what_comes(store, tmp_path):
    store.save(1, arrays(1), HOST)
    reader = checkpoint.Store(tmp_path, checkpoint.CheckpointConfig(keep=1), read_only=True)
    assert reader.steps() == [1]
    store.save(2, arrays(2), HOST)
    torn = tmp_path / "checkpoints" / "7.orbax-checkpoint-tmp"  # the owner may sweep as it starts
    torn.mkdir()
    another = checkpoint.Store(tmp_path, checkpoint.CheckpointConfig(keep=1), read_only=True)
    assert reader.steps() == another.steps() == [1, 2]
    assert equal(another.restore(1, arrays())[0], arrays(1))
    for one in (reader, another):
        one.close()
    assert torn.exists()


def test_a_kill_during_a_save_leaves_the_steps_before_it(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", SAVES, tmp_path],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    folder, deadline = tmp_path / "checkpoints", time.monotonic() + 120
    under_way = []  # folders that are written: 16 MiB take a while
    while not (under_way and (folder / "3").exists()) and time.monotonic() < deadline:
        under_way = list(folder.glob("*.orbax-checkpoint-tmp*"))
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert under_way, "no save was seen under way"
    store = checkpoint.Store(tmp_path, checkpoint.CheckpointConfig(keep=2))
    like = {"weights": jnp.zeros(1 << 22, jnp.float32)}
    newest, found, host = store.restore_newest(like, pytest.fail)
    assert newest >= 3 and host == {"step": newest}
    assert np.array_equal(found["weights"], np.full(1 << 22, newest, np.float32))
    store.save(newest + 1, like, {})  # the number that was being written is free
    store.close()


def test_what_other_threads_say_during_a_save_is_not_lost(store, capsys):
    with pytest.raises(checkpoint.CheckpointError, match="Could not save"):
        with store._told(1):
            print("a process is missing", file=sys.stderr)
            raise OSError("the disk is full")
    assert "a process is missing" in capsys.readouterr().err
