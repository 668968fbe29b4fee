"""Loads and stores: addresses, and the instruction that fits the lanes' strides.

An offset is split into terms by loop variable and added up scope by scope, so that each loop only
adds what changes in it. Under a vector loop, the distances between lanes pick the instruction: one
scalar access, a contiguous vector, lanes picked out of a wider one, or a gather.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ridgeline import dtypes
from ridgeline.codegen.llvm.addresses import Offsets, over_lanes, steady
from ridgeline.codegen.llvm.scalar_ops import ScalarEmitter, Value
from ridgeline.codegen.llvm.types import (
    decode,
    encode,
    is_float8,
    mangled,
    memory_type,
    register_dtype,
    register_type,
    splat,
    upper_half,
    vector,
)
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.build import affine
from ridgeline.loops.ir import Buffer, Const, Expr, Var


@dataclass(frozen=True, slots=True)
class Guard:
    """The condition of a load: known lanes, one condition for all lanes, or a mask.

    `condition` is the whole condition: what the address is computed from is loaded under it too.
    """

    lanes: tuple[bool, ...] | None = None
    shared: Value | None = None
    computed: Value | None = None
    condition: Expr | None = None


class MemoryEmitter(ScalarEmitter):
    """Addresses and memory instructions; the subclass supplies scopes and values."""

    pointers: dict[str, Value]
    vector_bytes: int
    lanes_var: str | None
    lane_count: int
    lane_length: int
    lane_mask: Value | None
    lane_bits: tuple[bool, ...] | None
    streams = False  # whether a store has gone past the caches

    def value(self, expr: Expr, guard: Expr | None = None) -> Value:
        """The value of an expression in the current scope."""
        raise NotImplementedError

    @property
    def here(self) -> int:
        """The depth of the innermost scope."""
        raise NotImplementedError

    def shared(self, key: object, depth: int) -> Value | None:
        """A value remembered in the scope at `depth`."""
        raise NotImplementedError

    def share(self, key: object, value: Value) -> Value:
        """Remember a value in the scope that made it."""
        raise NotImplementedError

    # ---- addresses ----------------------------------------------------------------------------

    def _terms(
        self, buffer: Buffer, index: tuple[Expr, ...]
    ) -> tuple[list[tuple[Expr, Expr]], int, Offsets | None]:
        """The offset as atom * stride pairs, a constant, and what each lane adds to it."""
        sizes = self.laid_out(buffer)
        if not all(isinstance(size, Const) for size in sizes):
            return self._symbolic_terms(sizes, index)
        pairs: dict[Expr, int] = {}
        constant, stride = 0, 1
        splits = self._over_lanes(index)
        lanes: Offsets | None = None if splits is None else steady(0, self.lane_count)
        for number in range(len(index) - 1, -1, -1):
            size, position = sizes[number], index[number]
            if splits is not None and lanes is not None:
                position, offsets = splits[number]
                if offsets is not lanes and any(offsets):
                    lanes = tuple(o + stride * d for o, d in zip(lanes, offsets))
            form = affine(position)
            if form is None:
                pairs[position] = pairs.get(position, 0) + stride
            else:
                for name, coefficient in form.terms:
                    atom = Var.make(name)
                    pairs[atom] = pairs.get(atom, 0) + coefficient * stride
                constant += form.offset * stride
            assert isinstance(size, Const)
            stride *= int(size.text)
        return [(atom, ir.index(step)) for atom, step in pairs.items()], constant, lanes

    def _over_lanes(self, index: tuple[Expr, ...]) -> list[tuple[Expr, Offsets]] | None:
        """What the lanes share of each index and what each adds; None if that is not known."""
        found = []
        for position in index:
            if self.lanes_var is None:
                split: tuple[Expr, Offsets] | None = (position, steady(0, self.lane_count))
            else:
                split = over_lanes(position, self.lanes_var, self.lane_count)
            if split is None:
                return None
            found.append(split)
        return found

    def _symbolic_terms(
        self, sizes: tuple[Expr, ...], index: tuple[Expr, ...]
    ) -> tuple[list[tuple[Expr, Expr]], int, Offsets | None]:
        """As `_terms`, with strides that are known at run time; lanes move along the last axis."""
        pairs: dict[Expr, Expr] = {}
        splits = self._over_lanes(index)
        if splits is not None and any(any(offsets) for _, offsets in splits[:-1]):
            splits = None  # lanes may only move along the last axis, whose stride is known
        lanes: Offsets | None = (0,) * self.lane_count
        stride: Expr = ir.index(1)
        for number in range(len(index) - 1, -1, -1):
            position = index[number]
            if splits is None:
                lanes = None
            else:  # what the lanes share, though each may have computed it
                position, offsets = splits[number]
                lanes = offsets if number == len(index) - 1 else lanes
            pairs[position] = pairs.get(position, ir.index(0)) + stride
            stride = stride * sizes[number]
        return list(pairs.items()), 0, lanes

    def _offset(
        self, pairs: list[tuple[Expr, Expr]], base: Value, kind: str, guard: Expr | None
    ) -> Value:
        """`base` plus the scaled atoms, added outermost first so that each scope adds its own."""
        pointer = base
        for step in sorted((self._scaled(*pair, guard) for pair in pairs), key=lambda v: v.depth):
            whole = "ptr" if pointer.lanes == 1 else f"<{pointer.lanes} x ptr>"
            text = f"getelementptr inbounds {kind}, {whole} {pointer.name}, {step.type} {step.name}"
            pointer = self._once(text, dtypes.uint64, pointer, step)
        return pointer

    def _scaled(self, atom: Expr, stride: Expr, guard: Expr | None) -> Value:
        a, s = self.value(atom, guard), self.value(stride)
        if s.name == "1":
            return a
        a, s = self.matched(a, s)
        return self._once(f"mul {a.type} {a.name}, {s.name}", dtypes.int64, a, s)

    def _once(self, text: str, dtype: DType, *operands: Value) -> Value:
        """An instruction that is emitted again only where its scope has not got it."""
        found = self.shared(text, max(o.depth for o in operands))
        if found is None:
            made = self.instruction(text, dtype, *operands)
            found = made if made.volatile else self.share(text, made)
        return found

    def _address(
        self, buffer: Buffer, index: tuple[Expr, ...], guard: Expr | None = None
    ) -> tuple[Value, int, Offsets | None]:
        """Pointer, constant offset, and elements added per lane (None: a pointer per lane)."""
        pairs, constant, lanes = self._terms(buffer, index)
        base = self.pointers[buffer.name]
        return self._offset(pairs, base, self.storage(buffer), guard), constant, lanes

    def element(self, buffer: Buffer, index: tuple[Expr, ...]) -> Value:
        """The address of one element, outside vector loops."""
        pointer, constant, _ = self._address(buffer, index)
        return self._moved(pointer, constant, self.storage(buffer))

    def line(self, instruction: str) -> None:
        """Append an instruction without a result to the innermost scope."""
        raise NotImplementedError

    def laid_out(self, buffer: Buffer) -> tuple[Expr, ...]:
        """A buffer's sizes in memory: rows of register buffers are padded to whole vectors."""
        if buffer.scope != "reg" or not buffer.shape:
            return buffer.shape
        last = buffer.shape[-1]
        assert isinstance(last, Const), "register buffers have known sizes"
        return (*buffer.shape[:-1], ir.index(self.lanes_for(int(last.value))))

    def lanes_for(self, length: int) -> int:
        """Lanes of a vector loop: a power of two, the only lengths LLVM splits well."""
        return 1 << (length - 1).bit_length()

    def _covers_row(self, buffer: Buffer) -> bool:
        """True if the vector loop writes whole rows of a register buffer, padding included."""
        last = self.laid_out(buffer)[-1]
        size = buffer.shape[-1]
        assert isinstance(last, Const) and isinstance(size, Const)
        return int(last.value) == self.lane_count and int(size.value) == self.lane_length

    def storage(self, buffer: Buffer) -> str:
        """An element's type in a buffer; register buffers hold register types.

        Half-precision floats move as integers: LLVM cannot shuffle every vector of bfloat.
        """
        if buffer.scope == "reg":
            return "i8" if buffer.dtype is dtypes.bool_ else register_type(buffer.dtype)
        kind = memory_type(buffer.dtype)
        return "i16" if kind in ("half", "bfloat") else kind

    def _moved(self, pointer: Value, elements: int, kind: str) -> Value:
        if elements == 0:
            return pointer
        text = f"getelementptr inbounds {kind}, ptr {pointer.name}, i64 {elements}"
        return self._once(text, dtypes.uint64, pointer)

    # ---- reading ------------------------------------------------------------------------------

    def read(
        self, buffer: Buffer, index: tuple[Expr, ...], guard: Guard, floor: int, fixed: bool
    ) -> Value:
        """One element per lane; `floor` is the outermost scope that the load may be placed in."""
        pointer, constant, lanes = self._address(buffer, index, guard.condition)
        kind = self.storage(buffer)
        anchor = Value("", dtypes.int64, 1, floor, not fixed)
        if lanes is not None:
            low = min(lanes)
            pointer = self._moved(pointer, constant + low, kind)
            lanes = tuple(offset - low for offset in lanes)
            if guard.shared is not None:  # where it fails, read elements that surely exist
                base = self.pointers[buffer.name]
                choice = f"select i1 {guard.shared.name}, ptr {pointer.name}, ptr {base.name}"
                pointer = self.instruction(choice, dtypes.uint64, guard.shared, pointer, base)
        if lanes is not None and not any(lanes):
            made = self.instruction(
                f"load {kind}, ptr {pointer.name}", buffer.dtype, pointer, anchor
            )
            return self._loaded(made, buffer, 1)
        active = self._active(buffer, guard)
        near = lanes is not None and max(lanes) < 4 * self.lane_count
        if lanes is not None and near and isinstance(active, tuple):
            raw = self._picked(pointer, kind, lanes, active, anchor)
        elif lanes == tuple(range(self.lane_count)) and isinstance(active, Value):
            raw = self._masked(pointer, kind, self.lane_count, active, anchor)
        else:
            if lanes is None:
                pointers = self._lane_pointers(pointer, constant, kind)
            else:
                pointers = self._spread(pointer, lanes, kind)
            mask = self._mask(active)
            if guard.shared is not None and lanes is None:
                wide = self.widen(guard.shared, self.lane_count)
                mask = wide if mask is None else self.both(mask, wide)
            raw = self._gather(pointers, kind, mask, anchor)
        return self._loaded(raw, buffer, self.lane_count)

    def _active(self, buffer: Buffer, guard: Guard) -> tuple[bool, ...] | Value:
        """Which lanes load: known bits, or a mask computed at run time."""
        bits = (True,) * self.lane_count
        mask = None
        if buffer.scope != "reg" and self.lane_mask is not None:
            if self.lane_bits is None:
                mask = self.lane_mask
            else:
                bits = self.lane_bits
        if guard.lanes is not None:
            bits = tuple(a and b for a, b in zip(bits, guard.lanes))
        if guard.computed is not None:
            mask = guard.computed if mask is None else self.both(mask, guard.computed)
        if mask is None:
            return bits
        return mask if all(bits) else self.both(mask, bit_vector(bits))

    @staticmethod
    def _mask(active: tuple[bool, ...] | Value) -> Value | None:
        if isinstance(active, Value):
            return active
        return None if all(active) else bit_vector(active)

    def _picked(
        self, pointer: Value, kind: str, lanes: Offsets, active: tuple[bool, ...], anchor: Value
    ) -> Value:
        """Lanes extracted from one wider load that touches no element they do not need."""
        needed = {o for o, on in zip(lanes, active) if on}
        width = max(1 << max(needed, default=0).bit_length(), 2)
        width = max(width, self.lane_count) if lanes == tuple(range(self.lane_count)) else width
        bits = tuple(i in needed for i in range(width))
        wide = self._masked(pointer, kind, width, bits, anchor)
        if lanes == tuple(range(width)):
            return wide
        whole = vector(kind, width)
        picks = ", ".join(f"i32 {o if on else 0}" for o, on in zip(lanes, active))
        text = (
            f"shufflevector {whole} {wide.name}, {whole} poison, "
            f"<{self.lane_count} x i32> <{picks}>"
        )
        return self.instruction(text, dtypes.uint64, wide)

    def _masked(
        self,
        pointer: Value,
        kind: str,
        lanes: int,
        active: tuple[bool, ...] | Value,
        anchor: Value,
    ) -> Value:
        """One vector, of which lanes that are not active are not read."""
        whole = vector(kind, lanes)
        align = _element_bytes(kind)
        mask = self._mask(active)
        if mask is None:
            text = f"load {whole}, ptr {pointer.name}, align {align}"
            return self.instruction(text, dtypes.uint64, pointer, anchor)
        name = f"llvm.masked.load.{mangled(kind, lanes)}.p0"
        self.declarations.add(f"declare {whole} @{name}(ptr, <{lanes} x i1>, {whole})")
        text = (
            f"call {whole} @{name}(ptr align {align} {pointer.name}, "
            f"<{lanes} x i1> {mask.name}, {whole} zeroinitializer)"
        )
        return self.instruction(text, dtypes.uint64, pointer, mask, anchor)

    def _loaded(self, raw: Value, buffer: Buffer, lanes: int) -> Value:
        """Convert a value from its memory form to its register form."""
        kind = vector(self.storage(buffer), lanes)
        target = vector(register_type(buffer.dtype), lanes)
        flat = Value(raw.name, register_dtype(buffer.dtype), lanes, raw.depth, raw.volatile)
        if kind == target:
            return flat
        if buffer.dtype is dtypes.bool_:
            zero = "0" if lanes == 1 else "zeroinitializer"
            return self.instruction(f"icmp ne {kind} {raw.name}, {zero}", dtypes.bool_, flat)
        if is_float8(buffer.dtype):
            return decode(self, replace(flat, dtype=dtypes.uint8), buffer.dtype)
        half = vector(memory_type(buffer.dtype), lanes)
        as_float = self.instruction(f"bitcast {kind} {raw.name} to {half}", buffer.dtype, flat)
        return self.instruction(f"fpext {half} {as_float.name} to {target}", buffer.dtype, as_float)

    def _lane_pointers(self, pointer: Value, constant: int, kind: str) -> Value:
        """A pointer per lane, from an address that is itself computed per lane."""
        lanes = self.lane_count
        if pointer.lanes == 1:
            return self._spread(self._moved(pointer, constant, kind), (0,) * lanes, kind)
        if not constant:
            return pointer
        text = f"getelementptr {kind}, <{lanes} x ptr> {pointer.name}, i64 {constant}"
        made = self.instruction(text, dtypes.uint64, pointer)
        return Value(made.name, dtypes.uint64, lanes, made.depth, made.volatile)

    def _spread(self, pointer: Value, offsets: Offsets, kind: str) -> Value:
        """A pointer per lane, at known distances from one pointer."""
        steps = "<" + ", ".join(f"i64 {o}" for o in offsets) + ">"
        text = f"getelementptr {kind}, ptr {pointer.name}, <{len(offsets)} x i64> {steps}"
        made = self.instruction(text, dtypes.uint64, pointer)
        return Value(made.name, dtypes.uint64, len(offsets), made.depth, made.volatile)

    def _gather(self, pointers: Value, kind: str, mask: Value | None, anchor: Value) -> Value:
        lanes = self.lane_count
        whole = vector(kind, lanes)
        active = mask.name if mask is not None else splat("i1 true", lanes)
        name = f"llvm.masked.gather.{mangled(kind, lanes)}.v{lanes}p0"
        self.declarations.add(f"declare {whole} @{name}(<{lanes} x ptr>, <{lanes} x i1>, {whole})")
        text = (
            f"call {whole} @{name}(<{lanes} x ptr> align {_element_bytes(kind)} {pointers.name}, "
            f"<{lanes} x i1> {active}, {whole} zeroinitializer)"
        )
        operands = (pointers, anchor) if mask is None else (pointers, mask, anchor)
        return self.instruction(text, dtypes.uint64, *operands)

    # ---- writing ------------------------------------------------------------------------------

    def write(self, buffer: Buffer, index: tuple[Expr, ...], value: Value, line: object) -> None:
        """Store one element per lane; `line` appends an instruction without a result."""
        assert callable(line)
        pointer, constant, lanes = self._address(buffer, index)
        kind = self.storage(buffer)
        if lanes is not None and not any(lanes):
            assert value.lanes == 1, "lanes of a vector loop may not share an element"
            stored = self._stored(value, buffer)
            target = self._moved(pointer, constant, kind)
            line(f"store {kind} {stored.name}, ptr {target.name}")
            return
        value = self.widen(value, self.lane_count)
        if lanes != tuple(range(self.lane_count)):
            if lanes is None:
                pointers = self._lane_pointers(pointer, constant, kind)
            else:
                pointers = self._spread(self._moved(pointer, constant, kind), lanes, kind)
            self._scatter(pointers, kind, self._stored(value, buffer), line)
            return
        target = self._moved(pointer, constant, kind)
        kept = buffer.scope == "reg" and self.lane_mask is not None
        if kept and (self.lane_bits is None or not self._covers_row(buffer)):
            assert self.lane_mask is not None
            anchor = Value("", dtypes.int64, 1, self.here, True)
            every = (True,) * self.lane_count
            held = self._masked(target, kind, self.lane_count, every, anchor)
            value = self.choose(self.lane_mask, value, self._loaded(held, buffer, value.lanes))
        stored = self._stored(value, buffer)
        whole = vector(kind, self.lane_count)
        mask = None if buffer.scope == "reg" else self.lane_mask
        if mask is None:
            hint, align = self._streaming(buffer, index, constant, kind)
            line(f"store {whole} {stored.name}, ptr {target.name}, align {align}{hint}")
            return
        name = f"llvm.masked.store.{mangled(kind, self.lane_count)}.p0"
        self.declarations.add(f"declare void @{name}({whole}, ptr, <{self.lane_count} x i1>)")
        line(
            f"call void @{name}({whole} {stored.name}, "
            f"ptr align {_element_bytes(kind)} {target.name}, "
            f"<{self.lane_count} x i1> {mask.name})"
        )

    def _streaming(
        self, buffer: Buffer, index: tuple[Expr, ...], constant: int, kind: str
    ) -> tuple[str, int]:
        """A non-temporal hint where the address is a multiple of the vector's size."""
        element = _element_bytes(kind)
        if buffer.scope != "stream":
            return "", element
        steps = [step for _, step in self._terms(buffer, index)[0]]
        known = all(isinstance(s, Const) and int(s.value) * element % 64 == 0 for s in steps)
        if not known or constant * element % 64 or self.lane_count * element % 64:
            return "", element
        self.streams = True
        return ", !nontemporal !0", 64

    def _stored(self, value: Value, buffer: Buffer) -> Value:
        """Convert a value to its memory form."""
        kind = vector(self.storage(buffer), value.lanes)
        if kind == value.type:
            return value
        if buffer.dtype is dtypes.bool_:
            text = f"zext {value.type} {value.name} to {kind}"
            return self.instruction(text, buffer.dtype, value)
        if is_float8(buffer.dtype):
            return encode(self, value, buffer.dtype)
        if buffer.dtype is dtypes.bfloat16:
            return upper_half(self, value)
        half = vector(memory_type(buffer.dtype), value.lanes)
        text = f"fptrunc {value.type} {value.name} to {half}"
        rounded = self.instruction(text, buffer.dtype, value)
        return self.instruction(f"bitcast {half} {rounded.name} to {kind}", buffer.dtype, rounded)

    def _scatter(self, pointers: Value, kind: str, value: Value, line: object) -> None:
        assert callable(line)
        lanes = self.lane_count
        active = self.lane_mask.name if self.lane_mask is not None else splat("i1 true", lanes)
        whole = vector(kind, lanes)
        name = f"llvm.masked.scatter.{mangled(kind, lanes)}.v{lanes}p0"
        self.declarations.add(f"declare void @{name}({whole}, <{lanes} x ptr>, <{lanes} x i1>)")
        line(
            f"call void @{name}({whole} {value.name}, "
            f"<{lanes} x ptr> align {_element_bytes(kind)} {pointers.name}, "
            f"<{lanes} x i1> {active})"
        )


def bit_vector(bits: tuple[bool, ...]) -> Value:
    """A constant mask."""
    text = ", ".join(f"i1 {str(bit).lower()}" for bit in bits)
    return Value(f"<{text}>", dtypes.bool_, len(bits))


def _element_bytes(kind: str) -> int:
    sizes = {"float": 4, "double": 8}
    return sizes.get(kind) or int(kind[1:]) // 8
