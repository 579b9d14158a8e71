"""Frames and JSON that a hostile box could send."""

from __future__ import annotations

import json
import signal
import struct

import pytest

from sandbox import equality, frames, records, work


def test_frames_survive_any_cut_of_the_stream():
    stream = frames.encode({"event": "a"}, b"one", b"two") + frames.encode({"event": "b"})
    decoder, found = frames.Decoder(), []
    for byte in stream:
        found += decoder.feed(bytes([byte]))
    assert found == [({"event": "a"}, b"onetwo"), ({"event": "b"}, b"")]


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack(">II", 1 << 20, 0),
        struct.pack(">II", 0, 1 << 30),
        struct.pack(">II", 2, 0) + b"[]",
        struct.pack(">II", 2, 0) + b"{}",
        struct.pack(">II", 3, 0) + b"\xff\xfe\xfd",
    ],
)
def test_frames_that_are_none_are_refused(raw):
    with pytest.raises(frames.ProtocolError):
        frames.Decoder().feed(raw)


@pytest.mark.parametrize(
    "raw",
    [b"NaN", b"-Infinity", b"[" * 90000 + b"]" * 90000, b"[" * 200 + b"]" * 200]
    + [b"9" * 20000, b"{", b"\xff", b'{"a": 1} x', b"[1e999]", b'{"a": -1e400}'],
)
def test_strict_json_refuses_what_breaks_judges(raw):
    with pytest.raises(frames.ProtocolError):
        frames.strict_json(raw)


def test_lone_surrogates_are_replaced():
    assert frames.strict_json(b'{"a": ["\\ud800x"]}') == {"a": ["?x"]}


def test_report_with_lengths_that_do_not_fit_is_refused():
    for head in ({"answers": 9}, {"answers": -1}, {"out": 5}, {"answers": True}, {"cpu": "x"}):
        with pytest.raises(frames.ProtocolError):
            work.read_report({"event": "end", **head}, b"abc", 1)


def test_of_millions_of_answer_lines_only_those_of_use_are_cut_out():
    raw = b"x\n" * 5
    report = work.read_report({"event": "end", "answers": len(raw)}, raw, 3)
    assert report.lines == [b"x"] * 3
    report = work.read_report({"event": "end", "answers": 5}, b"x\nx\nx", 3)
    assert report.lines == [b"x"] * 2  # the last line is not complete


def test_an_answer_took_no_longer_than_its_batch():
    line = json.dumps({"i": 0, "s": "ok", "v": {}, "d": "", "w": 1e300}).encode() + b"\n"
    head = {"event": "batch", "answers": len(line), "wall": 0.5}
    [outcome] = work.read_answers(work.read_report(head, line, 2), "t")
    assert outcome.wall_seconds == 0.5


def end(status: int, err: str = "", charged: float = 0.0) -> str:
    raw = err.encode()
    head = {"event": "end", "status": int(status), "err": len(raw), "cpu": charged}
    return work.end_status("run", work.read_report(head, raw, 1), 0, 2.0)[0]


def test_a_program_cannot_pass_its_own_end_off_as_that_of_a_limit():
    assert end(signal.SIGXCPU, charged=0.1) == end(signal.SIGKILL, charged=0.1) == "crash"
    assert end(signal.SIGXCPU, charged=2.0) == end(signal.SIGKILL, charged=2.0) == "timeout"
    code = work.MEMORY_FAILED << 8
    assert (end(code), end(code, "  File x\nMemoryError\n")) == ("error", "memory")


@pytest.mark.parametrize(
    "told",
    [
        {"i": 1, "s": "ok", "v": {}, "d": "", "c": 0.0, "w": 0.0},
        {"i": 0, "s": "great", "v": {}, "d": "", "c": 0.0, "w": 0.0},
        {"i": 0, "s": "infra", "v": None, "d": "", "c": 0.0, "w": 0.0},
        {"i": 0, "s": "ok", "v": None, "d": "", "c": 0.0, "w": 0.0},
        {"i": 0, "s": "ok", "v": {}, "d": 5, "c": 0.0, "w": 0.0},
        [],
    ],
)
def test_an_answer_that_does_not_fit_its_request_is_none(told):
    assert work.read_answer(json.dumps(told).encode(), 0, "t") is None


@pytest.mark.parametrize(
    ("answer", "expected", "equal"),
    [(1, 1, True), (True, 1, False), (14.0, 14, False), ("14", 14, False), ([1], [1, 2], False)]
    + [({"a": 1}, {"a": 1}, True), ({"a": 1}, {"a": True}, False), (None, None, True)]
    + [({"unreadable": "x"}, None, False)],
)
def test_equality_is_strict_in_types(answer, expected, equal):
    assert equality.same(answer, expected) is equal


def test_tolerance_holds_for_floats_only_where_asked():
    assert not equality.same(0.1 + 0.2, 0.3)
    assert equality.same([0.1 + 0.2], [0.3], tolerance=1e-9)
    assert not equality.same(1, 1.0, tolerance=1e-9)


def test_limits_must_be_positive():
    with pytest.raises(ValueError, match="wall_seconds"):
        records.Limits(wall_seconds=0)
