"""One process of an update over several: python multihost_worker.py ADDRESS PROCESSES INDEX OUT.

Writes the parameters that the sampler of this process would get, and the report.
"""

import sys

import jax
import numpy as np


def main(address: str, processes: int, index: int, out: str) -> None:
    if processes > 1:
        jax.distributed.initialize(address, num_processes=processes, process_id=index)
    import small_update

    from spade_jax.policy import sharding

    mesh = small_update.mesh_of(fsdp=2, tensor=2)
    made = small_update.make(*small_update.iteration(), mesh=mesh, fresh={0: 0, 1: 0, 2: 0})
    state, report = small_update.step(small_update.start(mesh=mesh), made, mesh=mesh)
    leaves = jax.tree.leaves(sharding.gather(state.params, small_update.MODEL, mesh))
    named = {f"param_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    np.savez(out, processes=jax.process_count(), **named, **report)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
