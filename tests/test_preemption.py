"""SIGTERM breaks in where the state is whole, waits where it is not, and is never lost."""

import os
import signal

import jax
import jax.numpy as jnp
import pytest

from launch import entry
from spade_jax import preemption


def ask():
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_breaks_in_where_the_state_is_whole():
    with preemption.Notice() as notice:
        notice.hold(lambda: True)
        with pytest.raises(preemption.Preempted):
            ask()
        assert notice.received


def test_a_signal_waits_where_the_state_is_not_whole():
    with preemption.Notice() as notice:
        ask()
        notice.hold(lambda: False) if not notice.received else None
        with pytest.raises(preemption.Preempted):
            notice.check()


def test_a_signal_that_came_before_is_told_at_the_next_hold():
    with preemption.Notice() as notice:
        notice.hold(lambda: False)
        ask()  # during the update
        notice.release()
        with pytest.raises(preemption.Preempted):
            notice.hold(lambda: True)


def test_the_handler_before_is_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with preemption.Notice():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_donated_arrays_are_not_whole():
    state = {"a": jnp.zeros(4), "step": 3}
    assert preemption.intact(state)
    jax.jit(lambda x: x + 1, donate_argnums=0)(state["a"])
    assert not preemption.intact(state)


def test_the_door_ends_with_a_code_of_its_own(capsys):
    with pytest.raises(SystemExit) as end, entry.one_paragraph():
        raise preemption.Preempted("the state is saved")
    assert end.value.code == preemption.EXIT_CODE == 75
    assert "the state is saved" in capsys.readouterr().err
