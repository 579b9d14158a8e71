"""Refusals end in one paragraph, faults of ours keep their traceback; paths start at the root."""

import errno
import importlib
import importlib.util
import json
import pathlib

import numpy as np
import pytest
from etils import epath

from launch import entry
from spade_jax import config, evaluate, ledger, metrics, settings

ROOT = pathlib.Path(__file__).resolve().parent.parent


def told(fault, capsys):
    """Run something through the door; gives what was printed and checks the exit code."""
    with pytest.raises(SystemExit) as end, entry.one_paragraph():
        fault()
    assert end.value.code == 1
    return capsys.readouterr().err


def test_a_refusal_of_ours_is_one_paragraph(capsys):
    text = told(lambda: metrics.interval(3, 2), capsys)
    assert text.strip() == "ValueError: interval(3, 2): successes must lie in [0, n]."
    assert "checkpoint.every=0" in told(
        lambda: settings.checkpoint.CheckpointConfig(every=0), capsys
    )


@pytest.mark.parametrize(
    "fault",
    [
        lambda: evaluate.paired("01", "011"),  # zip(strict=True) in a frame of ours
        lambda: json.loads("{"),
        lambda: np.zeros(3).reshape(2, 2),
        lambda: int("x"),
    ],
)
def test_a_fault_keeps_its_traceback(fault):
    with pytest.raises(ValueError), entry.one_paragraph():
        fault()


def test_a_raise_outside_the_project_keeps_its_traceback():
    with pytest.raises(ValueError), entry.one_paragraph():
        raise ValueError("of the test")


def raising(error):
    def fault():
        raise error

    return fault


@pytest.mark.parametrize(
    "error", [config.ConfigError("seed=x"), ledger.LedgerError("a"), ledger.DivergedError("b")]
)
def test_errors_of_our_own_classes_are_paragraphs(error, capsys):
    assert told(raising(error), capsys).strip() == f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, "Free disk space"), (errno.EACCES, "permissions"), (errno.EFBIG, "ulimit")],
)
def test_errors_of_the_system_name_a_remedy(number, remedy, capsys):
    text = told(raising(OSError(number, "told by the system", "/x/y")), capsys)
    assert "'/x/y'" in text and remedy in text


def test_an_interrupt_says_how_to_go_on(capsys):
    with pytest.raises(SystemExit) as end, entry.one_paragraph():
        raise KeyboardInterrupt
    assert end.value.code == 130 and "continues" in capsys.readouterr().err


def test_relative_paths_start_at_the_root_of_the_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = settings.RunConfig(
        policy=settings.PolicyConfig(tokenizer="a/t.json", weights="/b/w.npz"),
        corpus=settings.corpus.CorpusConfig(paths=("c.jsonl",)),
    )
    built = entry.settings_of(config.to_config_dict(given))
    assert built.policy.tokenizer == str(ROOT / "a/t.json")
    assert built.policy.weights == "/b/w.npz"
    assert built.seed_environments == str(ROOT / "experiments/seed_environments")
    assert built.corpus.paths == (str(ROOT / "c.jsonl"),)


def test_no_weights_stay_no_weights():
    built = entry.settings_of(config.to_config_dict(settings.RunConfig()))
    assert built.policy.weights == "" and built.corpus is None


def test_a_bucket_that_no_installed_package_reaches_is_told_with_what_to_install(capsys):
    if importlib.util.find_spec("gcsfs"):
        pytest.skip("gcsfs is installed")
    text = told(lambda: epath.Path("gs://bucket/run").mkdir(), capsys)
    assert "install gcsfs" in text and "pip install 'etils[epath-gcs]'" in text
    with pytest.raises(ImportError, match="no_such_module"), entry.one_paragraph():
        importlib.import_module("no_such_module")
