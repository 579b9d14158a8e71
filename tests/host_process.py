"""One process of tests/test_hosts.py: python host_process.py INDEX COUNT PORT FOLDER MOOD."""

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
    with hosts.Hosts(folder, config) as group:
        items = list(range(11))
        mine = [{"item": item, "text": "é" * item} for item in group.mine(items)]
        joined = group.join(group.gather(mine))
        assert [found["item"] for found in joined] == items
        assert all(found["text"] == "é" * found["item"] for found in joined)
        group.enter("rollout")
        print("gathered", flush=True)
        if mood == "hangs" and index == "1":
            threading.Event().wait()
        if mood == "waits":
            time.sleep(3)
        if mood == "fails" and index == "1":
            raise RuntimeError("this process has a fault")
        group.gather(["again"])
    print("ended", flush=True)


if __name__ == "__main__":
    main()
