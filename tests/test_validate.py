"""Each check refuses what breaks it, for its own reason; sound programs pass."""

import collections
import dataclasses
import pathlib
import re

import broken_programs
import pytest

from sandbox import crew as crew_lib
from sandbox import records as sandbox_records
from spade_jax import domains, fingerprints, neighbours, programs, records, seed_files, validate

SEED_FOLDER = pathlib.Path(__file__).parents[1] / "experiments" / "seed_environments"
QUICK = validate.ValidateConfig(wall_seconds=6.0)


@pytest.fixture(scope="module")
def crew():
    with crew_lib.Crew(crew_lib.CrewConfig(tier="subprocess", boxes=2)) as started:
        yield started


def draft(source: str | None, uid: int = 1) -> records.Draft:
    return records.Draft(
        uid=uid,
        generation=3,
        skill=records.SKILLS[0],
        difficulty="easy",
        prompt_ids=(),
        reply=records.Reply(ids=(), logps=(), stopped=True),
        text=source or "",
        source=source,
        version=0,
    )


@pytest.mark.parametrize(("setting", "program"), broken_programs.SOUND)
def test_sound_programs_are_accepted(crew, setting, program):
    (found,) = validate.validate([draft(program)], crew, domains.get(setting), QUICK)
    assert isinstance(found, records.Environment), found
    assert found.setting == setting and found.generation == 3 and found.difficulty == "easy"
    assert found.class_name.endswith("Env") and 1 <= found.max_turns <= 25
    assert found.similarity == 0.0


@pytest.mark.parametrize("setting", ["games", "compact", "tool_use"])
def test_each_broken_program_is_refused_for_its_own_reason(crew, setting):
    cases = [case for case in broken_programs.BROKEN if case[2][0] == setting]
    drafts = [draft(program, uid) for uid, (_, _, (_, program)) in enumerate(cases)]
    verdicts = validate.examine(drafts, crew, domains.get(setting), QUICK)
    found = {
        name: verdict.finding.reason if verdict.finding else "accepted"
        for (name, _, _), verdict in zip(cases, verdicts, strict=True)
    }
    assert found == {name: reason for name, reason, _ in cases}
    for verdict in verdicts:
        assert verdict.checks[verdict.finding.reason] == "fail"
        assert list(verdict.checks) == list(validate.CHECKS)


def test_every_check_has_a_program_that_breaks_it():
    covered = {reason for _, reason, _ in broken_programs.BROKEN} | {"duplicate"}
    assert covered == set(validate.CHECKS) - {validate.SCREENED}  # no program: tests/test_screen.py


@pytest.mark.parametrize(
    "name",
    [name for name in validate.SWITCHABLE if name not in ("duplicate", "criteria_error")],
)
def test_a_check_that_is_off_refuses_nothing(crew, name):
    setting, program = next(case[2] for case in broken_programs.BROKEN if case[1] == name)
    config = dataclasses.replace(QUICK, off=(name,))
    (verdict,) = validate.examine([draft(program)], crew, domains.get(setting), config)
    assert verdict.checks[name] == "off"
    assert verdict.finding is None or verdict.finding.reason != name


def test_all_seed_environments_are_accepted(crew):
    refused = {}
    seeds = seed_files.read_all(SEED_FOLDER)
    for setting in ("compact", "games", "tool_use"):
        chosen = [seed for seed in seeds if seed.setting == setting]
        drafts = [draft(seed.code, uid) for uid, seed in enumerate(chosen)]
        verdicts = validate.examine(drafts, crew, domains.get(setting), validate.ValidateConfig())
        for seed, verdict in zip(chosen, verdicts, strict=True):
            if verdict.finding:
                refused[seed.family] = f"{verdict.finding.reason}: {verdict.finding.detail}"
    assert len(seeds) >= 60 and refused == {}


def test_the_same_program_in_other_words_is_a_duplicate(crew):
    renamed = broken_programs.COMPACT.replace("xs", "numbers").replace("total", "add up")
    other = broken_programs.COMPACT.replace("sum(xs)", "sum(xs) - 1")
    drafts = [draft(p, uid) for uid, p in enumerate((broken_programs.COMPACT, renamed, other))]
    first, second, third = validate.validate(drafts, crew, domains.get("compact"), QUICK)
    assert isinstance(first, records.Environment)
    assert (second.uid, second.reason) == (1, "duplicate")
    verdicts = validate.examine(drafts[:2], crew, domains.get("compact"), QUICK)
    checks = verdicts[1].checks  # the copy did not run
    assert checks["syntax"] == "pass" and checks["duplicate"] == "fail"
    assert checks["load_error"] == checks["degenerate"] == "not reached"
    assert isinstance(third, records.Environment) and 0.5 < third.similarity < 1.0


def test_a_broken_first_copy_does_not_make_the_second_a_duplicate(crew):
    leak = broken_programs.COMPACT.replace('f"total {xs}"', 'f"total {xs} ({sum(xs)})"')
    drafts = [draft(p, uid) for uid, p in enumerate((leak, leak, broken_programs.COMPACT))]
    found = validate.validate(drafts, crew, domains.get("compact"), QUICK)
    assert [getattr(f, "reason", "accepted") for f in found] == [
        "answer_visible",
        "answer_visible",
        "accepted",
    ]


