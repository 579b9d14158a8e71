"""The crew of a host as clients reach it, and a fleet of them in this process, without Ray."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time

import pytest

from sandbox import crew, records
from sandbox.fleet import client, desk, held, host, meter

ECHO = """
class EchoEnv:
    def reset(self, seed=None): return f"seed {seed}", {}
    def step(self, action):
        import time; time.sleep(float(action))
        return action, 0.0, False, False, {}
"""
LOAD = {"op": "load", "play": 0, "seed": 0, "max_turns": 50, "pacing": "respect"}


def step(seconds: float) -> dict:
    return {"op": "step", "play": 0, "action": str(seconds)}


class LocalHost:
    """A host whose loop is a thread of this process."""

    def __init__(self, name: str, folder, lease_seconds: float = 10.0):
        config = crew.CrewConfig(tier="subprocess", boxes=1, state_folder=folder)
        self.crew = host.HostCrew(config, name, lease_seconds)
        self.loop = asyncio.new_event_loop()
        self.lost = False
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def ask(self, method, *arguments):
        if self.lost:
            gone = concurrent.futures.Future()
            gone.set_exception(held.HostLost("unplugged"))
            return gone
        return asyncio.run_coroutine_threadsafe(getattr(self.crew, method)(*arguments), self.loop)

    def say(self, method, *arguments):
        return self.ask(method, *arguments).result(timeout=30)

    def close(self):
        self.say("close")
        self.loop.call_soon_threadsafe(self.loop.stop)


class LocalLink:
    """Finds hosts in a dict that the test changes."""

    def __init__(self, **hosts: LocalHost):
        self.found = hosts

    def hosts(self):
        return {name: found for name, found in self.found.items() if not found.lost}

    def close(self):
        pass


@pytest.fixture
def one(tmp_path):
    made = LocalHost("one", tmp_path, lease_seconds=1.0)
    yield made
    made.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    made = [LocalHost(name, tmp_path_factory.mktemp(name)) for name in ("left", "right")]
    yield made
    for each in made:
        each.close()


@pytest.fixture
def fleet(pair):
    config = desk.FleetConfig(tier="subprocess", waiting=8, renew_seconds=0.2)
    with client.Fleet(LocalLink(left=pair[0], right=pair[1]), config) as made:
        wait_until(lambda: len(made.reports()) == 2)
        yield made


def wait_until(true, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_sessions_of_a_client_that_falls_silent_are_closed_and_say_so(one):
    one.say("renew", "alive", True)
    one.say("renew", "dead", True)
    for name in ("alive", "dead"):
        assert one.say("batch", name, 1, {"source": ECHO}, [LOAD])[0].status == "ok"
    for _ in range(12):
        time.sleep(0.25)
        one.say("renew", "alive", False)
    assert one.say("report").sessions == 1
    assert one.say("batch", "alive", 1, None, [step(0)])[0].status == "ok"
    late = one.say("batch", "dead", 1, None, [step(0), step(0)])
    assert [outcome.status for outcome in late] == ["infra"] * 2 and "lease" in late[0].detail


def test_a_client_that_begins_anew_or_says_good_bye_has_no_sessions(one):
    for ending in (("renew", "me", True), ("farewell", "me")):
        one.say("renew", "me", True)
        one.say("batch", "me", 1, {"source": ECHO}, [LOAD])
        assert one.say("report").sessions == 1
        one.say(*ending)
        assert one.say("report").sessions == 0


def test_a_host_that_leaves_waits_until_every_client_knows_and_nothing_is_left(one):
    one.say("renew", "me", True)
    assert not one.say("vacant")
    one.say("batch", "me", 1, {"source": ECHO}, [LOAD])
    one.say("leave")
    assert not one.say("vacant")  # the client does not know yet
    assert one.say("renew", "me", False).leaving
    assert not one.say("vacant")  # its session is here
    one.say("release", "me", 1)
    assert one.say("vacant")


def test_a_host_counts_what_it_did(one):
    one.say("renew", "me", True)
    one.say("run", "print(1)", "", None)
    one.say("run", "1 / 0", "", None)
    one.say("batch", "me", 1, {"source": ECHO}, [LOAD, step(0.1)])
    told = one.say("report")
    assert (told.answered, told.asked, told.boxes) == (3, 0, 1)
    assert told.outcomes == {"ok": 3, "error": 1}
    assert 0.1 <= told.p99_seconds < 30 and told.p50_seconds <= told.p99_seconds
    assert told.memory_bytes > 1 << 20


def test_a_fleet_answers_as_a_crew_does(fleet):
    assert fleet.run("print(input())", stdin="hello").stdout == "hello\n"
    called = fleet.call("def double(x): return 2 * x", "double", [1, 2])
    assert (called.status, called.value) == ("ok", [2, 4])
    with fleet.open(ECHO) as session:
        outcomes = session.step([LOAD, {"op": "reset", "play": 0, "seed": 5}])
        assert outcomes[1].value["observation"] == "seed 5"
        assert session.host in ("left", "right")
        assert session.step([]) == []
    assert session.step([LOAD])[0].status == "infra"
    with pytest.raises(ValueError, match="hash_seed=9"):
        fleet.open(ECHO, hash_seed=9)
    assert asyncio.run(fleet.run_async("print(3)")).stdout == "3\n"
    assert asyncio.run(fleet.call_async("def one(x): return 1", "one", [0])).value == [1]
    assert fleet.describe() == "2 boxes on 2 hosts of the fleet, subprocess"


def test_results_come_to_who_asked_and_both_hosts_work(fleet):
    futures = [fleet.start_run(f"print({i})") for i in range(24)]  # 8 may wait: this one blocks
    assert [future.result().stdout for future in futures] == [f"{i}\n" for i in range(24)]
    wait_until(lambda: all(report.answered for report in fleet.reports()))


def test_a_lost_host_costs_no_program_and_only_its_own_sessions(pair, fleet):
    sessions = [fleet.open(ECHO) for _ in range(4)]
    for session in sessions:
        assert session.step([LOAD])[0].status == "ok"
    homes = [session.host for session in sessions]
    assert sorted(homes) == ["left", "left", "right", "right"]
    steps = [session.submit([step(1.0)]) for session in sessions]
    programs = [fleet.start_run(f"print({i})") for i in range(4)]
    pair[0].lost = True
    try:
        wait_until(lambda: fleet.losses.hosts == 1)
        found = [future.result()[0].status for future in steps]
        assert [future.result().stdout for future in programs] == [f"{i}\n" for i in range(4)]
    finally:
        pair[0].lost = False
    assert found == ["infra" if home == "left" else "ok" for home in homes]
    assert (fleet.losses.sessions, fleet.losses.requests) == (2, 2)
    wait_until(lambda: len(fleet.reports()) == 2)  # it is found again
    wait_until(lambda: sum(report.sessions for report in fleet.reports()) == 2)


def test_after_close_everything_answers_infra(pair):
    config = desk.FleetConfig(tier="subprocess")
    with client.Fleet(LocalLink(left=pair[0]), config) as fleet:
        session = fleet.open(ECHO)
        session.step([LOAD])
        hung = fleet.start_run("import time; time.sleep(1)")
    assert hung.result(timeout=0).status == "infra"
    assert fleet.run("print(1)").status == "infra"
    assert session.step([LOAD])[0].status == fleet.open(ECHO).step([LOAD])[0].status == "infra"


def test_without_a_host_of_the_tier_the_fleet_says_what_to_do(pair, capfd):
    config = desk.FleetConfig(tier="gvisor", join_seconds=1.0)
    with pytest.raises(
        records.SandboxUnavailable, match=r"left: its tier is subprocess.*sandbox_fleet"
    ):
        client.Fleet(LocalLink(left=pair[0]), config)
    assert "host left is not used" in capfd.readouterr().err


def test_percentiles_are_values_that_were_seen():
    # Ranks of ten values: the 5th holds for half of them, the 10th for 99 of 100.
    values = [10, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert [meter.percentile(values, share) for share in (0.5, 0.9, 0.99)] == [5, 9, 10]
    assert meter.percentile([], 0.5) == 0.0


def test_the_rate_is_that_of_the_last_seconds():
    now = [100.0]
    measured = meter.Meter(clock=lambda: now[0])
    for _ in range(60):
        measured.end(measured.begin(), ["ok"])
    now[0] += 10.0
    assert measured.rate() == 6.0  # 60 in the 10 seconds since the start
    now[0] += 100.0
    assert measured.rate() == 0.0
