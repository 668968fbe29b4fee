"""A program as an image: code for every instruction set, plans, weights, state, texts."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ridgeline.codegen.llvm.machine_code import compile_cached, compiling_for
from ridgeline.compiler.memory_plan import Layout
from ridgeline.deploy.cases import Binding, CaseWriter, Destination, bind, nbytes
from ridgeline.deploy.compile import Compiled, compile_static
from ridgeline.deploy.contents import Contents, ExportError, TensorInfo, source_key, value_of
from ridgeline.deploy.dynamic import DynamicCase, Sizes, compile_dynamic
from ridgeline.deploy.instruction_sets import InstructionSetTarget, baseline
from ridgeline.deploy.link import Image, Place
from ridgeline.deploy.runtime_ir import runtime_ir
from ridgeline.deploy.tables import ABI_VERSION, TABLE, Base, Case, Operation, Status, Table
from ridgeline.graph.facts import SizeFacts
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, TensorType, topological
from ridgeline.graph.sizes import SizeExpr, Sym
from ridgeline.runtime.cpu.control_words import Address
from ridgeline.tracing.capture import ArgumentInput, Source
from ridgeline.tracing.executable import PreparedGraph, prepared_graph
from ridgeline.tracing.in_place_state import pairs, place_key
from ridgeline.tracing.recording import Recording

_ALIGNED = 64
COMPUTED = -(1 << 62)  # stands for an axis whose length is computed from sizes


@dataclass(frozen=True, slots=True)
class SetRow:
    """An instruction set with its code, as far as the table of sets has it."""

    masks: Sequence[int]
    name: str
    cases: Sequence[Sequence[Address]]
    setup: Sequence[Address] | None
    hoisted_bytes: int


class StaticCase(NamedTuple):
    """A case at fixed sizes, and the one that computes what it has from weights alone."""

    row: list[Address]
    setup: Sequence[Address] | None
    hoisted_bytes: int


class Assembly:
    """An image in the making."""

    def __init__(self, contents: Contents) -> None:
        self.contents, self.image = contents, Image()
        self.sets: list[SetRow] = []
        self.checked_at: dict[str, None] = {}
        self._weights: dict[Hashable, int] = {}
        self._texts: dict[str, str] = {}
        offset = 0
        self._state_offsets = []
        for entry in contents.state:
            self._state_offsets.append(offset)
            offset = -(-(offset + len(entry.value)) // _ALIGNED) * _ALIGNED
        self._state_bytes = offset
        with compiling_for(baseline()):
            self.image.add_object(compile_cached(runtime_ir()))

    # ---- where values lie ---------------------------------------------------------------------

    def weight(self, key: Hashable, value: bytes) -> int:
        """The offset of some constant among the weights."""
        if key not in self._weights:
            self._weights[key] = self.image.put("weights", value, _ALIGNED).offset
        return self._weights[key]

    def binding(self, node: Node, source: Source | None) -> Binding:
        """What an input of a graph is bound to."""
        kind = node.types[0]
        if source is None:
            array = node.buffer.array(kind.dtype, kind.shape)
            return Base.WEIGHTS, self.weight(("constant", id(node.buffer)), array.tobytes())
        if isinstance(source, ArgumentInput):
            return Base.INPUTS, 8 * self.contents.input_of[source.index]
        key = source_key(source)
        if key in self.contents.state_of:
            return Base.STATE, self._state_offsets[self.contents.state_of[key]]
        return Base.WEIGHTS, self.weight(key, value_of(source, kind))

    def destinations(
        self, contents: Contents, layout: Layout, taken: Mapping[int, int]
    ) -> dict[int, list[Destination]]:
        """Where the outputs of a recording go; `taken` are those that replace inputs."""
        found: dict[int, list[Destination]] = {}
        for output, numbers in contents.returned.items():
            kind = contents.outputs[numbers[0]].type
            found[output] = [Destination((Base.OUTPUTS, 8 * n), kind) for n in numbers]
        first = layout.inputs + len(layout.sizes)
        for output, number in contents.written.items():
            made = layout.returns[output] - first
            replaced = taken.get(output, -1)
            may = (made, replaced) in layout.in_place if replaced >= 0 else made in layout.reusable
            binding = Base.STATE, self._state_offsets[number]
            kind = contents.state[number].type
            found.setdefault(output, []).append(Destination(binding, kind, may))
        return found

    def _bytes_of(self, kind: TensorType) -> int:
        return 0 if any(isinstance(s, SizeExpr) for s in kind.shape) else nbytes(kind)

    # ---- instruction sets -----------------------------------------------------------------------

    def add_static(self, recording: Recording, made_for: InstructionSetTarget) -> None:
        """Code and plans for one instruction set, of a recording whose sizes are known."""
        writer = CaseWriter(self.image, f"{made_for.name}.")
        case = self._static_case(recording, self.contents, made_for, writer)
        row = SetRow(made_for.masks(), made_for.name, [case.row], case.setup, case.hoisted_bytes)
        self.sets.append(row)

    def _static_case(
        self,
        recording: Recording,
        contents: Contents,
        made_for: InstructionSetTarget,
        writer: CaseWriter,
    ) -> StaticCase:
        """The case of a recording whose sizes are known, and what is computed before it."""
        with compiling_for(made_for.target):
            prepared = prepared_graph(recording)
            replaced = self._replaced(recording, prepared)
            main = compile_static(prepared.graph, replaced)
            setup = self._setup(prepared)
        self._add_code(writer.prefix, main, setup[1] if setup else None)
        bindings = [self.binding(n, recording.inputs.get(n)) for n in prepared.slots]
        hoisted, offset = [], 0
        for node in prepared.hoisted:
            hoisted.append((Base.HOISTED, offset))
            offset = -(-(offset + nbytes(node.types[0])) // _ALIGNED) * _ALIGNED
        results = self.destinations(contents, main.layout, dict(replaced))
        bound = bind(main.layout, [*bindings, *hoisted], results)
        counters = [(self._state_offsets[n], int(count)) for n, count in contents.counters]
        case = writer.row(main.layout, bound, counters)
        setup_row = None
        if setup is not None:
            used, compiled = setup
            given = [self.binding(n, prepared.steady.get(n)) for n in used]
            goes = {
                number: [Destination(place, node.types[0])]
                for number, (node, place) in enumerate(zip(prepared.hoisted, hoisted))
            }
            setup_row = writer.row(compiled.layout, bind(compiled.layout, given, goes))
        return StaticCase(case, setup_row, offset)

    def add_dynamic(
        self,
        recording: Recording,
        sizes: Sizes,
        made_for: InstructionSetTarget,
        single: tuple[Recording, Contents] | None,
    ) -> None:
        """Code and plans for one instruction set, of a recording over sizes.

        `single` is the same call where the one size there is is 1, which is traced by itself.
        """
        prefix = f"{made_for.name}."
        writer = CaseWriter(self.image, prefix)
        pattern = recording.pattern
        assert pattern is not None
        facts = SizeFacts(pattern.facts.values)  # what compiling decides
        with compiling_for(made_for.target), facts.deciding():
            prepared = prepared_graph(recording)
            replaced = self._replaced(recording, prepared)
            code = compile_dynamic(prepared.graph, sizes, replaced)
            pinned = {**pattern.facts.pinned, **facts.pinned}
            if pinned:
                raise ExportError(
                    f"{recording.name} needs {', '.join(pinned)} as a number",
                    help="export it for one length: leave the axis out of dynamic=",
                )
            main = code.compiled
            self._add_code(prefix, main, None)
            bindings = [self.binding(n, recording.inputs.get(n)) for n in prepared.slots]
            results = self.destinations(self.contents, main.layout, dict(replaced))
            bound = bind(main.layout, bindings, results)
            case = DynamicCase(code, sizes)
            case.require([*pattern.facts, *facts])
            offsets = [(self._state_offsets[n], 0) for n, _ in self.contents.counters]
            counts = [count for _, count in self.contents.counters]
            row = writer.row(main.layout, bound, offsets, case.change(bound, counts))
        self._set_tables(row, f"{prefix}sizes.", *case.tables())
        rows, setup, hoisted_bytes = [row], None, 0
        if single is not None:
            alone = self._static_case(*single, made_for, writer)
            one = [int(Operation.SIZE), 0, int(Operation.END), 0]
            self._set_tables(alone.row, f"{prefix}one.", one, [0, 1], [], 1)
            rows.append(alone.row)
            setup, hoisted_bytes = alone.setup, alone.hoisted_bytes
        self.sets.append(SetRow(made_for.masks(), made_for.name, rows, setup, hoisted_bytes))

    def _set_tables(
        self,
        row: list[Address],
        name: str,
        code: Sequence[int],
        checks: Sequence[int],
        patches: Sequence[int],
        registers: int,
    ) -> None:
        """Make a case one that looks at sizes."""
        row[Case.CODE] = self._rows(f"{name}code", [code])
        row[Case.CHECKS] = self._rows(f"{name}checks", [checks])
        row[Case.PATCHES] = self._rows(f"{name}patches", [patches])
        row[Case.REGISTERS] = registers
        row[Case.CHECK_COUNT], row[Case.PATCH_COUNT] = len(checks) // 2, len(patches) // 2

    def _replaced(self, recording: Recording, prepared: PreparedGraph) -> list[tuple[int, int]]:
        """Outputs, and the inputs whose memory they may take."""
        places = {
            place_key(recording.inputs[node]): number
            for number, node in enumerate(prepared.slots)
            if node in recording.inputs
        }
        return pairs(recording.effects, places)

    def _setup(self, prepared: PreparedGraph) -> tuple[list[Node], Compiled] | None:
        """The program of what is computed from weights alone, with its inputs."""
        if not prepared.hoisted:
            return None

        def is_given(node: Node) -> bool:
            return node in prepared.steady or node.buffer is not None

        used = [n for n in topological(prepared.hoisted, is_given) if is_given(n)]
        return used, compile_static(Graph(prepared.hoisted, used))

    def _add_code(self, prefix: str, main: Compiled, setup: Compiled | None) -> None:
        for compiled in (main, setup):
            if compiled is not None:
                self.checked_at |= dict.fromkeys(compiled.checked_at)
                if compiled.code:
                    self.image.add_object(compiled.code, prefix)

    # ---- tables ---------------------------------------------------------------------------------

    def text(self, value: str) -> str:
        """The symbol of a text."""
        if value not in self._texts:
            symbol = self._texts[value] = f"text.{len(self._texts)}"
            self.image.symbols[symbol] = self.image.put("rodata", value.encode() + b"\0", 1)
        return self._texts[value]

    def _rows(self, symbol: str, rows: Sequence[Sequence[Address]]) -> str:
        self.image.add_words([word for row in rows for word in row] or [0], symbol)
        return symbol

    def finish(self, manifest: Mapping[str, Any], sizes: Sequence[Sym] = ()) -> Image:
        """Write the tables, and the description as data, and give the image."""
        contents, image = self.contents, self.image
        sets = []
        for number, made in enumerate(self.sets):
            cases = self._rows(f"cases.{number}", made.cases)
            setup: Address = 0
            if made.setup is not None:
                setup = self._rows(f"setup.{number}", [made.setup])
            sets.append(
                [*made.masks, self.text(made.name), cases, len(made.cases), setup,
                 made.hoisted_bytes]
            )  # fmt: skip
        state = bytearray(max(self._state_bytes, 1))
        for entry, offset in zip(contents.state, self._state_offsets):
            state[offset : offset + len(entry.value)] = entry.value
        image.symbols["state"] = image.put("weights", bytes(state), _ALIGNED)
        image.symbols["weights"] = Place("weights", 0)
        messages = self._messages(sizes)
        last = Status.FIRST_INPUT + len(contents.inputs) + len(contents.outputs)
        texts = [self.text(messages.get(n, "no such status")) for n in range(last)]
        described = [self._tensor(t, sizes) for t in contents.inputs]
        returned = [self._tensor(t, sizes) for t in contents.outputs]
        kept = [self._tensor(TensorInfo(s.name, s.type), sizes) for s in contents.state]
        data = json.dumps(manifest, separators=(",", ":"))
        description: list[Address] = [
            ABI_VERSION, self.text(contents.name), len(described), self._rows("inputs", described),
            len(returned), self._rows("outputs", returned), len(kept), self._rows("kept", kept),
            len(sizes), self._rows("sizes", [[self.text(s.name), s.lo, s.hi] for s in sizes]),
            self.text(data),
        ]  # fmt: skip
        given = [
            [info.type.dtype.itemsize, Status.FIRST_INPUT + n]
            for n, info in enumerate(contents.inputs)
        ]
        taken = [
            [_ALIGNED, Status.FIRST_INPUT + len(given) + n] for n in range(len(contents.outputs))
        ]
        table: dict[Table, Address] = {
            Table.VERSION: ABI_VERSION,
            Table.INPUTS: self._rows("given", given),
            Table.INPUT_COUNT: len(given),
            Table.OUTPUTS: self._rows("taken", taken),
            Table.OUTPUT_COUNT: len(taken),
            Table.INSTRUCTION_SETS: self._rows("sets", sets),
            Table.INSTRUCTION_SET_COUNT: len(sets),
            Table.STATE_BYTES: self._state_bytes,
            Table.STATE: "state",
            Table.WEIGHTS: "weights",
            Table.WRITES: int(contents.changes_state),
            Table.MESSAGES: self._rows("messages", [[text] for text in texts]),
            Table.MESSAGE_COUNT: len(texts),
            Table.DESCRIPTION: self._rows("description", [description]),
            Table.STATE_OFFSETS: self._rows("offsets", [[o] for o in self._state_offsets]),
            Table.STATE_COUNT: len(self._state_offsets),
        }
        self._rows(TABLE, [[table[Table(n)] for n in range(Table.WORDS)]])
        return image

    def _tensor(self, info: TensorInfo, sizes: Sequence[Sym]) -> list[Address]:
        """A row of the description: name, type, rank, shape, bytes, alignment."""
        names = [size.name for size in sizes]
        shape: list[Address] = []
        for length in info.type.shape:
            if isinstance(length, int):
                shape.append(length)
            else:
                known = str(length) in names
                shape.append(-1 - names.index(str(length)) if known else COMPUTED)
        symbol = self._rows(f"shape.{len(self.image.symbols)}", [shape])
        aligned = _ALIGNED if info in self.contents.outputs else info.type.dtype.itemsize
        return [
            self.text(info.name), self.text(info.type.dtype.name), len(shape), symbol,
            self._bytes_of(info.type) or -1 * bool(sizes), aligned,
        ]  # fmt: skip

    def _messages(self, sizes: Sequence[Sym]) -> dict[int, str]:
        contents = self.contents
        sets = ", ".join(made.name for made in self.sets)
        lines = f" ({', '.join(self.checked_at)})" if self.checked_at else ""
        bounds = ", ".join(f"{size.name} is from {size.lo} to {size.hi}" for size in sizes)
        found = {
            int(Status.OK): "",
            int(Status.NO_PROGRAM): "there is no program: it was not opened",
            int(Status.PROCESSOR): (
                f"this processor cannot run the program, which has code for {sets}"
            ),
            int(Status.MEMORY): "there is not enough memory",
            int(Status.INDEX): f"an index, or a checked value, is out of range{lines}",
            int(Status.SIZES): f"sizes that the program is not for: {bounds or 'it has none'}",
        }
        first = int(Status.FIRST_INPUT)
        for number, info in enumerate(contents.inputs):
            size = info.type.dtype.itemsize
            found[first + number] = (
                f"the address of input {number} ({info.name}) is null or no multiple of {size}"
            )
        for number, info in enumerate(contents.outputs):
            found[first + len(contents.inputs) + number] = (
                f"the address of output {number} ({info.name}) is null or no multiple of {_ALIGNED}"
            )
        return found
