"""Read compiled HLO text: computations, instructions, shapes, attributes.

Comes in: `compiled.as_text()`. Goes out: a `Module`, which `cost` walks. Only what a cost needs is
read: types, operands by name, called computations, trip counts, dimensions of products and
convolutions, groups of collectives. Grammar: https://openxla.org/xla/hlo_grammar, and what XLA's
printer writes (`xla/hlo/ir/hlo_instruction.cc`).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator

import numpy as np

_BITS = {
    **{"pred": 8, "token": 0, "opaque": 0},
    **{f"{kind}{bits}": bits for kind in "su" for bits in (1, 2, 4, 8, 16, 32, 64)},
    **{"bf16": 16, "f16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128},
}
_ARRAY = re.compile(r"(?P<dtype>[a-z]\w*)\[(?P<sizes>[^\]]*)\](?:\{(?P<layout>[^}]*)\})?")
_SPACE = re.compile(r"S\((\d+)\)")
_CALLS = re.compile(
    r"(calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Array:
    """Type of one array."""

    dtype: str
    sizes: tuple[int, ...]
    space: int = 0  # memory: 0 is the device's main memory; others as the backend numbers them

    @property
    def elements(self) -> int:
        """Count its elements."""
        return math.prod(self.sizes)

    @property
    def bytes(self) -> float:
        """Give its size; less than a byte an element is possible."""
        # The rest of the small floats (f8e4m3fn, ...) have their bits behind the f.
        bits = _BITS.get(self.dtype)
        if bits is None:
            bits = int(re.match(r"[a-z]+(\d+)", self.dtype).group(1))
        return self.elements * bits / 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instruction:
    """One operation."""

    name: str
    opcode: str
    arrays: tuple[Array, ...]  # of the result; several where it is a tuple, nested ones flattened
    operands: tuple[str, ...]  # names within the computation
    literal: str  # what stood between the parentheses
    attributes: str  # the rest of the line
    root: bool

    @property
    def array(self) -> Array:
        """The type of a result that is one array."""
        return self.arrays[0]

    def called(self) -> dict[str, str]:
        """Name the computations it calls, by the attribute that names them."""
        found = dict(_CALLS.findall(self.attributes))
        for index, name in enumerate(_names_in(_BRANCHES, self.attributes)):
            found[f"branch_{index}"] = name
        return found

    def trips(self) -> int | None:
        """Say how often the body of a loop runs; None where the compiler does not know."""
        match = _TRIPS.search(self.attributes)
        return int(match.group(1)) if match else None

    def numbers(self, attribute: str) -> tuple[int, ...]:
        """Read `attribute={1,2}`; () where it is absent."""
        match = re.search(rf"\b{attribute}=\{{([\d,]*)\}}", self.attributes)
        return tuple(int(n) for n in match.group(1).split(",") if n) if match else ()

    def number(self, attribute: str, default: int) -> int:
        """Read `attribute=3`."""
        match = re.search(rf"\b{attribute}=(\d+)", self.attributes)
        return int(match.group(1)) if match else default

    def group(self, devices: int) -> tuple[int, ...]:
        """List the devices of the first group of a collective.

        Raises:
          ValueError: the groups are written in a way this file does not know.
        """
        text = self.attributes.partition("replica_groups=")[2]
        listed = re.match(r"\{\{([\d,]*)\}", text)
        if listed:
            return tuple(int(n) for n in listed.group(1).split(","))
        counted = re.match(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
        if counted:
            shape, sizes, order = (_integers(part) for part in counted.groups())
            ids = np.arange(math.prod(sizes)).reshape(sizes)
            ids = ids.transpose(order) if order else ids
            return tuple(int(n) for n in ids.reshape(shape)[0])
        order = r"(?:, device_ids=\(\[([\d,]+)\]T\(([\d,]+)\)\))?"
        meshed = re.match(r"mesh\[([^\]]*)\]" + order + r" \{([^}]*)\}", text)
        if meshed:
            axes = re.findall(r"'([^']+)'=(\d+)", meshed.group(1))
            ids = np.arange(math.prod(int(size) for _, size in axes))
            if meshed.group(2):
                ids = ids.reshape(_integers(meshed.group(2)))
                ids = ids.transpose(_integers(meshed.group(3)))
            ids = ids.reshape([int(size) for _, size in axes])
            chosen = re.findall(r"'([^']+)'", meshed.group(4))
            cut = tuple(slice(None) if name in chosen else 0 for name, _ in axes)
            return tuple(int(n) for n in ids[cut].reshape(-1))
        if not text or text.startswith("{}"):
            return tuple(range(devices))
        raise ValueError(f"replica groups not understood: {text[:120]}; update launch/hlo.py.")

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """List (source, target) of a permute."""
        match = re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}", self.attributes)
        found = re.findall(r"\{(\d+),(\d+)\}", match.group(1)) if match else []
        return tuple((int(source), int(target)) for source, target in found)

    def word(self, attribute: str) -> str:
        """Read `attribute=word` or `attribute="words"`; "" where it is absent."""
        match = re.search(rf'\b{attribute}=("[^"]*"|[^\s,}}]+)', self.attributes)
        return match.group(1).strip('"') if match else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Computation:
    """A list of instructions in order of definition."""

    name: str
    instructions: tuple[Instruction, ...]

    def __post_init__(self):
        table = {instruction.name: instruction for instruction in self.instructions}
        object.__setattr__(self, "_table", table)

    def __getitem__(self, name: str) -> Instruction:
        return self._table[name]

    def __contains__(self, name: str) -> bool:
        return name in self._table

    @property
    def root(self) -> Instruction:
        """Give the instruction whose value is the computation's."""
        return next(i for i in reversed(self.instructions) if i.root)

    def parameters(self) -> dict[int, Instruction]:
        """Give the parameters by their number."""
        return {int(i.literal): i for i in self.instructions if i.opcode == "parameter"}

    def users(self, name: str) -> list[Instruction]:
        """List the instructions that read a value."""
        return [i for i in self.instructions if name in i.operands]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Module:
    """A compiled program, as one device runs it."""

    computations: dict[str, Computation]
    entry: str
    devices: int  # that the program is cut for


