"""Record the token lengths of one self-play iteration of the quickstart, for the packing figures.

Command:   python -m experiments.record_lengths OUT.json
Hardware:  2 CPU cores, gVisor; about a minute.
"""

import json
import pathlib
import sys

import numpy as np

from experiments import quickstart
from launch import entry
from spade_jax import generation, loop, machine, pool, records, run, safeguards, seeds, story


def main(out: str) -> None:
    entry.set_up()
    config = entry.settings_of(quickstart.get_config())
    words, model, params = machine.load_policy(
        config, config.policy.tokenizer, config.policy.weights
    )
    with machine.CountedCrew(config.sandbox) as crew:
        world = machine.Machine(config, crew, words, model)
        run.check_prompts(config, world)
        progress = loop.start(config, world, params)
        written = generation.write(progress, world, config, story.Clock(), safeguards.Answer())
        rng = seeds.stream(config.seed, "pool", 0)
        must = pool.unplayed(progress.pool, 0)
        slots = pool.draw(progress.pool, config.rollout.environments, config.pool, rng, must)
        table = [pool.environment(progress.pool, slot) for slot in slots]
        played = loop.play(table, progress, world, config)
    drafts = [len(d.prompt_ids) + len(d.reply.ids) for d in written.drafts]
    plays = [
        sum(len(turn.observed_ids) + len(turn.reply.ids) for turn in e.turns)
        for e in played.episodes
        if e.arm == records.PLAIN
    ]
    kept = {
        "row_tokens": config.batch.row_tokens,
        "rows_multiple": config.batch.rows_multiple,
        "drafts": drafts,
        "plays": plays,
    }
    pathlib.Path(out).write_text(json.dumps(kept) + "\n", encoding="utf-8")
    print(f"{len(drafts)} drafts, {len(plays)} plays, {np.sum(drafts) + np.sum(plays)} tokens")


if __name__ == "__main__":
    main(sys.argv[1])
