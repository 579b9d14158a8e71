"""Messages to token ids through the chat template of a checkpoint, with the interface of `chat`.

A conversation is kept as ids and only ever appended to: the prompt of turn k + 1 is the prompt of
turn k, the sampled ids, and `extend` of the observation. Whether the template allows that is tried
when the chat is made: where a later turn changes earlier ones (templates of thinking models cut
earlier thinking out), `extend` is refused with the reason. Prompts may then be written anew by
`start`, from replies without their thinking, where that is all the template drops.

Contents are rendered as placeholders and put back afterwards, so that no text of a program or of
the model can write the template's special tokens or reach its logic. Texts of tools, into which
templates look, lose what would be read as special tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import jinja2
import jinja2.sandbox

from spade_jax.policy import published

Pieces = list[tuple[str, bool]]  # text, and whether the template wrote it

_HELD = re.compile("\ue000([0-9]+)\ue001")  # private-use characters around a number
_LEFT_OUT = "\ue000"


class ChatError(ValueError):
    """A template that cannot be used, or not in this way; the text says why."""


class TemplateChat:
    """Renders with the template of one checkpoint. The policy's role is told in the messages."""

    def __init__(self, words: published.Published):
        """Compile the template and try how it behaves over several turns.

        Raises:
            ChatError: there is no template, or it fails on a plain conversation.
        """
        if not words.template:
            raise ChatError(
                "the checkpoint has no chat template; take an instruction-tuned one, or put a "
                "chat_template.jinja beside its tokenizer.json."
            )
        self._words = words
        self._template = _compile(words.template)
        self._strips = self._changes_spaces()
        self._after = self._behind_reply("user")
        self.end_ids = self._ends()  # each ends a reply
        self.refusal = self._instability()  # why `extend` is refused; empty where it is not
        self.rendering = self._difference()  # why prompts cannot be written anew; empty if they can
        self._after_tool = self._tool_message()
        self.answers_as_tool = bool(self._after_tool)  # a role for what tools say, and it is stable

    def start(
        self,
        role: int,
        messages: Sequence[Mapping[str, str]],
        tools: Sequence[Mapping] | None = None,
    ) -> tuple[int, ...]:
        """Write the prompt of a turn, up to and with the assistant's header.

        Args:
            role: records.DESIGNER or records.AGENT; a template has no place for it.
            messages: each {"role": ..., "content": text}.
            tools: JSON schemas of tools, where the template shows them.
        Raises:
            ChatError: the template refuses the messages.
        """
        del role
        return tuple(self._words.encode_pieces(self._render(messages, tools)))

    def reply(self, text: str) -> tuple[int, ...]:
        """Write what the policy should have sampled after a prompt: for supervised training."""
        return (*self._words.encode(text), self.end_ids[0])

    def extend(self, observation: str, role: str = "user", close: bool = False) -> tuple[int, ...]:
        """Write what follows a sampled reply, up to and with the assistant's next header.

        Args:
            observation: what the environment answered.
            role: "user" or "tool".
            close: put an end token first, for a reply that the length limit cut.
        Raises:
            ChatError: the template changes earlier turns when a later one comes.
        """
        if self.refusal:
            raise ChatError(self.refusal)
        pieces = self._after_tool if role == "tool" else self._after
        if not pieces:
            raise ChatError("the chat template has no message role for what tools say; use 'user'.")
        text = observation.strip() if self._strips else observation
        filled = [(part, True) if known else (text, False) for part, known in pieces]
        ids = self._words.encode_pieces(filled)
        return tuple(ids if close else ids[1:])

    def _render(self, messages, tools=None, prompt: bool = True) -> Pieces:
        """Render with placeholders for all contents, then put the contents back."""
        held: list[str] = []

        def hold(text: str) -> str:
            held.append(text)
            return f"\ue000{len(held) - 1}\ue001"

        shown = []
        for message in messages:
            text = str(message["content"]).replace(_LEFT_OUT, "")
            shown.append({**message, "content": hold(text.strip() if self._strips else text)})
        rendered = self._fill(shown, tools, prompt, hold)
        parts = _HELD.split(rendered)
        pieces = [
            (held[int(part)], False) if i % 2 else (part, True) for i, part in enumerate(parts)
        ]
        return [piece for piece in pieces if piece[0]]

    def _fill(self, messages, tools, prompt, hold) -> str:
        def tojson(value, indent=None, **_):
            return hold(json.dumps(value, ensure_ascii=False, indent=indent))

        def refuse(reason):
            raise ChatError(f"the chat template refuses the messages: {reason}")

        values = {
            "messages": messages,
            "tools": self._plain(list(tools)) if tools else None,
            **self._words.names,
        }
        self._template.environment.filters["tojson"] = tojson
        try:
            return self._template.render(
                **values, add_generation_prompt=prompt, raise_exception=refuse
            )
        except jinja2.TemplateError as error:
            raise ChatError(f"the chat template fails: {error}.") from error

    def _plain(self, value):
        """Take special tokens out of the texts of tools: some templates write these themselves."""
        if isinstance(value, str):
            return self._words.without_special(value)
        if isinstance(value, Mapping):
            return {self._plain(key): self._plain(entry) for key, entry in value.items()}
        return [self._plain(entry) for entry in value] if isinstance(value, list) else value

    def _changes_spaces(self) -> bool:
        """Whether the template trims contents, which placeholders would hide."""
        self._strips = False
        message = [{"role": "user", "content": "\n q \n"}]
        return "\n q \n" not in self._fill(message, None, True, str)

    def _behind_reply(self, role: str) -> Pieces:
        """What stands between a reply and the next one, the observation as an untrusted gap."""
        turns = [_message("user", "q1"), _message("assistant", "r1"), _message(role, "q2")]
        pieces = self._render(turns)
        place = next((i for i, piece in enumerate(pieces) if piece == ("r1", False)), None)
        if place is None:
            raise ChatError("the chat template leaves out or changes the assistant's replies.")
        return pieces[place + 1 :]

    def _ends(self) -> tuple[int, ...]:
        """The token behind a reply first, then all that tokenizer and generation config name."""
        first = self._words.encode_pieces(self._after[:1])[:1]
        if not first or not (first[0] in self._words.end_ids or self._words.is_special(first[0])):
            raise ChatError("the chat template puts no token behind a reply, so none could end it.")
        return tuple(dict.fromkeys((*first, *self._words.end_ids)))

    def _tool_message(self) -> Pieces:
        """What stands between a reply and the next one where a tool answers; empty if it cannot."""
        try:
            pieces = [] if self._instability("tool") else self._behind_reply("tool")
        except ChatError:
            return []
        return pieces if any(not known for _, known in pieces) else []  # some drop what they ignore

    def _instability(self, role: str = "user") -> str:
        """Try three turns, with plain and with thinking replies; give the reason for a refusal."""
        for kind, reply in (("", "r"), (" with thinking", "<think>\nt\n</think>\n\nr")):
            turns = [_message("user", "q1")]
            prompt = self._render(turns)
            for number in range(2):
                turns += [_message("assistant", reply), _message(role, f"q{number + 2}")]
                longer = self._rendered_openly(turns)
                grown = _text(prompt) + reply
                if not longer.startswith(grown):
                    return (
                        f"the chat template changes earlier turns{kind} when a later one comes, so "
                        f"a conversation cannot be continued as sampled. Set "
                        f"rollout.history='rendered', use one turn an episode "
                        f"(rollout.max_turns=1) or a template that keeps replies as they are."
                    )
                prompt = [(longer, True)]
        return ""

    def _difference(self) -> str:
        """Try whether the template drops from earlier replies exactly what `start` is given less.

        Returns:
            the reason why not, empty where it does.
        """
        thought = "<think>\nt\n</think>\n\n"
        turns = [_message("user", "q1"), _message("assistant", "r1")]
        turns += [_message("user", "q2"), _message("assistant", "r2"), _message("user", "q3")]
        told = [{**t, "content": thought + t["content"]} if i % 2 else t for i, t in
                enumerate(turns)]  # fmt: skip
        if self._rendered_openly(told) == _text(self._render(turns)):
            return ""
        return (
            "the chat template does not drop exactly the thinking of earlier replies, so prompts "
            "written anew would not be its own. Set rollout.history='appended', or use one turn an "
            "episode (rollout.max_turns=1)."
        )

    def _rendered_openly(self, messages) -> str:
        """Render with the contents in the template's sight, as its authors mean it."""
        return self._fill(messages, None, True, str)


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _text(pieces: Pieces) -> str:
    return "".join(text for text, _ in pieces)


def _compile(source: str) -> jinja2.Template:
    # As transformers sets it up. There is no strftime_now: a prompt must not depend on the day, and
    # templates that ask whether it exists fall back to a fixed date.
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    # Calls are compiled for a plain filter; the library's own takes one argument more.
    environment.filters["tojson"] = json.dumps
    try:
        return environment.from_string(source)
    except jinja2.TemplateError as error:
        raise ChatError(f"the chat template is no Jinja template: {error}.") from error
