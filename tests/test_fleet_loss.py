"""What becomes of programs and sessions when a host of the fleet is lost, fails or falls silent."""

from __future__ import annotations

import dataclasses

import fake_hosts

from sandbox import records
from sandbox.fleet import held


def test_programs_of_a_lost_host_move_and_are_answered_once():
    first, second = fake_hosts.Host(boxes=2), fake_hosts.Host("b", boxes=4)
    office = fake_hosts.Office(a=first)
    futures = [office.run(str(i)) for i in range(3)]
    office.join(b=second)
    first.die()
    office.work()
    moved = second.open("run")
    assert sorted(arguments[0] for arguments, _ in moved) == ["0", "1", "2"]
    for _, future in moved:
        future.set_result(fake_hosts.OK)
    office.work()
    assert [future.result(timeout=0) for future in futures] == [fake_hosts.OK] * 3
    assert office.desk.losses == held.Losses(hosts=1, moved=3)


def test_what_a_silent_host_says_after_it_was_given_up_is_not_heard():
    first, second = fake_hosts.Host(), fake_hosts.Host("b")
    office = fake_hosts.Office(a=first)
    future = office.run()
    home = office.desk.homes["a"]
    home.asking = True  # a renewal that was never answered
    office.desk.tick(home.heard + office.desk.config.silent_seconds + 1)
    office.join(b=second)
    first.open("run")[0][1].set_result(records.Outcome(status="ok", stdout="late"))
    office.work()
    assert not future.done()
    second.open("run")[0][1].set_result(fake_hosts.OK)
    office.work()
    assert future.result(timeout=0) == fake_hosts.OK


def test_a_program_that_every_host_fails_is_infra_and_no_failure():
    host = fake_hosts.Host()
    office = fake_hosts.Office(a=host)
    future = office.run()
    for _ in range(3):  # the first try and two moves
        host.open("run")[0][1].set_result(records.Outcome(status="infra", detail="broken"))
        office.work()
    assert future.result(timeout=0).status == "infra"
    assert "tried 3 times" in future.result().detail and "broken" in future.result().detail


def test_sessions_of_a_lost_host_answer_infra_and_others_go_on():
    first, second = fake_hosts.Host(), fake_hosts.Host("b")
    office = fake_hosts.Office(a=first, b=second)
    seats = [office.open() for _ in range(4)]  # two on each host
    for seat in seats:
        office.begin(seat)
    futures = [office.submit(seat, 3) for seat in seats]
    queued = office.submit(next(seat for seat in seats if seat.home.host is first), 2)
    assert len(first.open("batch")) == len(second.open("batch")) == 2
    first.die()
    for _, answer in second.open("batch"):
        answer.set_result([fake_hosts.OK] * 3)
    office.work()
    found = [fake_hosts.statuses(future) for future in futures]
    assert found.count(["infra"] * 3) == found.count(["ok"] * 3) == 2
    assert fake_hosts.statuses(queued) == ["infra"] * 2
    # 2 sessions with 3 requests under way each, and 2 requests queued behind one of them
    assert office.desk.losses == held.Losses(hosts=1, sessions=2, requests=8)
    lost = next(seat for seat in seats if seat.lost)
    assert fake_hosts.statuses(office.submit(lost)) == ["infra"]
    assert office.desk.losses == held.Losses(hosts=1, sessions=2, requests=9)


def test_a_session_that_asks_nothing_any_more_is_no_loss_and_one_that_asks_later_is():
    office = fake_hosts.Office(a=fake_hosts.Host())
    done, idle = office.open(), office.open()
    for seat in (done, idle):
        office.begin(seat)
    done.home.host.die()
    office.desk.tick(done.home.heard + 5)  # the lease is renewed, and nobody answers
    office.work()
    office.desk.release(done)
    assert office.desk.losses == held.Losses(hosts=1)
    assert fake_hosts.statuses(office.submit(idle, 3)) == ["infra"] * 3
    assert office.desk.losses == held.Losses(hosts=1, sessions=1, requests=3)


