"""The whole configuration of a run, one section per room; each room is handed its own section."""

from __future__ import annotations

import dataclasses
from typing import Literal

from spade_jax import (
    batch,
    checkpoint,
    corpus,
    curriculum,
    design,
    hint,
    hosts,
    learn,
    lessons,
    pool,
    review,
    rollout,
    safeguards,
    screen,
    supervised,
    validate,
    window,
)
from spade_jax.policy import transformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """Sizes of the mesh axes; their product is the number of devices."""

    data: int = 1  # copies of the parameters
    fsdp: int = 1  # parts of batch and parameters
    tensor: int = 1  # parts of heads, feed-forward width and vocabulary
    expert: int = 1  # parts of each layer's experts


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedConfig:
    """What a published checkpoint leaves open; see `transformer.ModelConfig`."""

    role_head: Literal["tied", "lowrank", "separate"] = "tied"
    role_rank: int = 8
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    param_dtype: Literal["float32", "bfloat16"] = "float32"
    remat: Literal["none", "full", "attended", "dots"] = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """Where the policy comes from."""

    tokenizer: str = ""  # file of policy.tokenizer; empty: that of a published checkpoint
    weights: str = ""  # file of policy.weights, a Hugging Face directory, or a .gguf file; empty
    # draws random parameters
    model: transformer.ModelConfig | None = None  # needed only without weights
    published: PublishedConfig = PublishedConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplerConfig:
    """Speed and memory of sampling; replies depend on the bits only, up to rounding."""

    sequences: int = 512  # sampled at a time at most
    rows: int = 0  # sequences whose cache waits for the next turn; 0 means `sequences`
    weight_bits: int = 16  # 8 rounds the layers' matrices, 16 keeps them as they are
    cache_bits: int = 16  # 8 rounds keys and values, 16 keeps policy.model.compute_dtype

    def __post_init__(self):
        if self.sequences < 1:
            raise ValueError(f"sampler.sequences={self.sequences}: set it to at least 1.")
        if self.rows and self.rows < self.sequences:
            raise ValueError(
                f"sampler.rows={self.rows} are fewer than sampler.sequences={self.sequences}. Set "
                "rows to at least as many, or to 0."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SandboxConfig:
    """Where programs run: in boxes of this host, or in those of a fleet."""

    fleet: str = ""  # HOST:PORT of a fleet's head, see launch.sandbox_fleet; empty: this host
    # gvisor_strict: a fresh box for each program; bubblewrap and subprocess: the host's own kernel
    tier: Literal["gvisor", "gvisor_strict", "bubblewrap", "subprocess"] = "gvisor"
    boxes: int = 2  # of this host, one per core
    platform: Literal["auto", "ptrace", "systrap", "kvm"] = "auto"  # of this host
    turn_seconds: float = 10.0  # wall clock of one batch of steps in one program
    cpu_seconds: float = 20.0  # of one batch of steps, all processes of a program together
    memory_mib: int = 256  # address space of one program
    packages: tuple[str, ...] = ()  # installed distributions that programs may import, with what
    # they require; for pools that wrap a library (launch.wrap_library)

    def __post_init__(self):
        host, _, port = self.fleet.rpartition(":")
        if self.fleet and not (host and port.isdigit()):
            raise ValueError(
                f"sandbox.fleet={self.fleet!r} is no address. Set it to HOST:PORT of the fleet's "
                "head, or leave it empty, which starts boxes on this host."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmstartConfig:
    """Supervised start of both roles on the train split of the seed environments."""

    from_scratch: bool = False  # train it in this run although policy.weights exist
    designer_share: float = 0.4  # of examples' tokens that teach writing
    vocabulary: int = 640  # tokens of the tokenizer, when it is trained here
    log_every: int = 50  # steps between progress lines and checkpoints
    lessons: lessons.LessonConfig = lessons.LessonConfig()
    supervised: supervised.SupervisedConfig = supervised.SupervisedConfig()

    def __post_init__(self):
        if not 0.0 <= self.designer_share < 1.0:
            raise ValueError(
                f"warmstart.designer_share={self.designer_share}: a share; set it in [0, 1)."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """Held-out benchmark: new instances of known families, and families never trained on."""

    instances: int = 26  # of each known family: with 42 of them ±3 points
    held_out_instances: int = 91  # of each held-out family
    temperature: float = 1.0  # 0 is greedy
    every: int = 0  # iterations between evaluations; 0 means before and after only
    seed: int = 1234  # of the questions: the same ones at every evaluation


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything a run is made from."""

    seed: int = 0
    iterations: int = 16
    mode: Literal["self_play", "fixed_pool", "supervised"] = "self_play"
    setting: Literal["compact", "games", "tool_use"] = "compact"
    seed_environments: str = "experiments/seed_environments"
    pool_folder: str = ""  # pool of mode="fixed_pool", see pool_files.py; empty: the train split of
    # seed_environments, which stay the ones that evaluations ask
    mesh: MeshConfig = MeshConfig()
    policy: PolicyConfig = PolicyConfig()
    sampler: SamplerConfig = SamplerConfig()
    sandbox: SandboxConfig = SandboxConfig()
    warmstart: WarmstartConfig = WarmstartConfig()
    corpus: corpus.CorpusConfig | None = None
    design: design.DesignConfig = design.DesignConfig()
    validate: validate.ValidateConfig = validate.ValidateConfig()
    screen: screen.ScreenConfig = screen.ScreenConfig()
    hint: hint.HintConfig = hint.HintConfig()
    pool: pool.PoolConfig = pool.PoolConfig()
    rollout: rollout.RolloutConfig = rollout.RolloutConfig()
    review: review.ReviewConfig = review.ReviewConfig()
    batch: batch.BatchConfig = batch.BatchConfig()
    curriculum: curriculum.CurriculumConfig = curriculum.CurriculumConfig()
    safeguards: safeguards.SafeguardsConfig = safeguards.SafeguardsConfig()
    window: window.WindowConfig = window.WindowConfig()
    learn: learn.LearnConfig = learn.LearnConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    hosts: hosts.HostsConfig = hosts.HostsConfig()
    checkpoint: checkpoint.CheckpointConfig = checkpoint.CheckpointConfig()

    def __post_init__(self):
        if self.iterations < 0:
            raise ValueError(f"iterations={self.iterations}: set it to at least 0.")
        credit = self.learn.credit
        reference = credit.role_scale == "reference"
        if reference and credit.interval not in (0, self.design.every):
            raise ValueError(
                f"learn.credit.interval={credit.interval} and design.every={self.design.every} "
                "both say how long a generation lives; set the first to 0, which takes the second."
            )
        if self.pool_folder and self.mode != "fixed_pool":
            raise ValueError(
                f"pool_folder={self.pool_folder!r} with mode={self.mode!r}: only a fixed pool is "
                "read from a directory. Set mode='fixed_pool', or leave pool_folder empty."
            )
        if self.pool.order == "shuffle" and self.mode != "fixed_pool":
            raise ValueError(
                f"pool.order='shuffle' with mode={self.mode!r}: new environments would wait for a "
                "round to end. Set mode='fixed_pool', or pool.order='rank'."
            )
        if self.window.on and self.mode != "fixed_pool":
            raise ValueError(
                f"window.on with mode={self.mode!r}: levels belong to seed environments. Set "
                "mode='fixed_pool', or window.on=False."
            )
        objective = self.learn.objective
        if self.rollout.history == "rendered" and "sequence" in (
            objective.ratio,
            objective.importance,
        ):
            raise ValueError(
                f"rollout.history='rendered' with objective.ratio={objective.ratio!r} and "
                f"importance={objective.importance!r}: turns of a play are rows of their own then, "
                "and what all tokens of a sequence share is not known within one. Use 'token'."
            )
        if self.mode != "supervised":
            self._check_rows()

    def _check_rows(self) -> None:
        """What is sampled must fit a row of the batch."""
        row, turn = self.batch.row_tokens, self.rollout.context_tokens
        if turn > row:
            raise ValueError(
                f"rollout.context_tokens={turn} exceed batch.row_tokens={row}: longer episodes "
                "could not be trained on. Set batch.row_tokens to at least as many."
            )
        if self.mode == "self_play" and self.design.max_tokens >= row:
            raise ValueError(
                f"design.max_tokens={self.design.max_tokens} and a prompt do not fit "
                f"batch.row_tokens={row}. Set batch.row_tokens to the longest prompt and draft "
                "together."
            )
        if self.screen.by == "judgement" and self.screen.max_tokens >= row:
            raise ValueError(
                f"screen.max_tokens={self.screen.max_tokens} and a program do not fit "
                f"batch.row_tokens={row}: every draft would be refused. Lower screen.max_tokens."
            )
        if self.review.penalty and self.review.max_tokens >= row:
            raise ValueError(
                f"review.max_tokens={self.review.max_tokens} and a program do not fit "
                f"batch.row_tokens={row}: nobody could be asked. Lower review.max_tokens."
            )

    def checks(self) -> validate.ValidateConfig:
        """The section of validation: a program is judged under the limits it is played under."""
        return dataclasses.replace(
            self.validate,
            max_turns=self.rollout.max_turns,
            memory_bytes=self.sandbox.memory_mib << 20,
        )

    def learning(self) -> learn.LearnConfig:
        """The section of the update, with what it takes from other sections."""
        interval = self.learn.credit.interval or self.design.every
        credit = dataclasses.replace(self.learn.credit, interval=interval)
        return dataclasses.replace(self.learn, credit=credit)