def test_many_copies_of_one_broken_program_run_once(crew):
    counting = CountingCrew(crew)
    loop = broken_programs.GAME.replace("self.turns += 1", "return None")
    drafts = [draft(loop, uid) for uid in range(12)]
    found = validate.validate(drafts, counting, domains.get("games"), QUICK)
    assert [(f.uid, f.reason) for f in found] == [(uid, "contract") for uid in range(12)]
    assert len(counting.messages) == 1


def test_pool_members_make_duplicates_without_running_anything():
    tree = programs.parse(broken_programs.COMPACT)
    known = neighbours.Neighbours()
    neighbours.add(known, 0, fingerprints.digest(tree), fingerprints.signature(tree))
    (found,) = validate.validate(
        [draft(broken_programs.COMPACT)], None, domains.get("compact"), QUICK, known
    )
    assert found.reason == "duplicate"


def test_one_draft_costs_two_processes_and_few_messages(crew):
    counting = CountingCrew(crew)
    for _ in range(2):
        counting.messages.clear()
        validate.validate([draft(broken_programs.COMPACT)], counting, domains.get("compact"), QUICK)
        assert sum(counting.messages.values()) <= 28
    assert len(counting.messages) == 2


class CountingCrew:
    """A crew that counts sessions and messages."""

    def __init__(self, crew):
        self.crew = crew
        self.messages = collections.Counter()

    def open(self, *arguments, **keywords):
        session = self.crew.open(*arguments, **keywords)
        step, name = session.step, len(self.messages)
        self.messages[name] = 0

        def counted(requests):
            self.messages[name] += 1
            return step(requests)

        session.step = counted
        return session


def test_processes_are_counted_once_a_program_without_those_that_the_sandbox_lost(crew):
    class Losing(CountingCrew):
        def open(self, *arguments, **keywords):
            if len(self.messages) == 1:  # the second process of the first try
                self.messages["lost"] = 1
                return ScriptedCrew(sandbox_records.Outcome(status="infra", detail="gone"))
            return super().open(*arguments, **keywords)

    drafts = [draft(broken_programs.GAME), draft(broken_programs.GAME), draft("import os")]
    config = dataclasses.replace(QUICK, off=("duplicate",))
    for boxes in (crew, Losing(crew)):
        verdicts = validate.examine(drafts, boxes, domains.get("games"), config)
        assert [verdict.processes for verdict in verdicts] == [2, 0, 0]


class ScriptedCrew:
    """A crew whose sessions answer every request with one outcome."""

    def __init__(self, outcome):
        self.outcome = outcome
        self.opened = 0

    def open(self, *arguments, **keywords):
        self.opened += 1
        return self

    def step(self, requests):
        return [self.outcome] * len(requests)

    def close(self):
        pass


def test_a_fault_of_the_sandbox_is_tried_again_and_is_no_refusal():
    broken = ScriptedCrew(sandbox_records.Outcome(status="infra", detail="the box is gone"))
    (found,) = validate.validate([draft(broken_programs.GAME)], broken, domains.get("games"), QUICK)
    assert found.reason == validate.INFRA and validate.INFRA not in validate.CHECKS
    assert broken.opened == 2


@pytest.mark.parametrize(("cpu_seconds", "opened"), [(0.5, 2), (9.0, 1)])
def test_a_program_that_hardly_ran_is_tried_again_and_refused_if_late_twice(cpu_seconds, opened):
    outcome = sandbox_records.Outcome(status="timeout", cpu_seconds=cpu_seconds, wall_seconds=10.0)
    late = ScriptedCrew(outcome)
    (found,) = validate.validate([draft(broken_programs.GAME)], late, domains.get("games"), QUICK)
    assert found.reason == "timeout" and late.opened == opened


def test_an_environment_is_judged_within_the_turns_of_play(crew):
    setting, program = broken_programs.SOUND[0]
    for turns in (1, 2, 99):
        config = dataclasses.replace(QUICK, max_turns=turns, off=("unwinnable", "degenerate"))
        (found,) = validate.validate([draft(program)], crew, domains.get(setting), config)
        assert found.max_turns <= min(turns, domains.get(setting).max_turns)


@pytest.mark.parametrize(
    "value",
    [None, [], {}, {"observation": 3}, {"observation": "x", "reward": "1", "terminated": "no"},
     {"observation": "x", "reward": 1e999, "terminated": True, "truncated": False}],
)  # fmt: skip
def test_a_forged_answer_is_refused_and_raises_nothing(value):
    forging = ScriptedCrew(sandbox_records.Outcome(status="ok", value=value))
    (found,) = validate.validate(
        [draft(broken_programs.GAME)], forging, domains.get("games"), QUICK
    )
    assert found.reason == "contract"


def test_instances_are_drawn_per_program_so_that_none_can_foresee_them(crew):
    seen = []

    class Watching(CountingCrew):
        def open(self, *arguments, **keywords):
            seen.append(keywords["seed"])
            return super().open(*arguments, **keywords)

    for program in (broken_programs.COMPACT, broken_programs.COMPACT.replace("99", "98")):
        validate.validate([draft(program)], Watching(crew), domains.get("compact"), QUICK)
    assert seen[0] == seen[1] != seen[2] == seen[3]


@pytest.mark.parametrize(
    ("field", "value"), [("off", ("load_error",)), ("seeds", 1), ("max_turns", 0)]
)
def test_a_config_that_cannot_work_says_what_to_do(field, value):
    with pytest.raises(ValueError, match=re.escape(f"validate.{field}")):
        validate.ValidateConfig(**{field: value})