def test_a_dying_host_that_still_answers_infra_loses_what_began_and_moves_the_rest():
    """The boxes of a host die before its connection does."""
    first, second = fake_hosts.Host(), fake_hosts.Host("b")
    office = fake_hosts.Office(a=first)
    begun, fresh = office.open(), office.open()
    office.begin(begun)
    steps, opening = [office.submit(begun, 2), office.submit(begun)], office.submit(fresh)
    program = office.run()
    office.join(b=second)
    for _, answer in first.open("batch"):
        answer.set_result([fake_hosts.INFRA] * (2 if answer is first.open("batch")[0][1] else 1))
    [(_, answer)] = first.open("run")
    answer.set_result(fake_hosts.INFRA)
    office.work()
    assert [fake_hosts.statuses(future) for future in steps] == [["infra"] * 2, ["infra"]]
    first.die()
    office.work()
    [(arguments, answer)] = second.open("batch")  # as a new session, with its opening
    assert arguments[1] != 7 and arguments[2] == {"source": "x"}
    answer.set_result([fake_hosts.OK])
    second.open("run")[0][1].set_result(fake_hosts.OK)
    office.work()
    assert (fake_hosts.statuses(opening), program.result(timeout=0)) == (["ok"], fake_hosts.OK)
    # The first host is not counted: it was not asked after it died.
    assert office.desk.losses == held.Losses(moved=2, sessions=1, requests=3)


def test_what_failed_on_a_host_waits_for_another_that_is_full():
    """A dying host answers at once and would get it again and again."""
    first, second = fake_hosts.Host(), fake_hosts.Host("b", boxes=4)
    office = fake_hosts.Office(a=first, b=second)
    futures = [office.run(str(i)) for i in range(10)]
    assert (len(first.open("run")), len(second.open("run"))) == (2, 8)
    for _, answer in first.open("run"):
        answer.set_result(fake_hosts.INFRA)
    office.work()
    assert (len(first.open("run")), len(second.open("run"))) == (0, 8)
    for _, answer in second.open("run"):
        answer.set_result(fake_hosts.OK)
    office.work()
    assert len(second.open("run")) == 2
    for _, answer in second.open("run"):
        answer.set_result(fake_hosts.OK)
    office.work()
    assert [future.result(timeout=0) for future in futures] == [fake_hosts.OK] * 10


def test_the_late_answer_of_a_lost_host_to_a_session_that_moved_is_not_heard():
    first, second = fake_hosts.Host(), fake_hosts.Host("b")
    office = fake_hosts.Office(a=first)
    seat = office.open()
    future = office.submit(seat)
    home = office.desk.homes["a"]
    home.asking = True
    office.desk.tick(home.heard + office.desk.config.silent_seconds + 1)
    office.join(b=second)
    first.open("batch")[0][1].set_result([dataclasses.replace(fake_hosts.OK, stdout="late")])
    office.work()
    assert not future.done()
    second.open("batch")[0][1].set_result([fake_hosts.OK])
    office.work()
    assert future.result(timeout=0) == [fake_hosts.OK]


def test_a_session_without_an_answer_moves_as_a_program_does():
    first, second = fake_hosts.Host(), fake_hosts.Host("b")
    office = fake_hosts.Office(a=first)
    seat = office.open()
    futures = [office.submit(seat, count) for count in (1, 2)]
    office.join(b=second)
    first.die()
    office.work()
    for count in (1, 2):
        [(arguments, answer)] = second.open("batch")
        assert (arguments[2] is None, len(arguments[3])) == (count == 2, count)
        answer.set_result([fake_hosts.OK] * count)
        office.work()
    assert [fake_hosts.statuses(future) for future in futures] == [["ok"], ["ok", "ok"]]
    assert office.desk.losses == held.Losses(hosts=1, moved=1)


def test_a_session_that_found_no_host_waits_for_one():
    host = fake_hosts.Host()
    office = fake_hosts.Office()
    seat = office.open()
    future = office.submit(seat)
    office.join(a=host)
    host.open("batch")[0][1].set_result([fake_hosts.OK])
    office.work()
    assert fake_hosts.statuses(future) == ["ok"]


def test_a_host_that_comes_back_is_told_that_its_sessions_were_given_up():
    host = fake_hosts.Host()
    office = fake_hosts.Office(a=host)
    office.submit(office.open())
    host.die()
    office.work()
    host.dead = False
    office.join(a=host)
    renewals = [arguments for method, arguments, _ in host.asked if method == "renew"]
    assert renewals == [("me", True), ("me", True)] and "a" in office.desk.homes
