"""LLVM instructions one after the other: labels, masks and memory over a warp's lanes.

A value with one lane is equal in the whole warp. A mask is a vector of 32 bits, or None where all
lanes are known to be active.
"""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline import dtypes
from ridgeline.codegen.llvm.scalar_ops import ScalarEmitter, Value
from ridgeline.codegen.llvm.types import (
    decode,
    encode,
    is_float8,
    mangled,
    memory_type,
    register_type,
    splat,
    upper_half,
    vector,
)
from ridgeline.dtypes import DType
from ridgeline.simt.host.uniformity import WARP

Mask = Value | None
_HALVES = 16  # bits


def lane_numbers(numbers: Sequence[int], dtype: DType) -> Value:
    """A literal with a number a lane."""
    kind = register_type(dtype)
    text = ", ".join(f"{kind} {n}" for n in numbers)
    return Value(f"<{text}>", dtype, len(numbers))


def storage(dtype: DType) -> str:
    """An element's type in memory; half-precision floats move as integers."""
    kind = memory_type(dtype)
    return "i16" if kind in ("half", "bfloat") else kind


def _size_of(kind: str) -> int:
    """Bytes of an element or a vector, such as `i16` or `<32 x float>`."""
    lanes, _, element = kind.strip("<>").rpartition(" x ")
    named = {"float": 32, "half": 16, "bfloat": 16}
    bits = int(element[1:]) if element.startswith("i") else named.get(element, 64)
    return int(lanes or 1) * -(-bits // 8)


class WarpInstructions(ScalarEmitter):
    """Appends to one list of lines; stack memory is reserved where the function begins."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.reserved: list[str] = []
        self.stack_bytes = 0  # of what is reserved

    def insert(self, depth: int, instruction: str) -> str:
        """Append an instruction."""
        name = f"%v{self.fresh()}"
        self.line(f"{name} = {instruction}")
        return name

    def line(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def widen(self, value: Value, lanes: int) -> Value:
        """A value in every lane; made where it is asked for, since blocks do not dominate."""
        self._splats.clear()
        return super().widen(value, lanes)

    # ---- control flow -------------------------------------------------------------------------

    def label(self, word: str) -> str:
        """The name of a block that does not begin yet."""
        return f"{word}.{self.fresh()}"

    def begin(self, label: str) -> None:
        """Here begins a block."""
        self.lines.append(f"{label}:")

    def jump(self, label: str) -> None:
        """Go on with a block."""
        self.line(f"br label %{label}")

    def branch(self, condition: Value, yes: str, no: str) -> None:
        """Go on with one of two blocks."""
        self.line(f"br i1 {condition.name}, label %{yes}, label %{no}")

    # ---- stack memory -------------------------------------------------------------------------

    def reserve(self, kind: str, count: int = 1, align: int = 64) -> str:
        """Stack memory for elements of an LLVM type; its address."""
        name = f"%m{self.fresh()}"
        self.stack_bytes += count * _size_of(kind)
        self.reserved.append(f"  {name} = alloca {kind}, i64 {count}, align {align}")
        return name

    def get(self, address: str, dtype: DType, lanes: int) -> Value:
        """What lies in a reserved register."""
        kind = vector(register_type(dtype), lanes)
        name = self.insert(0, f"load {kind}, ptr {address}")
        return self._as(name, dtype, lanes)

    def set(self, address: str, value: Value) -> None:
        """Put a value into a reserved register."""
        self.line(f"store {value.type} {value.name}, ptr {address}")

    def _as(self, name: str, dtype: DType, lanes: int) -> Value:
        return self.instruction_value(name, dtype, lanes)

    def instruction_value(self, name: str, dtype: DType, lanes: int) -> Value:
        """A named result; narrow floats are float32 in registers."""
        narrow = dtype.kind == "float" and dtype.itemsize < 4
        return Value(name, dtypes.float32 if narrow else dtype, lanes)

    def offset(self, base: str, index: Value, kind: str) -> str:
        """The address of an element; with an index a lane, an address a lane."""
        return self.insert(0, f"getelementptr {kind}, ptr {base}, {index.type} {index.name}")

    # ---- masks --------------------------------------------------------------------------------

    def meet(self, a: Mask, b: Mask) -> Mask:
        """Lanes that are active in both."""
        if a is None or b is None:
            return b if a is None else a
        return self.both(a, b)

    def lanes_of(self, mask: Mask) -> Value:
        """A mask as a vector, where all lanes may be active."""
        return mask if mask is not None else Value(splat("i1 true", WARP), dtypes.bool_, WARP)

    def bits(self, mask: Mask) -> Value:
        """A mask as a 32-bit number."""
        if mask is None:
            return Value("-1", dtypes.uint32)
        return self.instruction_value(
            self.insert(0, f"bitcast <{WARP} x i1> {mask.name} to i32"), dtypes.uint32, 1
        )

    def any(self, mask: Mask) -> Value:
        """Whether a lane is active."""
        if mask is None:
            return Value("true", dtypes.bool_)
        if mask.lanes == 1:
            return mask
        bits = self.bits(mask)
        return Value(self.insert(0, f"icmp ne i32 {bits.name}, 0"), dtypes.bool_)

    def without(self, mask: Mask, gone: Value) -> Value:
        """Lanes of a mask that are not in another."""
        return self.both(self.lanes_of(mask), self.apply("not", dtypes.bool_, gone))

    def part(self, value: Value, first: int, count: int) -> Value:
        """Some lanes one after the other; one lane is a scalar."""
        if value.lanes == 1 or (first == 0 and count == value.lanes):
            return value
        if count == 1:
            text = f"extractelement {value.type} {value.name}, i64 {first}"
            return Value(self.insert(0, text), value.dtype)
        picks = ", ".join(f"i32 {first + n}" for n in range(count))
        text = (
            f"shufflevector {value.type} {value.name}, {value.type} poison, "
            f"<{count} x i32> <{picks}>"
        )
        return Value(self.insert(0, text), value.dtype, count)

    def permuted(self, value: Value, lanes: Sequence[int]) -> Value:
        """The lanes of a vector in a known order."""
        picks = ", ".join(f"i32 {lane}" for lane in lanes)
        text = (
            f"shufflevector {value.type} {value.name}, {value.type} poison, "
            f"<{len(lanes)} x i32> <{picks}>"
        )
        return Value(self.insert(0, text), value.dtype, len(lanes))

    def joined(self, parts: Sequence[Value]) -> Value:
        """Vectors and scalars one after the other as one vector."""
        kind = register_type(parts[0].dtype)
        total = sum(part.lanes for part in parts)
        made = Value("poison", parts[0].dtype, total)
        at = 0
        for part in parts:
            if part.lanes == 1:
                text = f"insertelement {made.type} {made.name}, {kind} {part.name}, i64 {at}"
            else:
                wide = self.permuted_into(part, at, total)
                picks = ", ".join(
                    f"i32 {total + n if at <= n < at + part.lanes else n}" for n in range(total)
                )
                text = (
                    f"shufflevector {made.type} {made.name}, {made.type} {wide.name}, "
                    f"<{total} x i32> <{picks}>"
                )
            made = Value(self.insert(0, text), made.dtype, total)
            at += part.lanes
        return made

    def permuted_into(self, part: Value, at: int, total: int) -> Value:
        """A short vector at a place in a longer one; what is around it is anything."""
        picks = ", ".join(
            f"i32 {n - at}" if at <= n < at + part.lanes else "i32 poison" for n in range(total)
        )
        text = (
            f"shufflevector {part.type} {part.name}, {part.type} poison, <{total} x i32> <{picks}>"
        )
        return Value(self.insert(0, text), part.dtype, total)

    # ---- memory as it lies in arrays ----------------------------------------------------------

    def raw_load(self, address: str, dtype: DType, lanes: int, mask: Mask) -> Value:
        """Neighbouring elements, of which those without an active lane are not read."""
        kind = storage(dtype)
        whole = vector(kind, lanes)
        if mask is None:
            text = f"load {whole}, ptr {address}, align {dtype.itemsize}"
        else:
            name = f"llvm.masked.load.{mangled(kind, lanes)}.p0"
            self.declarations.add(f"declare {whole} @{name}(ptr, <{lanes} x i1>, {whole})")
            text = (
                f"call {whole} @{name}(ptr align {dtype.itemsize} {address}, "
                f"<{lanes} x i1> {mask.name}, {whole} zeroinitializer)"
            )
        return self.decoded(self.insert(0, text), dtype, lanes)

    def gather(self, addresses: str, dtype: DType, mask: Mask) -> Value:
        """An element from an address a lane."""
        kind = storage(dtype)
        whole = vector(kind, WARP)
        name = f"llvm.masked.gather.{mangled(kind, WARP)}.v{WARP}p0"
        self.declarations.add(f"declare {whole} @{name}(<{WARP} x ptr>, <{WARP} x i1>, {whole})")
        text = (
            f"call {whole} @{name}(<{WARP} x ptr> align {dtype.itemsize} {addresses}, "
            f"<{WARP} x i1> {self.lanes_of(mask).name}, {whole} zeroinitializer)"
        )
        return self.decoded(self.insert(0, text), dtype, WARP)

    def raw_store(self, address: str, value: Value, dtype: DType, mask: Mask) -> None:
        """Neighbouring elements take a value a lane."""
        stored = self.encoded(value, dtype)
        whole = vector(storage(dtype), value.lanes)
        if mask is None:
            self.line(f"store {whole} {stored}, ptr {address}, align {dtype.itemsize}")
            return
        name = f"llvm.masked.store.{mangled(storage(dtype), value.lanes)}.p0"
        self.declarations.add(f"declare void @{name}({whole}, ptr, <{value.lanes} x i1>)")
        self.line(
            f"call void @{name}({whole} {stored}, ptr align {dtype.itemsize} {address}, "
            f"<{value.lanes} x i1> {mask.name})"
        )

    def scatter(self, addresses: str, value: Value, dtype: DType, mask: Mask) -> None:
        """An element to an address a lane; of equal addresses the last lane's stays."""
        stored = self.encoded(value, dtype)
        whole = vector(storage(dtype), WARP)
        name = f"llvm.masked.scatter.{mangled(storage(dtype), WARP)}.v{WARP}p0"
        self.declarations.add(f"declare void @{name}({whole}, <{WARP} x ptr>, <{WARP} x i1>)")
        self.line(
            f"call void @{name}({whole} {stored}, <{WARP} x ptr> align {dtype.itemsize} "
            f"{addresses}, <{WARP} x i1> {self.lanes_of(mask).name})"
        )

    def decoded(self, name: str, dtype: DType, lanes: int) -> Value:
        """What was loaded, as registers have it."""
        if dtype is dtypes.bool_:
            zero = "zeroinitializer" if lanes > 1 else "0"
            text = f"icmp ne {vector('i8', lanes)} {name}, {zero}"
            return Value(self.insert(0, text), dtype, lanes)
        if is_float8(dtype):
            return decode(self, Value(name, dtypes.uint8, lanes), dtype)
        if dtype is dtypes.bfloat16:
            bits = self.convert(Value(name, dtypes.uint16, lanes), dtypes.uint32)
            shift = self.widen(Value(str(_HALVES), dtypes.uint32), lanes)
            upper = self.insert(0, f"shl {bits.type} {bits.name}, {shift.name}")
            return self.apply("bitcast", dtypes.float32, Value(upper, dtypes.uint32, lanes))
        if dtype is dtypes.float16:
            half = vector("half", lanes)
            as_half = self.insert(0, f"bitcast {vector('i16', lanes)} {name} to {half}")
            wide = self.insert(0, f"fpext {half} {as_half} to {vector('float', lanes)}")
            return Value(wide, dtypes.float32, lanes)
        return Value(name, dtype, lanes)

    def encoded(self, value: Value, dtype: DType) -> str:
        """A register as memory has it."""
        if dtype is dtypes.bool_:
            return self.insert(0, f"zext {value.type} {value.name} to {vector('i8', value.lanes)}")
        if is_float8(dtype):
            return encode(self, value, dtype).name
        if dtype is dtypes.bfloat16:
            return upper_half(self, value).name
        if dtype is dtypes.float16:
            half = vector("half", value.lanes)
            narrow = self.insert(0, f"fptrunc {value.type} {value.name} to {half}")
            return self.insert(0, f"bitcast {half} {narrow} to {vector('i16', value.lanes)}")
        return value.name