def parse(text: str) -> Module:
    """Read a module.

    Raises:
      ValueError: there is no entry computation, or a line is not understood.
    """
    computations, entry = {}, None
    for name, is_entry, lines in _blocks(text):
        instructions = tuple(parse_instruction(line) for line in lines)
        computations[name] = Computation(name=name, instructions=instructions)
        entry = name if is_entry else entry
    if entry is None:
        raise ValueError("the HLO text has no ENTRY computation; pass compiled.as_text() whole.")
    devices = re.search(r"num_partitions=(\d+)", text.partition("\n")[0])
    return Module(
        computations=computations, entry=entry, devices=int(devices.group(1)) if devices else 1
    )


def arrays_of(text: str) -> tuple[Array, ...]:
    """Read a type: one array, or all arrays of a tuple."""
    found = []
    for match in _ARRAY.finditer(text):
        sizes = re.sub(r"[<=\s]", "", match["sizes"])  # bounded dynamic sizes count whole
        space = _SPACE.search(match["layout"] or "")
        found.append(
            Array(
                dtype=match["dtype"],
                sizes=tuple(int(size) for size in sizes.split(",") if size),
                space=int(space.group(1)) if space else 0,
            )
        )
    return tuple(found)


def _blocks(text: str) -> Iterator[tuple[str, bool, list[str]]]:
    """Cut the text into computations: name, whether it is the entry, lines."""
    name, is_entry, lines = "", False, []
    for line in text.splitlines():
        stripped = line.strip()
        head = re.match(r"(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{$", stripped)
        if head and not line.startswith(" "):
            name, is_entry, lines = head.group(2), bool(head.group(1)), []
        elif name and re.fullmatch(r"\}(, execution_thread=.*)?", line):
            yield name, is_entry, lines
            name = ""
        elif name and re.match(r"(ROOT )?%?[\w.\-]+ = ", stripped) and line.startswith(" "):
            lines.append(stripped)
        elif name and lines:  # attributes of a kernel run over several lines
            lines[-1] += " " + stripped


def parse_instruction(line: str) -> Instruction:
    """Read one line `name = type opcode(operands), attributes`."""
    root = line.startswith("ROOT ")
    name, _, rest = line.removeprefix("ROOT ").partition(" = ")
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    kind, rest = rest[:end], rest[end:].lstrip()
    opening = rest.find("(")
    if opening < 0:
        raise ValueError(f"HLO line not understood: {line[:200]}")
    closing = _closing(rest, opening)
    literal = rest[opening + 1 : closing]
    opcode = rest[:opening]
    named = opcode not in ("constant", "parameter", "iota")
    return Instruction(
        name=name.lstrip("%"),
        opcode=opcode,
        arrays=arrays_of(kind),
        operands=tuple(re.findall(r"%([\w.\-]+)", literal)) if named else (),
        literal=literal,
        attributes=rest[closing + 1 :],
        root=root,
    )


def _closing(text: str, opening: int) -> int:
    """Find the parenthesis that closes the one at `opening`."""
    depth = 0
    for match in re.compile(r"[()]").finditer(text, opening):
        depth += 1 if match.group() == "(" else -1
        if depth == 0:
            return match.start()
    raise ValueError(f"HLO line not understood: {text[:200]}")


def _integers(text: str | None) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(",")) if text else ()


def _names_in(pattern: re.Pattern, attributes: str) -> list[str]:
    match = pattern.search(attributes)
    return [part.strip().lstrip("%") for part in match.group(1).split(",")] if match else []
