"""Everything that evolves is in a checkpoint; whoever adds something must say where it goes."""

import ast
import dataclasses
import pathlib

from spade_jax import archive, learn, loop, pool

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Attributes of the objects that live as long as a run, and what a resume needs of each.
MACHINE = {
    "config": "constant", "model": "constant", "mesh": "constant", "words": "constant",
    "chat": "constant", "domain": "constant",
    "sampler": "compiled programs only",
    "corpus": "place in the stream: Progress.corpus",
    "crew": "processes; its count goes into Progress.totals",
    "group": "the other processes of this run; all hold the same Progress",
    "_here": "this process's copy of Progress.train.params, gathered anew where it is another",
}  # fmt: skip
CREW = {"_limits": "constant", "_crew": "processes"}
SAMPLER = {  # constants, and the shapes that were compiled
    "config", "end_ids", "max_length", "batch_buckets", "prompt_buckets", "prefill_rows",
    "refill_share", "rows", "steps", "weight_bits", "cache_bits", "text_of", "shapes",
}  # fmt: skip
PROGRESS = {
    "train", "pool", "iteration", "generation", "next_uid", "corpus", "quota_Z", "win_rate_Z",
    "totals", "evaluations", "health", "windows",
}  # fmt: skip
TRAIN = {"params", "opt_state", "curriculum", "reference", "step"}
POOL = {  # record of a pool -> the fields of pool.Pool that come back from it
    "programs": {"archive"},
    "columns": set(pool._COLUMNS) - {"generation_P", "skill_P"},
    "hints": {"hints"},
    "memory": {"memory"},
    "waiting": {"waiting"},
}
OF_PROGRAMS = {"generation_P", "skill_P", "known"}  # looked up in the archive
HOW = (
    "is new. If it evolves, put it into loop.Progress (to_host and from_host) or learn.TrainState, "
    "so that a resumed run has it; then add it here."
)


def attributes(path, name):
    """Names that a class sets on `self`."""
    tree = ast.parse((ROOT / path).read_text())
    found = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    return {
        node.attr
        for node in ast.walk(found)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and getattr(node.value, "id", "") == "self"
    }


def fields(cls):
    return {field.name for field in dataclasses.fields(cls)}


def test_objects_that_live_as_long_as_a_run_hold_no_unknown_state():
    for path, name, known in (
        ("spade_jax/machine.py", "Machine", MACHINE),
        ("spade_jax/machine.py", "ProgramCrew", CREW),
        ("spade_jax/policy/sampler.py", "Sampler", SAMPLER),
    ):
        assert not attributes(path, name) - set(known), f"an attribute of {name} {HOW}"


def test_progress_and_the_train_state_hold_no_unknown_state():
    assert fields(loop.Progress) == PROGRESS, f"a field of loop.Progress {HOW}"
    assert fields(learn.TrainState) == TRAIN, f"a field of learn.TrainState {HOW}"


def test_every_field_of_progress_is_in_the_record_of_a_checkpoint(tmp_path):
    kept = archive.Archive(tmp_path / "programs.jsonl")
    progress = loop.Progress(train=None, pool=pool.empty(pool.PoolConfig(slots=2), kept))
    host = loop.to_host(progress)
    assert set(host) == PROGRESS - {"train"}
    assert set(host["pool"]) == set(POOL)
    assert set(host["pool"]["columns"]) == POOL["columns"]
    assert set().union(*POOL.values()) | OF_PROGRAMS == fields(pool.Pool), (
        f"a field of pool.Pool {HOW}"
    )
    assert loop.to_host(loop.from_host(None, host, kept.path)) == host


def test_rooms_keep_no_state_between_calls():
    """No module of the package has a variable that code assigns with `global`."""
    for path in sorted((ROOT / "spade_jax").rglob("*.py")):
        tree = ast.parse(path.read_text())
        assert not [n for n in ast.walk(tree) if isinstance(n, (ast.Global, ast.Nonlocal))], path
