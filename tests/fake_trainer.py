"""Stand-in for `launch.train` under a sweep: the same flags and files, and no training.

Each iteration writes one metrics line and a checkpoint of its number, and goes on from there.
`--config.seed=13` fails. While a file `hold` stands beside its folder, iteration 1 waits.
"""

import json
import pathlib
import sys
import time


def main(arguments: list[str]) -> None:
    given = dict(argument.lstrip("-").split("=", 1) for argument in arguments)
    folder = pathlib.Path(given["workdir"])
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "starts", "a") as starts:
        starts.write("start\n")
    seed, iterations = int(given.get("config.seed", 0)), int(given["config.iterations"])
    rate = float(given.get("config.learn.learning_rate", 1.0))
    place = folder / "checkpoint"
    for step in range(int(place.read_text()) if place.exists() else 0, iterations):
        while step == 1 and (folder.parent / "hold").exists():
            time.sleep(0.02)
        if seed == 13:
            sys.exit(3)
        line = {"iteration": step, "rollout/win_rate": rate * (step + 1), "env/regret": seed / 10}
        with open(folder / "metrics.jsonl", "a") as lines:
            lines.write(json.dumps(line) + "\n")
        place.write_text(str(step + 1))
    (folder / "results.json").write_text(json.dumps({"mode": "x", "iterations": iterations}))


if __name__ == "__main__":
    main(sys.argv[1:])
