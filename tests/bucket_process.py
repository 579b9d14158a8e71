"""The process of tests/test_bucket.py: checkpoints and programs in a bucket; prints facts."""

import json

import fake_bucket
import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from spade_jax import archive, checkpoint, records

RUN = "gs://bucket/run"
PLACE = "/bucket/run"


def arrays(scale):
    return {"weights": jnp.arange(4096, dtype=jnp.float32) * scale, "step": jnp.int32(scale)}


def equal(found, expected):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, found, expected)))


def store(saves="blocking"):
    return checkpoint.Store(RUN, checkpoint.CheckpointConfig(keep=2, saves=saves))


def checkpoints():
    kept, facts, said = store("async"), {}, []
    for step in (1, 2, 3):
        kept.save(step, arrays(step), {"iteration": step})
    kept.wait()
    facts["steps"] = kept.steps()
    found, host = kept.restore(3, arrays(0))
    facts["whole"] = equal(found, arrays(3)) and host == {"iteration": 3}
    kept.close()
    fake_bucket.Files().rm_file(f"{PLACE}/checkpoints/3/commit_success.txt")  # as a kill leaves it
    kept = store()
    facts["steps without the torn one"] = kept.steps()
    kept.save(3, arrays(4), {"iteration": 3})
    facts["steps written again"] = kept.steps()
    data = "checkpoints/3/arrays/"
    objects = [n for n in fake_bucket.names("bucket") if f"run/{data}" in n and "/d/" in n]
    for name in objects:
        content = fake_bucket.Files().cat_file(f"/bucket/{name}")
        fake_bucket.Files().pipe_file(f"/bucket/{name}", content[: len(content) // 2])
    step, found, _ = kept.restore_newest(arrays(0), said.append)
    facts["fell back to"] = step
    facts["equal"] = equal(found, arrays(2))
    facts["said"] = " ".join(said)
    facts["steps at last"] = kept.steps()
    facts["aside"] = any(n.startswith("run/damaged/3.0/") for n in fake_bucket.names("bucket"))
    kept.close()
    return facts


def programs():
    archive.CHUNK_BYTES = 100  # of lines of some 300 bytes
    path = epath.Path(RUN) / "programs.jsonl"
    kept = archive.Archive(path)
    made = [environment(i) for i in range(3)]
    for one in made:
        kept.append(one)
    kept.sync()
    again = archive.Archive(path, 3)
    facts = {"read back": [again.read(i) for i in range(3)] == made}
    whole = path.read_bytes()
    again.append(environment(3))
    again._file.close()  # the next write breaks off
    try:
        again.sync()
    except ValueError:
        facts["broke off"] = path.read_bytes() == whole
    return facts


def environment(uid):
    return records.Environment(
        uid=uid, source=f"# {uid}\n" * 20, setting="compact", skill="logic", difficulty="easy",
        generation=0, class_name="A", digest="d", max_turns=1,
    )  # fmt: skip


if __name__ == "__main__":
    with fake_bucket.serving():
        print(json.dumps(checkpoints() | programs()))
