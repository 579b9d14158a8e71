"""A finished run prints its table or goes on; evaluation only loads; rows must fit prompts."""

import dataclasses
import json
import types

import pytest

from spade_jax import claim, domains, machine, records, run, settings
from spade_jax.policy import chat, tokenizer

CONFIG = settings.RunConfig(
    iterations=4, mode="fixed_pool", mesh=settings.MeshConfig(data=8)
)  # on the devices that the tests simulate
RESULTS = {
    "mode": "fixed_pool", "seed": 0, "iterations": 4, "supervised_steps": 0, "tier": "gvisor",
    "totals": {"programs": 3, "episodes": 5}, "evaluations": [], "learnable": [], "validity": [],
    "regret": [],
}  # fmt: skip


class Started(Exception):
    """The run went past its table."""


@pytest.fixture
def finished(tmp_path, monkeypatch):
    def start(_):
        raise Started

    monkeypatch.setattr(machine, "ProgramCrew", start)
    claim.take(tmp_path, CONFIG)
    (tmp_path / run.RESULTS).write_text(json.dumps(RESULTS))
    return tmp_path


def test_a_finished_run_prints_its_table(finished):
    said = []
    assert run.run(CONFIG, str(finished), said.append) == RESULTS
    assert "What this run did" in said[0]


@pytest.mark.parametrize("text", ["", '{"mode": "fixed_p', "[]", "{}", "\0\0"])
def test_damaged_results_are_named_with_the_way_out(finished, text):
    (finished / run.RESULTS).write_text(text)
    with pytest.raises(ValueError, match=r"results.json is damaged .*Remove it"):
        run.run(CONFIG, str(finished), print)


def test_a_finished_run_goes_on_where_more_iterations_are_asked_for(finished):
    with pytest.raises(Started):
        run.run(dataclasses.replace(CONFIG, iterations=6), str(finished), print)


def test_leftovers_of_another_configuration_are_not_used(finished):
    with pytest.raises(claim.config.ConfigError, match="seed = 0 then, 1 now"):
        run.run(dataclasses.replace(CONFIG, seed=1), str(finished), print)


def test_rows_hold_the_longest_prompt_and_a_draft():
    words = tokenizer.Tokenizer.train(
        ["a b c"], vocab_size=300, extra_tokens=(*records.SKILLS, *records.DIFFICULTIES)
    )
    world = types.SimpleNamespace(domain=domains.get("compact"), chat=chat.Chat(words))
    given = settings.RunConfig()
    with pytest.raises(ValueError, match="batch.row_tokens=161") as told:
        run.check_prompts(with_rows(given, given.design.max_tokens + 1), world)
    least = int(str(told.value).rstrip(".").rpartition(" ")[2])
    run.check_prompts(with_rows(given, least), world)
    with pytest.raises(ValueError):
        run.check_prompts(with_rows(given, least - 1), world)


def with_rows(given, tokens):
    return dataclasses.replace(
        given,
        batch=dataclasses.replace(given.batch, row_tokens=tokens),
        rollout=dataclasses.replace(given.rollout, context_tokens=64),
    )
