"""Loads and stores: from the index of an element to an address, and to the right instruction.

An offset is split into terms by loop variable and added up scope by scope, so that each loop only
adds what changes in it. Under a vector loop the stride in its variable picks the instruction:
one scalar access, a contiguous vector, a de-interleaving of a wider vector, or a gather.
"""

from __future__ import annotations

from ridgeline import dtypes
from ridgeline.codegen.llvm.scalar_ops import ScalarEmitter, Value
from ridgeline.codegen.llvm.types import (
    mangled,
    memory_type,
    register_dtype,
    register_type,
    splat,
    vector,
)
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.build import add, affine, free_vars, mul
from ridgeline.loops.ir import Buffer, Const, Expr, Var

_WIDEST_STRIDE = 4


class MemoryEmitter(ScalarEmitter):
    """Addresses and memory instructions; the subclass supplies scopes and values."""

    pointers: dict[str, Value]
    vector_bytes: int
    lanes_var: str | None
    lane_count: int
    lane_length: int
    lane_mask: Value | None

    def value(self, expr: Expr) -> Value:
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
    ) -> tuple[list[tuple[Expr, Expr]], int, bool]:
        """The offset as atom * stride pairs and a constant; True if a gather is needed."""
        sizes = self.laid_out(buffer)
        if not all(isinstance(size, Const) for size in sizes):
            return self._symbolic_terms(sizes, index)
        pairs: dict[Expr, int] = {}
        constant, stride = 0, 1
        opaque = False
        for size, position in zip(reversed(sizes), reversed(index)):
            form = affine(position)
            if form is None:
                opaque |= self.lanes_var is not None and self.lanes_var in free_vars(position)
                pairs[position] = pairs.get(position, 0) + stride
            else:
                for name, coefficient in form[0].items():
                    atom = Var.make(name)
                    pairs[atom] = pairs.get(atom, 0) + coefficient * stride
                constant += form[1] * stride
            assert isinstance(size, Const)
            stride *= int(size.text)
        return [(atom, ir.index(step)) for atom, step in pairs.items()], constant, opaque

    def _symbolic_terms(
        self, sizes: tuple[Expr, ...], index: tuple[Expr, ...]
    ) -> tuple[list[tuple[Expr, Expr]], int, bool]:
        pairs: dict[Expr, Expr] = {}
        opaque = False
        stride: Expr = ir.index(1)
        for size, position in zip(reversed(sizes), reversed(index)):
            form = affine(position)
            if form is None:
                opaque |= self.lanes_var is not None and self.lanes_var in free_vars(position)
                atoms: dict[Expr, int] = {position: 1}
            else:
                atoms = {Var.make(name): c for name, c in form[0].items()}
                if form[1]:
                    atoms[ir.index(1)] = form[1]
            for atom, coefficient in atoms.items():
                step = mul(stride, ir.index(coefficient))
                pairs[atom] = add(pairs[atom], step) if atom in pairs else step
            stride = mul(stride, size)
        return list(pairs.items()), 0, opaque

    def _offset(self, pairs: list[tuple[Expr, Expr]], base: Value, kind: str) -> Value:
        """`base` plus the scaled atoms, added outermost first so that each scope adds its own."""
        pointer = base
        for step in sorted((self._scaled(*pair) for pair in pairs), key=lambda v: v.depth):
            whole = "ptr" if pointer.lanes == 1 else f"<{pointer.lanes} x ptr>"
            text = f"getelementptr inbounds {kind}, {whole} {pointer.name}, {step.type} {step.name}"
            pointer = self._once(text, dtypes.uint64, pointer, step)
        return pointer

    def _scaled(self, atom: Expr, stride: Expr) -> Value:
        a, s = self.value(atom), self.value(stride)
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
        self, buffer: Buffer, index: tuple[Expr, ...]
    ) -> tuple[Value, int, int | None]:
        """Pointer, constant offset in elements, and the stride over lanes (None: a gather)."""
        pairs, constant, opaque = self._terms(buffer, index)
        kind = self.storage(buffer)
        lane = Var.make(self.lanes_var) if self.lanes_var is not None else None
        stride: int | None = 0
        if opaque:
            stride = None
        elif lane is not None:
            for atom, step in pairs:
                if atom is lane:
                    stride = int(step.value) if isinstance(step, Const) else None
        if stride is not None:
            pairs = [(a, s) for a, s in pairs if a is not lane]
        return self._offset(pairs, self.pointers[buffer.name], kind), constant, stride

    def laid_out(self, buffer: Buffer) -> tuple[Expr, ...]:
        """A buffer's sizes in memory: rows of register buffers are whole vectors."""
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
        """An element's type in a buffer; register buffers hold register types."""
        if buffer.scope == "reg":
            return "i8" if buffer.dtype is dtypes.bool_ else register_type(buffer.dtype)
        return memory_type(buffer.dtype)

    def _moved(self, pointer: Value, elements: int, kind: str) -> Value:
        if elements == 0:
            return pointer
        text = f"getelementptr inbounds {kind}, ptr {pointer.name}, i64 {elements}"
        return self._once(text, dtypes.uint64, pointer)

    # ---- reading ------------------------------------------------------------------------------

    def read(
        self, buffer: Buffer, index: tuple[Expr, ...], guard: Value | None, floor: int, fixed: bool
    ) -> Value:
        """One element per lane; `floor` is the outermost scope a load may stand in."""
        pointer, constant, stride = self._address(buffer, index)
        kind = self.storage(buffer)
        anchor = Value("", dtypes.int64, 1, floor, not fixed)
        mask = self._access_mask(buffer, guard)
        if stride == 0:
            return self._read_scalar(buffer, self._moved(pointer, constant, kind), guard, anchor)
        if stride == 1:
            raw = self._contiguous(self._moved(pointer, constant, kind), kind, mask, anchor)
        elif stride is not None and 2 <= stride <= _WIDEST_STRIDE and self._static(mask):
            raw = self._strided(self._moved(pointer, constant, kind), kind, stride, mask, anchor)
        else:
            raw = self._gather(self._lane_pointers(pointer, constant, stride, kind), kind, mask, anchor)
        return self._loaded(raw, buffer, self.lane_count)

    def _access_mask(self, buffer: Buffer, guard: Value | None) -> Value | None:
        mask = None if buffer.scope == "reg" else self.lane_mask
        if guard is None:
            return mask
        guard = self.widen(guard, self.lane_count) if self.lanes_var is not None else guard
        return guard if mask is None else self.both(mask, guard)

    @staticmethod
    def _static(mask: Value | None) -> bool:
        return mask is None or not mask.name.startswith("%")

    def _read_scalar(
        self, buffer: Buffer, pointer: Value, guard: Value | None, anchor: Value
    ) -> Value:
        kind = self.storage(buffer)
        operands = [pointer, anchor]
        if guard is not None and guard.lanes == 1:  # where the guard fails, read a safe element
            base = self.pointers[buffer.name]
            text = f"select i1 {guard.name}, ptr {pointer.name}, ptr {base.name}"
            pointer = self.instruction(text, dtypes.uint64, guard, pointer, base)
            operands = [pointer, anchor]
        made = self.instruction(f"load {kind}, ptr {pointer.name}", buffer.dtype, *operands)
        return self._loaded(made, buffer, 1)

    def _loaded(self, raw: Value, buffer: Buffer, lanes: int) -> Value:
        """A value as it came from memory, turned into its register form."""
        kind = vector(self.storage(buffer), lanes)
        target = vector(register_type(buffer.dtype), lanes)
        flat = Value(raw.name, register_dtype(buffer.dtype), lanes, raw.depth, raw.volatile)
        if kind == target:
            return flat
        if buffer.dtype is dtypes.bool_:
            zero = "0" if lanes == 1 else "zeroinitializer"
            return self.instruction(f"icmp ne {kind} {raw.name}, {zero}", dtypes.bool_, flat)
        return self.instruction(f"fpext {kind} {raw.name} to {target}", buffer.dtype, flat)

    def _contiguous(self, pointer: Value, kind: str, mask: Value | None, anchor: Value) -> Value:
        whole = vector(kind, self.lane_count)
        align = _element_bytes(kind)
        if mask is None:
            text = f"load {whole}, ptr {pointer.name}, align {align}"
            return self.instruction(text, dtypes.uint64, pointer, anchor)
        return self._masked_load(pointer, kind, self.lane_count, mask, anchor)

    def _masked_load(
        self, pointer: Value, kind: str, lanes: int, mask: Value, anchor: Value
    ) -> Value:
        whole = vector(kind, lanes)
        name = f"llvm.masked.load.{mangled(kind, lanes)}.p0"
        self.declarations.add(f"declare {whole} @{name}(ptr, <{lanes} x i1>, {whole})")
        text = (
            f"call {whole} @{name}(ptr align {_element_bytes(kind)} {pointer.name}, "
            f"<{lanes} x i1> {mask.name}, {whole} zeroinitializer)"
        )
        return self.instruction(text, dtypes.uint64, pointer, mask, anchor)

    def _strided(
        self, pointer: Value, kind: str, stride: int, mask: Value | None, anchor: Value
    ) -> Value:
        """Every `stride`-th element of a wider load that touches no other element."""
        lanes = self.lane_count
        active = [True] * lanes if mask is None else ["true" in b for b in mask.name.split(",")]
        bits = [f"i1 {str(i % stride == 0 and active[i // stride]).lower()}"
                for i in range(lanes * stride)]
        exact = Value("<" + ", ".join(bits) + ">", dtypes.bool_, lanes * stride)
        wide = self._masked_load(pointer, kind, lanes * stride, exact, anchor)
        whole = vector(kind, lanes * stride)
        picks = ", ".join(f"i32 {i * stride}" for i in range(lanes))
        text = f"shufflevector {whole} {wide.name}, {whole} poison, <{lanes} x i32> <{picks}>"
        return self.instruction(text, dtypes.uint64, wide)

    def _lane_pointers(
        self, pointer: Value, constant: int, stride: int | None, kind: str
    ) -> Value:
        """One pointer per lane."""
        lanes = self.lane_count
        moved = self._moved(pointer, constant, kind) if pointer.lanes == 1 else pointer
        if pointer.lanes > 1:
            if constant:
                text = f"getelementptr {kind}, <{lanes} x ptr> {pointer.name}, i64 {constant}"
                made = self.instruction(text, dtypes.uint64, pointer)
                return Value(made.name, dtypes.uint64, lanes, made.depth, made.volatile)
            return pointer
        steps = "<" + ", ".join(f"i64 {i * (stride or 0)}" for i in range(lanes)) + ">"
        text = f"getelementptr {kind}, ptr {moved.name}, <{lanes} x i64> {steps}"
        made = self.instruction(text, dtypes.uint64, moved)
        return Value(made.name, dtypes.uint64, lanes, made.depth, made.volatile)

    def _gather(self, pointers: Value, kind: str, mask: Value | None, anchor: Value) -> Value:
        lanes = self.lane_count
        whole = vector(kind, lanes)
        active = mask.name if mask is not None else splat("i1 true", lanes)
        name = f"llvm.masked.gather.{mangled(kind, lanes)}.v{lanes}p0"
        self.declarations.add(
            f"declare {whole} @{name}(<{lanes} x ptr>, <{lanes} x i1>, {whole})"
        )
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
        pointer, constant, stride = self._address(buffer, index)
        kind = self.storage(buffer)
        if stride == 0:
            assert value.lanes == 1, "lanes of a vector loop may not share an element"
            stored = self._stored(value, buffer)
            target = self._moved(pointer, constant, kind)
            line(f"store {kind} {stored.name}, ptr {target.name}")
            return
        value = self.widen(value, self.lane_count)
        if stride != 1:
            stored = self._stored(value, buffer)
            self._scatter(self._lane_pointers(pointer, constant, stride, kind), kind, stored, line)
            return
        target = self._moved(pointer, constant, kind)
        if buffer.scope == "reg" and self.lane_mask is not None and not self._covers_row(buffer):
            anchor = Value("", dtypes.int64, 1, self.here, True)
            held = self._loaded(self._contiguous(target, kind, None, anchor), buffer, value.lanes)
            value = self.choose(self.lane_mask, value, held)
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
        pairs, _, _ = self._terms(buffer, index)
        lane = Var.make(self.lanes_var) if self.lanes_var is not None else None
        steps = [s for a, s in pairs if a is not lane]
        known = all(isinstance(s, Const) and int(s.value) * element % 64 == 0 for s in steps)
        if not known or constant * element % 64 or self.lane_count * element % 64:
            return "", element
        return ", !nontemporal !0", 64

    def _stored(self, value: Value, buffer: Buffer) -> Value:
        """A value in the form memory has it."""
        kind = vector(self.storage(buffer), value.lanes)
        if kind == value.type:
            return value
        opcode = "zext" if buffer.dtype is dtypes.bool_ else "fptrunc"
        return self.instruction(f"{opcode} {value.type} {value.name} to {kind}", buffer.dtype, value)

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


def _element_bytes(kind: str) -> int:
    sizes = {"float": 4, "double": 8, "half": 2, "bfloat": 2}
    return sizes.get(kind) or int(kind[1:]) // 8
