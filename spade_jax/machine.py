"""The machine a run works with: mesh, tokenizer, sampler, sandbox, corpus, bound together.

Rooms take callables and know none of this. A `Machine` owns the sandbox crew and closes it.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
from etils import epath

from sandbox import records as sandbox_records
from spade_jax import (
    codec,
    corpus,
    crews,
    domains,
    files,
    hint,
    hosts,
    programs,
    records,
    rollout,
    seeds,
    settings,
)
from spade_jax.domains import domain, tool_use
from spade_jax.policy import (
    chat,
    load,
    published,
    sampler,
    sharding,
    template,
    tokenizer,
    transformer,
    weights,
)

Words = tokenizer.Tokenizer | published.Published
Chat = chat.Chat | template.TemplateChat


class Machine:
    """What the rooms of a run share: the crew it was given, and what is bound to the policy."""

    def __init__(
        self,
        config: settings.RunConfig,
        crew: ProgramCrew,
        words: Words,
        model: transformer.ModelConfig,
        group: hosts.Hosts | None = None,
    ):
        """Bind them.

        Args:
          group: the processes of this run, that share its work; this one alone by default.
        """
        self.config = config
        self.model = model
        self.group = group or hosts.Hosts("", config.hosts)
        self._here: tuple[Any, Any] = (None, None)  # parameters, and this process's copy of them
        self.mesh = make_mesh(config)
        self.words = words
        self.chat = open_chat(words)
        check_history(config.rollout, self.chat)
        self.domain = domains.get(config.setting)
        self.sampler = make_sampler(config, model, self.chat)
        self.corpus = open_corpus(config)
        self.crew = crew

    def generate(
        self, params: Any, role: int, temperature: float, max_tokens: int
    ) -> Callable[[list, list], list[records.Reply]]:
        """Bind the sampler: (prompts, sampler seeds) -> replies in order.

        The cache lives as long as what is returned: a later turn computes its observation only.
        """
        sampling = sampler.SamplingConfig(temperature=temperature, max_tokens=max_tokens)
        session = self.sampler.session(self.here(params))

        def write(prompts: list, sampler_seeds: list) -> list[records.Reply]:
            return session.generate(prompts, [role] * len(prompts), sampler_seeds, sampling)

        return write

    def rollout(self, params: Any, temperature: float, max_tokens: int) -> rollout.World:
        """Bind everything that play needs."""
        return rollout.World(
            open=self.crew.start,
            generate=self.generate(params, records.AGENT, temperature, max_tokens),
            start=self.start_play,
            extend=self.chat.extend,
            text_of=self.text_of,
            action_of=self.domain.action,
            show_hint=functools.partial(show_hint, config=self.config.hint),
            malformed=self.domain.malformed,
            role_of=functools.partial(domain.role_of, self.domain, self.chat.answers_as_tool),
        )

    def generate_together(
        self, params: Any, role: int, temperature: float, max_tokens: int
    ) -> Callable[[list, list], list[records.Reply]]:
        """Do what `generate` does, each process for its share of the prompts."""
        write = self.generate(params, role, temperature, max_tokens)

        def share(pairs: list) -> list[records.Reply]:
            return write([prompt for prompt, _ in pairs], [seed for _, seed in pairs])

        def together(prompts: list, sampler_seeds: list) -> list[records.Reply]:
            pairs = list(zip(prompts, sampler_seeds, strict=True))
            return self.group.spread(pairs, share, records.Reply)

        return together

    def play(
        self,
        groups: list[rollout.Group],
        params: Any,
        temperature: float,
        limits: rollout.RolloutConfig,
        rng: Any,
    ) -> rollout.Played:
        """Play groups, each process those of its rows of the table; see `rollout.play`."""
        bound = self.rollout(params, temperature, limits.max_tokens)
        index, count = self.group.index, self.group.count
        played = rollout.play(groups, bound, limits, rng, lambda g: g.row % count == index)
        if count == 1:
            return played
        shares = self.group.gather(codec.encode(played))
        return _join([codec.decode(rollout.Played, share) for share in shares])

    def write_hints(
        self, environments: list[records.Environment], params: Any, rng: Any
    ) -> tuple[list[records.Environment], collections.Counter]:
        """Let the policy write a hint for each environment; see `hint.write`."""
        told = self.config.hint
        return hint.write(
            environments,
            lambda e: self.chat.start(records.AGENT, domain.hint_messages(self.domain, e.source)),
            self.generate_together(params, records.AGENT, told.temperature, told.max_tokens),
            lambda reply: programs.without_thinking(self.text_of(reply)),
            seeds.sampling_seeds(rng, (len(environments), 2)),
            told,
        )

    def here(self, params: Any) -> Any:
        """Give the parameters to this process's sampler: gathered and laid out once per version."""
        if self.group.count == 1:
            return params
        if self._here[0] is not params:
            self._here = (None, None)  # the old copy goes before the new one comes
            self._here = (params, self.sampler.lay_out(self.gathered(params)))
        return self._here[1]

    def gathered(self, params: Any) -> Any:
        """Give the parameters whole, in one call of all processes."""
        return params if self.group.count == 1 else sharding.gather(params, self.model, self.mesh)

    def start_play(
        self,
        environment: records.Environment,
        observation: str,
        shown: str | None,
        tools: Any,
        exchanges: Sequence[tuple[str, str, str]] = (),
    ) -> tuple[int, ...]:
        """Write the prompt of a play's first turn, or anew that of a later one."""
        messages = domain.agent_messages(domains.get(environment.setting), observation, shown)
        return self.chat.start(records.AGENT, domain.continued(messages, exchanges), tools)

    def text_of(self, reply: records.Reply) -> str:
        """Read a reply as text, its end token dropped."""
        ids = reply.ids[:-1] if reply.stopped else reply.ids
        return self.words.decode(ids)


