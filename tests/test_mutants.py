"""The study of mutants breaks programs as it says; a sample of its mutants is refused rightly."""

import collections

import pytest

from experiments import leaking_hints, mutants, mutations
from sandbox import crew as crew_lib
from spade_jax import programs, seed_files, validate

SAMPLE = (  # mutations that need each kind of player and of check, beside tests/broken_programs.py
    "some_seeds", "wrong_answer", "grows", "own_seed", "seed_lost", "no_state", "all_of_none",
    "other_word", "answer_alone", "culprit_shown", "debug_before", "holds_answer",
    "any_letter_wins", "any_call_wins", "done_wins", "task_is_decoration", "other_locals",
)  # fmt: skip
NO_MUTANT = {"no_program", "too_long", validate.SCREENED}  # that need no program, or the policy


def test_every_check_has_mutants_and_there_are_enough():
    made = mutants.generate()
    reasons = collections.Counter(mutant.mutation.reason for mutant in made)
    assert len(made) >= 150 and set(reasons) == set(validate.CHECKS) - NO_MUTANT
    assert len({m.name for m in mutations.mutations()}) == len(mutations.mutations())


def test_a_mutant_is_a_program_with_the_same_class_unless_that_is_what_is_broken():
    broken = ("syntax", "no_env_class")
    for mutant in mutants.generate(copies=1):
        tree = programs.parse(mutant.source)
        assert isinstance(tree, programs.Finding) == (mutant.mutation.reason == "syntax")
        if mutant.mutation.reason not in broken:
            assert programs.environment_class(tree) is not None, mutant.mutation.name


def test_a_sample_of_mutants_is_refused_for_what_is_broken():
    chosen = [m for m in mutants.generate(copies=1) if m.mutation.name in SAMPLE]
    assert len(chosen) == len(SAMPLE)
    config = crew_lib.CrewConfig(tier="subprocess", boxes=2)
    with crew_lib.Crew(config) as crew:
        judged = mutants.judge(chosen, crew, validate.ValidateConfig(wall_seconds=20.0))
    assert mutants.misses(judged) == []
    (rows,) = [line for line in mutants.table(judged).splitlines() if line.startswith("all ")]
    assert rows.split() == ["all", "17", "17", "17"]


@pytest.mark.parametrize("body", ["def hint(self):\n    return 'x'", "size = 3"])
def test_a_derived_program_keeps_its_class_name(body):
    source = "class AEnv(QAEnv):\n    def task(self, rng):\n        return 'q', 1\n"
    tree = programs.parse(mutations.derived(source, body))
    assert programs.environment_class(tree).name == "AEnv"
    assert programs.base_names(programs.environment_class(tree), tree) == ["ASound", "QAEnv"]


def test_hints_that_tell_the_answer_are_kept_back_and_what_is_not_found_is_said():
    forms = {form.name: form for form in leaking_hints.FORMS}
    (seed,) = [s for s in seed_files.read_all(mutants.FOLDER) if s.family == "next_term"]
    with crew_lib.Crew(crew_lib.CrewConfig(tier="subprocess", boxes=2)) as crew:
        for name in ("boxed", "base64", "as a sum"):
            program = leaking_hints.leaking(seed.code, forms[name])
            told = leaking_hints.gate(program, seed.setting, crew, [1, 2])
            assert told.shown == (0 if forms[name].claimed else 2)
            assert told.refused["leaks_answer"] == (2 if forms[name].claimed else 0)
