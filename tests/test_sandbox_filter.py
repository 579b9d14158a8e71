"""The system-call filter, read by a small machine for classic BPF."""

from __future__ import annotations

import pytest

from sandbox.guest import confine

ALLOW, REFUSE, MISSING, KILL = 0x7FFF0000, 0x50001, 0x50026, 0x80000000
MACHINES = sorted(confine.NUMBERS)


def answer(machine: str, number: int, *arguments: int, arch: int | None = None) -> int:
    """What the filter says to a call with its first arguments; the others are 0."""
    own, denied, guarded = confine.numbers(machine)
    code = confine.filter_program(own, denied, guarded)
    words = {4: own if arch is None else arch, 0: number}
    words |= {16 + 8 * i: value for i, value in enumerate((*arguments, *[0] * 6)[:6])}
    place, held = 0, 0
    while True:
        kind, if_true, if_false, operand = code[place]
        assert 0 <= if_true < 256 and 0 <= if_false < 256
        if kind == 0x06:
            return operand
        if kind == 0x20:
            held, holds = words[operand], False
        else:
            tests = {0x15: held == operand, 0x35: held >= operand, 0x45: bool(held & operand)}
            holds = tests[kind]
        place += 1 + (if_true if holds else if_false)


@pytest.mark.parametrize("machine", MACHINES)
def test_denied_calls_are_refused_and_all_others_pass(machine):
    _, denied, guarded = confine.numbers(machine)
    assert len(set(denied)) == len(confine.DENIED) and not set(denied) & set(guarded)
    for number in range(470):
        if number not in (*guarded, confine.CLONE3):
            assert answer(machine, number) == (REFUSE if number in denied else ALLOW), number


@pytest.mark.parametrize("machine", MACHINES)
def test_clone_passes_only_without_namespaces(machine):
    clone = confine.NUMBERS[machine][1]
    assert answer(machine, clone, 17) == ALLOW  # SIGCHLD: a plain fork
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert answer(machine, clone, 17 | flag) == REFUSE
    assert answer(machine, confine.CLONE3) == MISSING  # libc falls back to clone


@pytest.mark.parametrize("machine", MACHINES)
def test_guarded_calls_are_refused_for_their_arguments_only(machine):
    calls = dict(zip(confine.GUARDED, confine.numbers(machine)[2], strict=True))
    cases = [
        ("mmap", (0, 4096, 3, 0x22), (0, 4096, 3, 0x21)),  # anonymous: private, shared
        ("mmap", (0, 4096, 3, 0x01), (0, 4096, 3, 0x23)),  # a file shared; anonymous, validated
        ("fcntl", (1, 3), (1, 1031)),
        ("setsockopt", (3, 1, 2), (3, 1, 7)),  # SO_REUSEADDR, SO_SNDBUF
        ("setsockopt", (3, 6, 8), (3, 1, 8)),  # number 8 of TCP, SO_RCVBUF
        ("setrlimit", (7, 1), (4, 1)),  # RLIMIT_NOFILE, RLIMIT_CORE
        ("prlimit64", (0, 7), (0, 4)),
    ]
    for name, passes, refused in cases:
        assert answer(machine, calls[name], *passes) == ALLOW, (name, passes)
        assert answer(machine, calls[name], *refused) == REFUSE, (name, refused)


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_another_machine_kill_and_x32_numbers_are_refused(machine):
    assert answer(machine, 1, arch=1) == KILL
    assert answer(machine, 0x40000000 | 1) == REFUSE
