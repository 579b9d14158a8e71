"""When a shared box is worn, and what replaces it."""

from __future__ import annotations

import subprocess
import sys
import time
import types

import pytest

from sandbox import canary, crew, keeper, records, work

GROW = "import sys; input(); x = bytearray(64 << 20); print('grown', flush=True); input()"


class Box:
    """A box that answers every canary with one text."""

    def __init__(self, process=None, says='{"left": [], "seconds": 0.004}'):
        self.process, self.says, self.tier = process, says, "gvisor-ptrace"
        self.given, self.born, self.promised_bytes = 0, time.monotonic(), 0
        self.canaries = 0

    def add(self, program):
        self.given += 1
        self.canaries += 1
        work.resolve(program.future, records.Outcome(status="ok", stdout=self.says))


def watcher(**changes) -> keeper.Keeper:
    """A keeper of no boxes, asked by hand."""
    pool = types.SimpleNamespace(boxes=[], scale=1.0)
    made = keeper.Keeper(pool, crew.CrewConfig(**changes))
    made.close()
    return made


def test_a_box_is_worn_after_its_programs_or_at_its_age():
    keep, box = watcher(recycle_programs=5, recycle_seconds=100.0), Box()
    assert keep._worn(box, memory_due=False) == ""
    box.given = 5
    assert keep._worn(box, memory_due=False) == "programs"
    box.given, box.born = 0, time.monotonic() - 101
    assert keep._worn(box, memory_due=False) == "age"


def test_a_box_that_grew_beyond_what_its_programs_asked_for_is_worn():
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", GROW],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        keep, box = watcher(recycle_growth_bytes=32 << 20), Box(process)
        assert keep._worn(box, memory_due=True) == ""
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "grown\n"
        box.promised_bytes = 64 << 20  # a program that may hold as much is running
        assert keep._worn(box, memory_due=True) == ""
        box.promised_bytes = 0
        assert keep._worn(box, memory_due=True) == "memory"
        process.stdin.write("\n")


def test_a_canary_goes_in_after_many_programs_and_what_it_finds_ends_the_box(capsys):
    keep, box = watcher(recycle_programs=10_000), Box()
    assert keep._worn(box, memory_due=False) == "" and box.canaries == 0
    box.given += keeper.CANARY_PROGRAMS
    assert keep._worn(box, memory_due=False) == "" and box.canaries == 1
    assert keep._worn(box, memory_due=False) == "" and box.canaries == 1
    box.given += keeper.CANARY_PROGRAMS
    box.says = '{"left": ["somebodys_file"], "seconds": 0.004}'
    assert keep._worn(box, memory_due=False) == "canary"
    assert "somebodys_file" in capsys.readouterr().err


def test_canaries_move_the_scale_of_limits_half_way():
    # The loop takes twice the reference: from 1 half way to 2.
    keep, box = watcher(), Box(says=f'{{"left": [], "seconds": {2 * canary.REFERENCE_SECONDS}}}')
    keep._worn(box, memory_due=False)
    box.given += keeper.CANARY_PROGRAMS
    keep._worn(box, memory_due=False)
    assert keep._pool.scale == pytest.approx(1.5)


def test_an_old_box_is_replaced_behind_a_spare_and_no_program_is_lost(tmp_path):
    config = crew.CrewConfig(tier="subprocess", boxes=1, recycle_seconds=0.5, state_folder=tmp_path)
    with crew.Crew(config) as boxes:
        first = boxes.boxes[0]
        job = boxes.start_run("import time; time.sleep(5); print('kept')")
        deadline = time.monotonic() + 60
        while boxes.boxes[0] is first:
            assert time.monotonic() < deadline
            time.sleep(0.05)
            assert boxes.boxes[0].ready.done(), "a cold box was put in place"
        assert job.result().stdout == "kept\n"
        assert boxes.recycled["age"] >= 1
