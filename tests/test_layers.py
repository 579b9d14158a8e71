"""Imports point down the layers, doors alone read flags, and files keep the house limits."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = ("spade_jax", "launch", "sandbox", "experiments")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

# Low to high. What no layer names is furniture: helpers that any room may use.
LAYERS = {
    "ground": (
        *("records", "config", "seeds", "programs"),
        *("fingerprints", "seed_files", "pool_files", "library"),
    ),
    "furniture": (
        *("corpus", "checkpoint", "metrics", "safeguards"),
        *("domains", "policy"),
    ),
    "rooms": (
        *("design", "validate", "screen", "hint", "pool", "rollout", "review", "batch"),
        *("credit", "advantages", "curriculum", "objectives", "wages", "learn"),
    ),
    "corridors": (
        *(
            "settings",
            "crews",
            "machine",
            "ledger",
            "story",
            "figures",
            "generation",
            "screening",
            "reviewing",
            "answering",
        ),
        *("warmstart", "loop", "evaluate", "run", "closing"),
        *("suites", "jobs", "restored", "pool_export", "seat"),
    ),
}
ORDER = list(LAYERS)
# What a room may import of its own layer; other rooms import none. `learn` is one jitted program in
# several files.
NEIGHBOURS = {
    "advantages": {"credit"},
    "curriculum": {"credit"},
    "wages": {"batch", "credit", "advantages", "curriculum"},
    "learn": {"batch", "credit", "curriculum", "objectives", "wages"},
}


def python_files(*folders):
    return [
        path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not {"seed_environments", "data"} & set(path.parts)
    ]


def imported(path):
    """Full names of what a file imports, `from a import b` read as a.b."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = list(path.relative_to(ROOT).parts[: -node.level]) if node.level else []
            module = ".".join([*package, *([node.module] if node.module else [])])
            names += [f"{module}.{alias.name}" for alias in node.names]
    return names


def room(name):
    """The part of a full name that stands in LAYERS: spade_jax.policy.sampler -> policy."""
    parts = name.split(".")
    return parts[1] if parts[0] == "spade_jax" and len(parts) > 1 else None


def layer(part):
    return next((name for name in ORDER if part in LAYERS[name]), "furniture")


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", python_files("spade_jax"), ids=name_of)
def test_imports_point_down(path):
    here = room(name_of(path))
    for name in imported(path):
        assert name.split(".")[0] not in ("launch", "experiments"), f"{name} is a door"
        there = room(name)
        if None in (here, there) or here == there:
            continue
        if layer(here) == layer(there) == "rooms":
            assert there in NEIGHBOURS.get(here, ()), f"room {here} imports room {there}"
        else:
            above = ORDER.index(layer(there)) > ORDER.index(layer(here))
            assert not above, f"{here} imports {there}, which is above it"


@pytest.mark.parametrize("path", python_files("sandbox"), ids=name_of)
def test_sandbox_knows_nothing_of_the_project(path):
    above = {"spade_jax", "launch", "experiments"}
    assert not [name for name in imported(path) if name.split(".")[0] in above]


def test_ray_is_imported_by_one_file_only():
    files = python_files("spade_jax", "sandbox", "launch", "experiments")
    users = [name_of(p) for p in files if any(n.split(".")[0] == "ray" for n in imported(p))]
    assert users == ["sandbox.fleet.cluster"]


def test_flags_are_read_by_doors_only():
    for path in python_files("spade_jax", "sandbox"):
        names = imported(path)
        assert not [name for name in names if name.startswith("absl.") and "logging" not in name]
        assert not [name for name in names if "config_flags" in name], path


def test_environment_variables_are_read_by_doors_and_the_sandbox_only():
    for path in python_files("spade_jax", "experiments"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "attr", getattr(node, "id", ""))
            assert name not in ("environ", "getenv", "environb"), f"{path}:{node.lineno}"


@pytest.mark.parametrize("path", python_files(*OURS, "tests"), ids=name_of)
def test_files_and_functions_are_short(path):
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_FILE_LINES
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    }
    assert not long


def undocumented(body, prefix=""):
    """Public classes, and public functions of more than five lines, without a docstring."""
    for node in body:
        named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if not named or node.name.startswith("_"):
            continue
        is_class = isinstance(node, ast.ClassDef)
        if not ast.get_docstring(node) and (is_class or node.end_lineno - node.lineno >= 5):
            yield prefix + node.name
        if is_class:
            yield from undocumented(node.body, f"{node.name}.")


@pytest.mark.parametrize("path", python_files("spade_jax", "sandbox", "launch"), ids=name_of)
def test_what_is_public_says_what_it_does(path):
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree) or not tree.body
    assert not list(undocumented(tree.body))
