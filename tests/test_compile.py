"""The door that compiles for a slice which is not there."""

import json
import subprocess
import sys

import pytest

from launch import aot, chips, hlo


def run_door(*arguments):
    command = [sys.executable, "-m", "launch.compile", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


def test_update_compiles_for_a_slice_without_a_tpu():
    pytest.importorskip("libtpu", reason="libtpu holds the TPU compiler: pip install -e '.[tpu]'")
    done = run_door("--config=experiments/quickstart.py", "--topology=v5e:2x2", "--json")
    assert done.returncode == 0, done.stderr[-2000:]
    report, decoding = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    assert (decoding["program"], decoding["devices"]) == ("decode chunk", 4)
    assert decoding["memory"]["cache"] > 0
    assert (report["devices"], report["mesh"]["fsdp"], report["rows"]) == (4, 4, 4)
    # Parameters and both moments in float32, a quarter on each chip; norms and heads are whole.
    assert report["memory"]["optimiser"] == pytest.approx(2 * report["memory"]["parameters"], 0.01)
    assert report["memory"]["parameters"] >= report["parameters"]
    line = report["roofline"]
    assert 1 < line["matrix_flops"] / report["model_flops"] < 2
    assert report["compiler_flops"] < line["matrix_flops"]  # loop bodies once
    assert not line["unknown"]
    assert {"all-gather"} <= set(line["exchanges"])


def test_moments_wait_in_host_memory_where_asked():
    pytest.importorskip("libtpu", reason="libtpu holds the TPU compiler: pip install -e '.[tpu]'")
    door = ("--config=experiments/quickstart.py", "--topology=v5e:2x2", "--json")
    door = (*door, "--program=update")
    done = run_door(*door, "--config.learn.state_memory=pinned_host")
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["host_bytes"] == pytest.approx(2 * report["memory"]["parameters"], 0.01)
    assert report["memory"]["optimiser"] < 1000  # the count of steps


def test_unknown_topology_is_told_in_one_paragraph():
    with pytest.raises(ValueError, match="chip 'v9' is unknown"):
        chips.parse("v9:2x2")
    with pytest.raises(ValueError, match="as in v5e:16x16"):
        chips.parse("v5e:")


KEPT = """HloModule m

%body (p: (s32[], f32[6,8,4], f32[6,4,4], f32[8,4])) -> (s32[], f32[6,8,4], f32[6,4,4], f32[8,4]) {
  %p = (s32[], f32[6,8,4]{2,1,0}, f32[6,4,4]{2,1,0}, f32[8,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %stack = f32[6,8,4]{2,1,0} get-tuple-element(%p), index=1
  %weights = f32[6,4,4]{2,1,0} get-tuple-element(%p), index=2
  %x = f32[8,4]{1,0} get-tuple-element(%p), index=3
  %zero = s32[] constant(0)
  %row = f32[1,8,4]{2,1,0} bitcast(%x)
  %put = f32[6,8,4]{2,1,0} dynamic-update-slice(%stack, %row, %i, %zero, %zero)
  %y = f32[8,4]{1,0} tanh(%x)
  ROOT %t = (s32[], f32[6,8,4]{2,1,0}, f32[6,4,4]{2,1,0}, f32[8,4]{1,0}) tuple(%next, %put, \
%weights, %y)
}

%less (q: (s32[], f32[6,8,4], f32[6,4,4], f32[8,4])) -> pred[] {
  %q = (s32[], f32[6,8,4]{2,1,0}, f32[6,4,4]{2,1,0}, f32[8,4]{1,0}) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %six = s32[] constant(6)
  ROOT %c = pred[] compare(%j, %six), direction=LT
}

ENTRY %main (a: (s32[], f32[6,8,4], f32[6,4,4], f32[8,4])) -> s32[] {
  %a = (s32[], f32[6,8,4]{2,1,0}, f32[6,4,4]{2,1,0}, f32[8,4]{1,0}) parameter(0)
  %w = (s32[], f32[6,8,4]{2,1,0}, f32[6,4,4]{2,1,0}, f32[8,4]{1,0}) while(%a), condition=%less, \
body=%body, metadata={op_name="jit(update)/jvp()/while"}
  ROOT %n = s32[] get-tuple-element(%w), index=0
}
"""


def test_what_a_forward_loop_stacks_counts_as_activations_and_weights_do_not():
    assert aot.kept_bytes(hlo.parse(KEPT), layers=6) == 6 * 8 * 4 * 4
