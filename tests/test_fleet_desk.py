"""What the desk of the fleet gives to whom, and what becomes of it when hosts come and go."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses

from sandbox import records
from sandbox.fleet import desk, held, meter

OK = records.Outcome(status="ok", stdout="done")
INFRA = records.Outcome(status="infra", detail="the box died")
LIMITS = records.Limits(wall_seconds=5.0)
REPORT = meter.total([])


class Host:
    """Remembers what it was asked; the test answers."""

    def __init__(self, name: str = "a", **report):
        self.report = dataclasses.replace(
            REPORT, **{"host": name, "tier": "gvisor-ptrace", "boxes": 1, "window": 1} | report
        )
        self.asked: list[tuple[str, tuple, concurrent.futures.Future]] = []
        self.dead = False

    def ask(self, method, *arguments):
        future = concurrent.futures.Future()
        if self.dead:
            future.set_exception(held.HostLost("gone"))
        elif method in ("renew", "release", "farewell"):
            self.asked.append((method, arguments, future))
            future.set_result(self.report)
        else:
            self.asked.append((method, arguments, future))
        return future

    def open(self, method: str) -> list[tuple[tuple, concurrent.futures.Future]]:
        """What waits for an answer."""
        return [(a, f) for m, a, f in self.asked if m == method and not f.done()]

    def die(self) -> None:
        """Fail what is under way, and everything later."""
        self.dead = True
        for _, _, future in self.asked:
            if not future.done():
                future.set_exception(held.HostLost("gone"))


class Office:
    """A desk whose thread is the test."""

    def __init__(self, **hosts: Host):
        self.actions = collections.deque()
        config = desk.FleetConfig(moves=2)
        self.desk = desk.Desk(config, "me", self.actions.append)
        self.join(**hosts)

    def join(self, **hosts: Host) -> None:
        self.desk.court(hosts)
        self.work()

    def work(self) -> None:
        while self.actions:
            self.actions.popleft()()
        self.desk.dispatch()
        if self.actions:
            self.work()

    def run(self, name: str = "program", since: float = 0.0) -> concurrent.futures.Future:
        future = concurrent.futures.Future()
        self.desk.add(
            held.Job(
                method="run",
                arguments=(name,),
                limits=LIMITS,
                future=future,
                since=since,
                deadline=since + 1e9,
            )
        )
        self.work()
        return future

    def open(self) -> held.Seat:
        return held.Seat(number=7, opening={"source": "x"})

    def submit(self, seat: held.Seat, count: int = 1) -> concurrent.futures.Future:
        future = concurrent.futures.Future()
        requests = [{"n": i} for i in range(count)]
        self.desk.submit(held.Batch(seat=seat, requests=requests, future=future, since=0.0))
        self.work()
        return future

    def begin(self, seat: held.Seat) -> None:
        """Have a session answer its first batch."""
        self.submit(seat)
        [(_, answer)] = seat.home.host.open("batch")
        answer.set_result([OK])
        self.work()


def statuses(future) -> list[str]:
    return [outcome.status for outcome in future.result(timeout=0)]


def test_programs_go_to_the_host_with_the_least_to_do_per_box():
    # Room: (window 1 + 1) orders a box. The host of two boxes takes two of the first three.
    small, large = Host("small", boxes=1), Host("large", boxes=2)
    office = Office(small=small, large=large)
    for _ in range(3):
        office.run()
    assert (len(small.open("run")), len(large.open("run"))) == (1, 2)


def test_programs_without_room_wait_here_and_a_host_that_joins_takes_them():
    first, second = Host(), Host("b")
    office = Office(a=first)
    for _ in range(5):
        office.run()
    assert len(first.open("run")) == 2
    office.join(b=second)
    assert (len(first.open("run")), len(second.open("run"))) == (2, 2)
    first.open("run")[0][1].set_result(OK)
    office.work()
    assert len(first.open("run")) == 2


def test_programs_of_a_lost_host_move_and_are_answered_once():
    first, second = Host(boxes=2), Host("b", boxes=4)
    office = Office(a=first)
    futures = [office.run(str(i)) for i in range(3)]
    office.join(b=second)
    first.die()
    office.work()
    moved = second.open("run")
    assert sorted(arguments[0] for arguments, _ in moved) == ["0", "1", "2"]
    for _, future in moved:
        future.set_result(OK)
    office.work()
    assert [future.result(timeout=0) for future in futures] == [OK] * 3
    assert office.desk.losses == held.Losses(hosts=1, moved=3)


def test_what_a_silent_host_says_after_it_was_given_up_is_not_heard():
    first, second = Host(), Host("b")
    office = Office(a=first)
    future = office.run()
    home = office.desk.homes["a"]
    home.asking = True  # a renewal that was never answered
    office.desk.tick(home.heard + office.desk.config.silent_seconds + 1)
    office.join(b=second)
    first.open("run")[0][1].set_result(records.Outcome(status="ok", stdout="late"))
    office.work()
    assert not future.done()
    second.open("run")[0][1].set_result(OK)
    office.work()
    assert future.result(timeout=0) == OK


def test_a_program_that_every_host_fails_is_infra_and_no_failure():
    host = Host()
    office = Office(a=host)
    future = office.run()
    for _ in range(3):  # the first try and two moves
        host.open("run")[0][1].set_result(records.Outcome(status="infra", detail="broken"))
        office.work()
    assert future.result(timeout=0).status == "infra"
    assert "tried 3 times" in future.result().detail and "broken" in future.result().detail


def test_a_session_stays_on_its_host_and_its_batches_go_one_by_one():
    first, second = Host(), Host("b")
    office = Office(a=first, b=second)
    seat = office.open()
    futures = [office.submit(seat, count) for count in (1, 2)]
    home, other = (first, second) if first.open("batch") else (second, first)
    [(arguments, answer)] = home.open("batch")
    assert arguments == ("me", 7, {"source": "x"}, [{"n": 0}])
    answer.set_result([OK])
    office.work()
    [(arguments, answer)] = home.open("batch")
    assert arguments == ("me", 7, None, [{"n": 0}, {"n": 1}])
    answer.set_result([OK, OK])
    office.work()
    assert [statuses(future) for future in futures] == [["ok"], ["ok", "ok"]]
    assert not other.open("batch")


def test_sessions_of_a_lost_host_answer_infra_and_others_go_on():
    first, second = Host(), Host("b")
    office = Office(a=first, b=second)
    seats = [office.open() for _ in range(4)]  # two on each host
    for seat in seats:
        office.begin(seat)
    futures = [office.submit(seat, 3) for seat in seats]
    queued = office.submit(next(seat for seat in seats if seat.home.host is first), 2)
    assert len(first.open("batch")) == len(second.open("batch")) == 2
    first.die()
    for _, answer in second.open("batch"):
        answer.set_result([OK] * 3)
    office.work()
    found = [statuses(future) for future in futures]
    assert found.count(["infra"] * 3) == found.count(["ok"] * 3) == 2
    assert statuses(queued) == ["infra"] * 2
    # 2 sessions with 3 requests under way each, and 2 requests queued behind one of them
    assert office.desk.losses == held.Losses(hosts=1, sessions=2, requests=8)
    lost = next(seat for seat in seats if seat.lost)
    assert statuses(office.submit(lost)) == ["infra"]
    assert office.desk.losses == held.Losses(hosts=1, sessions=2, requests=9)


def test_a_session_that_asks_nothing_any_more_is_no_loss_and_one_that_asks_later_is():
    office = Office(a=Host())
    done, idle = office.open(), office.open()
    for seat in (done, idle):
        office.begin(seat)
    done.home.host.die()
    office.desk.tick(done.home.heard + 5)  # the lease is renewed, and nobody answers
    office.work()
    office.desk.release(done)
    assert office.desk.losses == held.Losses(hosts=1)
    assert statuses(office.submit(idle, 3)) == ["infra"] * 3
    assert office.desk.losses == held.Losses(hosts=1, sessions=1, requests=3)


def test_a_dying_host_that_still_answers_infra_loses_what_began_and_moves_the_rest():
    """The boxes of a host die before its connection does."""
    first, second = Host(), Host("b")
    office = Office(a=first)
    begun, fresh = office.open(), office.open()
    office.begin(begun)
    steps, opening = [office.submit(begun, 2), office.submit(begun)], office.submit(fresh)
    program = office.run()
    office.join(b=second)
    for _, answer in first.open("batch"):
        answer.set_result([INFRA] * (2 if answer is first.open("batch")[0][1] else 1))
    [(_, answer)] = first.open("run")
    answer.set_result(INFRA)
    office.work()
    assert [statuses(future) for future in steps] == [["infra"] * 2, ["infra"]]
    first.die()
    office.work()
    [(arguments, answer)] = second.open("batch")  # as a new session, with its opening
    assert arguments[1] != 7 and arguments[2] == {"source": "x"}
    answer.set_result([OK])
    second.open("run")[0][1].set_result(OK)
    office.work()
    assert (statuses(opening), program.result(timeout=0)) == (["ok"], OK)
    # The first host is not counted: it was not asked after it died.
    assert office.desk.losses == held.Losses(moved=2, sessions=1, requests=3)


def test_what_failed_on_a_host_waits_for_another_that_is_full():
    """A dying host answers at once and would get it again and again."""
    first, second = Host(), Host("b", boxes=4)
    office = Office(a=first, b=second)
    futures = [office.run(str(i)) for i in range(10)]
    assert (len(first.open("run")), len(second.open("run"))) == (2, 8)
    for _, answer in first.open("run"):
        answer.set_result(INFRA)
    office.work()
    assert (len(first.open("run")), len(second.open("run"))) == (0, 8)
    for _, answer in second.open("run"):
        answer.set_result(OK)
    office.work()
    assert len(second.open("run")) == 2
    for _, answer in second.open("run"):
        answer.set_result(OK)
    office.work()
    assert [future.result(timeout=0) for future in futures] == [OK] * 10


def test_the_late_answer_of_a_lost_host_to_a_session_that_moved_is_not_heard():
    first, second = Host(), Host("b")
    office = Office(a=first)
    seat = office.open()
    future = office.submit(seat)
    home = office.desk.homes["a"]
    home.asking = True
    office.desk.tick(home.heard + office.desk.config.silent_seconds + 1)
    office.join(b=second)
    first.open("batch")[0][1].set_result([dataclasses.replace(OK, stdout="late")])
    office.work()
    assert not future.done()
    second.open("batch")[0][1].set_result([OK])
    office.work()
    assert future.result(timeout=0) == [OK]


def test_a_session_without_an_answer_moves_as_a_program_does():
    first, second = Host(), Host("b")
    office = Office(a=first)
    seat = office.open()
    futures = [office.submit(seat, count) for count in (1, 2)]
    office.join(b=second)
    first.die()
    office.work()
    for count in (1, 2):
        [(arguments, answer)] = second.open("batch")
        assert (arguments[2] is None, len(arguments[3])) == (count == 2, count)
        answer.set_result([OK] * count)
        office.work()
    assert [statuses(future) for future in futures] == [["ok"], ["ok", "ok"]]
    assert office.desk.losses == held.Losses(hosts=1, moved=1)


def test_a_session_that_found_no_host_waits_for_one():
    host = Host()
    office = Office()
    seat = office.open()
    future = office.submit(seat)
    office.join(a=host)
    host.open("batch")[0][1].set_result([OK])
    office.work()
    assert statuses(future) == ["ok"]


def test_a_host_that_leaves_gets_nothing_new_keeps_its_sessions_and_is_no_loss():
    first, second = Host(), Host("b")
    office = Office(a=first)
    seat = office.open()
    office.submit(seat)
    office.join(b=second)
    first.report = dataclasses.replace(first.report, leaving=True)
    office.desk.tick(office.desk.homes["a"].heard + 3)  # renews
    office.work()
    office.run(), office.run()
    assert len(second.open("run")) == 2 and not first.open("run")
    first.open("batch")[0][1].set_result([OK])
    office.work()
    office.submit(seat)
    assert len(first.open("batch")) == 1
    first.open("batch")[0][1].set_result([OK])
    office.work()
    office.desk.release(seat)
    first.die()
    office.desk.tick(office.desk.homes["a"].heard + 3)
    office.work()
    assert "a" not in office.desk.homes and office.desk.losses == held.Losses()


def test_a_host_of_another_tier_is_not_used():
    host = Host(tier="subprocess")
    office = Office(a=host)
    office.run()
    assert not office.desk.homes and not host.open("run")
    assert office.desk.refused == {"a": "its tier is subprocess, asked for is gvisor"}


def test_a_host_that_does_not_lend_what_is_asked_for_is_not_used():
    host = Host(packages=("numpy",))
    office = Office()
    office.desk.config = desk.FleetConfig(packages=("numpy", "sympy"))
    office.join(a=host)
    assert office.desk.refused == {"a": "it does not lend sympy"} and not office.desk.homes


def test_what_is_left_of_the_deadline_goes_with_the_program_and_too_little_is_infra():
    # A deadline 30 s after the first request: 12 s later 18 are left, 26 s later less than the 5
    # that the program may run.
    future = concurrent.futures.Future()
    job = held.Job(
        method="run", arguments=(), limits=LIMITS, future=future, since=0.0, deadline=30.0
    )
    assert job.limits_left(12.0).deadline_seconds == 18.0
    office = Office()
    office.desk.add(job)
    office.desk.tick(24.0)
    assert not future.done()
    office.desk.tick(26.0)
    assert future.result(timeout=0).status == "infra" and "deadline" in future.result().detail


def test_a_host_that_comes_back_is_told_that_its_sessions_were_given_up():
    host = Host()
    office = Office(a=host)
    office.submit(office.open())
    host.die()
    office.work()
    host.dead = False
    office.join(a=host)
    renewals = [arguments for method, arguments, _ in host.asked if method == "renew"]
    assert renewals == [("me", True), ("me", True)] and "a" in office.desk.homes


def test_closing_a_session_answers_what_waits_and_tells_the_host():
    host = Host()
    office = Office(a=host)
    seat = office.open()
    futures = [office.submit(seat), office.submit(seat)]
    office.desk.release(seat)
    office.desk.release(seat)
    office.work()
    assert [statuses(future) for future in futures] == [["infra"]] * 2
    assert [m for m, _, _ in host.asked].count("release") == 1
    assert office.desk.losses == held.Losses()


def test_a_program_cancelled_while_it_waits_is_not_sent():
    host = Host()
    office = Office()
    future = office.run()
    assert future.cancel()
    office.join(a=host)
    assert not host.open("run")


def test_without_hosts_work_waits_and_then_answers_infra():
    office = Office()
    early, late = office.run(since=0.0), office.run(since=50.0)
    session = office.submit(office.open())
    office.desk.tick(office.desk.config.join_seconds + 1)
    assert early.result(timeout=0).status == "infra" and not late.done()
    assert statuses(session) == ["infra"]


def test_the_end_answers_everything_and_says_good_bye():
    host = Host()
    office = Office(a=host)
    futures = [office.run() for _ in range(4)]
    session = office.submit(office.open())
    office.desk.end()
    assert [future.result(timeout=0).status for future in futures] == ["infra"] * 4
    assert statuses(session) == ["infra"]
    assert host.asked[-1][:2] == ("farewell", ("me",))
