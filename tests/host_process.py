"""One process of tests/test_hosts.py: python host_process.py INDEX COUNT PORT FOLDER MOOD."""

import pathlib
import sys
import threading
import time

import jax

from spade_jax import hosts


def main():
    index, count, port, folder, mood = sys.argv[1:]
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_recoverability", True)
    jax.distributed.initialize(f"localhost:{port}", int(count), int(index))
    config = hosts.HostsConfig(silence_seconds=4.0, barrier_seconds=6.0)
    if mood == "late" and index == "1":
        time.sleep(2.5)
    with hosts.Hosts(folder, config) as group:
        for items in (list(range(11)), [0], []):
            made = group.spread(items, lambda share: ["é" * item for item in share], str)
            assert made == ["é" * item for item in items]
        assert group.gather({"from": group.index}) == [{"from": i} for i in range(int(count))]
        group.enter("rollout")
        print("gathered", flush=True)
        if mood == "hangs" and index == "1":
            threading.Event().wait()
        if mood == "waits":
            time.sleep(3)
        if mood == "disk" and index == "0":
            beats = pathlib.Path(folder) / hosts.FOLDER
            beats.rename(beats.with_name("away"))
            time.sleep(2.2)
            beats.with_name("away").rename(beats)
        if mood == "fails" and index == "1":
            raise RuntimeError("this process has a fault")
        group.gather(["again"])
    print("ended", flush=True)


if __name__ == "__main__":
    main()