def _join(parts: Sequence[rollout.Played]) -> rollout.Played:
    """Put together what processes played of one table, in the order of one process."""
    pairs = [pair for p in parts for pair in zip(p.episodes, p.transcripts, strict=True)]
    place = operator.attrgetter("environment", "seed_index", "arm", "play")
    pairs.sort(key=lambda pair: place(pair[0]))
    return rollout.Played(
        episodes=[episode for episode, _ in pairs],
        hint_refusals=sum((p.hint_refusals for p in parts), collections.Counter()),
        dropped=sum(p.dropped for p in parts),
        leaks_N={row: share for p in parts for row, share in p.leaks_N.items()},
        transcripts=[transcript for _, transcript in pairs],
        processes=sum(p.processes for p in parts),
    )


def check_history(limits: rollout.RolloutConfig, chat: Any) -> None:
    """Refuse what a chat template does not allow of plays of several turns.

    Raises:
      ValueError: it changes earlier turns and these are to be appended to, or it does not drop
        exactly the thinking of earlier replies and these are to be rendered anew.
    """
    reason = chat.refusal if limits.history == "appended" else chat.rendering
    if reason and limits.max_turns > 1:
        raise ValueError(
            f"rollout.history={limits.history!r} with max_turns={limits.max_turns}: {reason}"
        )


class ProgramCrew:
    """Owns a sandbox crew, or the way to a fleet; knows the limits of the run."""

    def __init__(self, config: settings.SandboxConfig, packages: Sequence[str] = ()):
        """Start the boxes.

        Args:
          packages: distributions that programs may import, beside those of the configuration.
        Raises:
          sandbox.records.SandboxUnavailable: the tier asked for cannot run here.
          ValueError: a distribution is not installed.
        """
        self._limits = sandbox_records.Limits(
            wall_seconds=config.turn_seconds,
            cpu_seconds=config.cpu_seconds,
            memory_bytes=config.memory_mib << 20,
        )
        make = crews.open_fleet if config.fleet else crews.open_crew
        self._crew = make(config, (*config.packages, *packages))

    def __enter__(self) -> ProgramCrew:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def start(self, environment: records.Environment, seed: int) -> Any:
        """Start one process for plays of an environment."""
        setting = domains.get(environment.setting)
        return self.open(
            environment.source,
            modules=dict(setting.modules),
            prelude=setting.prelude,
            seed=seed,
            limits=self._limits,
        )

    def describe(self) -> str:
        """Say what runs programs here."""
        return self._crew.describe()

    def open(self, source: str, **options: Any) -> Any:
        """Start a process; see `sandbox.crew.Crew.open`."""
        return self._crew.open(source, **options)

    def start_run(self, *arguments: Any) -> Any:
        """Start a program with its stdin; see `sandbox.crew.Crew.start_run`."""
        return self._crew.start_run(*arguments)

    def start_call(self, *arguments: Any) -> Any:
        """Start calls of one function in a process; see `sandbox.crew.Crew.start_call`."""
        return self._crew.start_call(*arguments)

    def close(self) -> None:
        """Stop the boxes."""
        self._crew.close()


