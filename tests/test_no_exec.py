"""Outside the boxes (`sandbox/guest`), no code turns text or bytes into running code."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FILES = sorted(
    path
    for folder in ("spade_jax", "launch", "experiments", "sandbox")
    for path in (ROOT / folder).rglob("*.py")
    if "seed_environments" not in path.parts and "guest" not in path.parts
)
CALLS = {"exec", "eval", "compile", "__import__", "execfile"}
MODULES = {
    "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "code", "codeop",
    "runpy", "imp", "joblib",
}  # fmt: skip
NAMES = {  # attributes and imported names that load code or unpickle, whoever owns them
    "import_module", "exec_module", "load_module", "module_from_spec", "spec_from_file_location",
    "spec_from_loader", "SourceFileLoader", "SourcelessFileLoader", "FunctionType", "CodeType",
    "read_pickle", "exec", "eval", "__import__",
}  # fmt: skip


def offences(source: str) -> list[str]:
    """List what a file does that could run text: direct calls, modules, attributes, pickles."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and node.id in CALLS:
            found.append(node.id)
        elif isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").split(".")[0]
            found += [base] if base in MODULES else []
            found += [alias.name for alias in node.names if alias.name in NAMES]
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            found.append(node.attr)
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            if not (isinstance(node.value, ast.Constant) and node.value.value is False):
                found.append("allow_pickle")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_runs_text_or_unpickles_bytes(path):
    assert offences(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "exec('x')", "f = eval", "compile(s, 'f', 'exec')", "import pickle", "import dill as d",
        "from pickle import loads", "import importlib; importlib.import_module(n)",
        "from importlib import import_module", "__import__('os')", "np.load(f, allow_pickle=True)",
        "import builtins; builtins.exec(t)", "import runpy", "spec.loader.exec_module(m)",
    ],
)  # fmt: skip
def test_the_test_sees_each_way(source):
    assert offences(source)


def test_what_only_reads_syntax_is_allowed():
    assert offences("import ast\nimport re\nast.parse(s)\nre.compile(p)\njit.compile()") == []


def test_guest_modules_are_read_as_text_and_never_imported():
    guests = {path.stem for path in (ROOT / "spade_jax").rglob("guest/*.py")}
    assert guests >= {"qa_env", "tool_use_base_env", "bfcl_env"}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not guests & {alias.name.split(".")[-1] for alias in node.names}, path
            elif isinstance(node, ast.ImportFrom):
                named = {alias.name for alias in node.names} | {(node.module or "").split(".")[-1]}
                assert not guests & named, path
