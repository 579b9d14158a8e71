"""What the desk of the fleet gives to whom; what a loss costs is in test_fleet_loss.py."""

from __future__ import annotations

import concurrent.futures
import dataclasses

import fake_hosts

from sandbox.fleet import desk, held


def test_programs_go_to_the_host_with_the_least_to_do_per_box():
    # Room: (window 1 + 1) orders a box. The host of two boxes takes two of the first three.
    small, large = fake_hosts.Host("small", boxes=1), fake_hosts.Host("large", boxes=2)
    office = fake_hosts.Office(small=small, large=large)
    for _ in range(3):
        office.run()
    assert (len(small.open("run")), len(large.open("run"))) == (1, 2)


def test_programs_without_room_wait_here_and_a_host_that_joins_takes_them():
    first, second = fake_hosts.Host(), fake_hosts.Host("b")
    office = fake_hosts.Office(a=first)
    for _ in range(5):
        office.run()
    assert len(first.open("run")) == 2
    office.join(b=second)
    assert (len(first.open("run")), len(second.open("run"))) == (2, 2)
    first.open("run")[0][1].set_result(fake_hosts.OK)
    office.work()
    assert len(first.open("run")) == 2


def test_a_session_stays_on_its_host_and_its_batches_go_one_by_one():
    first, second = fake_hosts.Host(), fake_hosts.Host("b")
    office = fake_hosts.Office(a=first, b=second)
    seat = office.open()
    futures = [office.submit(seat, count) for count in (1, 2)]
    home, other = (first, second) if first.open("batch") else (second, first)
    [(arguments, answer)] = home.open("batch")
    assert arguments == ("me", 7, {"source": "x"}, [{"n": 0}])
    answer.set_result([fake_hosts.OK])
    office.work()
    [(arguments, answer)] = home.open("batch")
    assert arguments == ("me", 7, None, [{"n": 0}, {"n": 1}])
    answer.set_result([fake_hosts.OK, fake_hosts.OK])
    office.work()
    assert [fake_hosts.statuses(future) for future in futures] == [["ok"], ["ok", "ok"]]
    assert not other.open("batch")


def test_a_host_that_leaves_gets_nothing_new_keeps_its_sessions_and_is_no_loss():
    first, second = fake_hosts.Host(), fake_hosts.Host("b")
    office = fake_hosts.Office(a=first)
    seat = office.open()
    office.submit(seat)
    office.join(b=second)
    first.report = dataclasses.replace(first.report, leaving=True)
    office.desk.tick(office.desk.homes["a"].heard + 3)  # renews
    office.work()
    office.run(), office.run()
    assert len(second.open("run")) == 2 and not first.open("run")
    first.open("batch")[0][1].set_result([fake_hosts.OK])
    office.work()
    office.submit(seat)
    assert len(first.open("batch")) == 1
    first.open("batch")[0][1].set_result([fake_hosts.OK])
    office.work()
    office.desk.release(seat)
    first.die()
    office.desk.tick(office.desk.homes["a"].heard + 3)
    office.work()
    assert "a" not in office.desk.homes and office.desk.losses == held.Losses()


def test_a_host_of_another_tier_is_not_used():
    host = fake_hosts.Host(tier="subprocess")
    office = fake_hosts.Office(a=host)
    office.run()
    assert not office.desk.homes and not host.open("run")
    assert office.desk.refused == {"a": "its tier is subprocess, asked for is gvisor"}


def test_a_host_that_does_not_lend_what_is_asked_for_is_not_used():
    host = fake_hosts.Host(packages=("numpy",))
    office = fake_hosts.Office()
    office.desk.config = desk.FleetConfig(packages=("numpy", "sympy"))
    office.join(a=host)
    assert office.desk.refused == {"a": "it does not lend sympy"} and not office.desk.homes


def test_what_is_left_of_the_deadline_goes_with_the_program_and_too_little_is_infra():
    # A deadline 30 s after the first request: 12 s later 18 are left, 26 s later less than the 5
    # that the program may run.
    future = concurrent.futures.Future()
    job = held.Job(
        method="run",
        arguments=(),
        limits=fake_hosts.LIMITS,
        future=future,
        since=0.0,
        deadline=30.0,
    )
    assert job.limits_left(12.0).deadline_seconds == 18.0
    office = fake_hosts.Office()
    office.desk.add(job)
    office.desk.tick(24.0)
    assert not future.done()
    office.desk.tick(26.0)
    assert future.result(timeout=0).status == "infra" and "deadline" in future.result().detail


def test_closing_a_session_answers_what_waits_and_tells_the_host():
    host = fake_hosts.Host()
    office = fake_hosts.Office(a=host)
    seat = office.open()
    futures = [office.submit(seat), office.submit(seat)]
    office.desk.release(seat)
    office.desk.release(seat)
    office.work()
    assert [fake_hosts.statuses(future) for future in futures] == [["infra"]] * 2
    assert [m for m, _, _ in host.asked].count("release") == 1
    assert office.desk.losses == held.Losses()


def test_a_program_cancelled_while_it_waits_is_not_sent():
    host = fake_hosts.Host()
    office = fake_hosts.Office()
    future = office.run()
    assert future.cancel()
    office.join(a=host)
    assert not host.open("run")


def test_without_hosts_work_waits_and_then_answers_infra():
    office = fake_hosts.Office()
    early, late = office.run(since=0.0), office.run(since=50.0)
    session = office.submit(office.open())
    office.desk.tick(office.desk.config.join_seconds + 1)
    assert early.result(timeout=0).status == "infra" and not late.done()
    assert fake_hosts.statuses(session) == ["infra"]


def test_the_end_answers_everything_and_says_good_bye():
    host = fake_hosts.Host()
    office = fake_hosts.Office(a=host)
    futures = [office.run() for _ in range(4)]
    session = office.submit(office.open())
    office.desk.end()
    assert [future.result(timeout=0).status for future in futures] == ["infra"] * 4
    assert fake_hosts.statuses(session) == ["infra"]
    assert host.asked[-1][:2] == ("farewell", ("me",))