def show_hint(
    environment: records.Environment,
    computed: str | None,
    solution: str | None,
    config: hint.HintConfig,
) -> hint.Verdict:
    """Choose the hint of an instance and pass it through the gate.

    Returns:
      the verdict; a hint that passes still has to lose when its words are played as actions.
    """
    setting = domains.get(environment.setting)
    own = config.source == "program"
    text = computed if own else environment.hint
    if own and text is not None and solution is None:
        return hint.Verdict(hint=None, reason="unchecked")
    secrets = [] if solution is None else [solution]
    if solution is not None and setting.uses_tools:
        secrets += tool_use.call_values(solution)
    verdict = hint.judge(text, secrets, config)
    if verdict.hint is None:
        return verdict
    actions = [setting.wrap(content) for content in hint.tries(verdict.hint)]
    return dataclasses.replace(verdict, tries=tuple(dict.fromkeys(actions)))


def load_policy(
    config: settings.RunConfig, tokenizer_path: str, weights_path: str
) -> tuple[Words, transformer.ModelConfig, Any]:
    """Read tokenizer and parameters.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: the tokenizer has more tokens than the model, or a file cannot be used.
    """
    for name in (tokenizer_path, weights_path):
        if name and not epath.Path(name).exists():
            raise FileNotFoundError(
                f"policy file {name} does not exist. Make it with `python -m launch.train "
                "--config=experiments/warmstart.py --workdir=runs/warmstart`, or set "
                "--config.warmstart.from_scratch."
            )
    published_path = epath.Path(weights_path)
    is_published = published_path.is_dir() or published_path.suffix == ".gguf"
    if not tokenizer_path and not is_published:
        raise ValueError(f"policy.tokenizer is not set: {weights_path} holds no tokenizer. Set it.")
    with files.fetched(tokenizer_path or weights_path) as local:
        words = load_tokenizer(local)
    if is_published:
        key = jax.random.key(int(seeds.stream(config.seed, "weights").integers(2**31)))
        chosen = dataclasses.asdict(config.policy.published)
        params, model = load.load(weights_path, mesh=make_mesh(config), key=key, **chosen)
    else:
        with files.fetched(weights_path) as local:
            params, model = weights.load(local)
    if words.vocab_size > model.vocab_size:
        raise ValueError(
            f"{tokenizer_path or weights_path} has {words.vocab_size} tokens, the model of "
            f"{weights_path} only {model.vocab_size}; they do not belong together."
        )
    return words, model, params


def load_tokenizer(path: str) -> Words:
    """Read a tokenizer of ours, or that of a Hugging Face directory or a GGUF file."""
    if epath.Path(path).is_dir() or path.endswith(".gguf"):
        return published.load(path)
    return published.read(path) or tokenizer.Tokenizer.load(path)


def open_chat(words: Words) -> Chat:
    """Give the chat that belongs to a tokenizer."""
    if isinstance(words, published.Published):
        return template.TemplateChat(words)
    return chat.Chat(words)


def make_mesh(config: settings.RunConfig) -> jax.sharding.Mesh:
    """Arrange this program's devices as the configuration says."""
    sizes = config.mesh
    return sharding.make_mesh(sizes.data, sizes.fsdp, sizes.tensor, sizes.expert)


def make_sampler(
    config: settings.RunConfig, model: transformer.ModelConfig, rendering: Chat
) -> sampler.Sampler:
    """Fix the shapes of sampling: the usual numbers of sequences below the most that are wanted."""
    return sampler.Sampler(
        model,
        end_ids=rendering.end_ids,
        max_length=max(config.batch.row_tokens, config.rollout.context_tokens),
        batch_buckets=batch_buckets(config.sampler.sequences),
        rows=config.sampler.rows or None,
        weight_bits=config.sampler.weight_bits,
        cache_bits=config.sampler.cache_bits,
    )


def batch_buckets(most: int) -> tuple[int, ...]:
    """Give the numbers of sequences that a sampler's programs are compiled for."""
    return (*[size for size in (16, 64, 128, 256) if size < most], most)


def fit_vocabulary(model: transformer.ModelConfig | None, words: Words) -> transformer.ModelConfig:
    """Give a model the vocabulary of its tokenizer.

    Raises:
      ValueError: there is no model to build.
    """
    if model is None:
        raise ValueError("policy.model is not set: set it, or name policy.weights to start from.")
    return dataclasses.replace(model, vocab_size=words.vocab_size)


def open_corpus(config: settings.RunConfig) -> corpus.Corpus | None:
    """Open the passages that prompts of the designer hold, None where the run has no corpus.

    Raises:
      FileNotFoundError, ValueError: as `corpus.Corpus`, which reads the files at once.
    """
    if config.corpus is None:
        return None
    return corpus.Corpus(
        config.corpus.paths,
        seed=config.seed,
        max_words=config.corpus.max_words,
        max_characters=config.corpus.max_characters,
    )
