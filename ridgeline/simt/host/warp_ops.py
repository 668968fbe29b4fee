"""What lanes of a warp do together, and atomics, which lanes do one after the other."""

from __future__ import annotations

from ridgeline import dtypes
from ridgeline.codegen.llvm.scalar_ops import Value
from ridgeline.codegen.llvm.types import register_type
from ridgeline.dtypes import DType
from ridgeline.simt import ir
from ridgeline.simt.host.accesses import WarpAccesses
from ridgeline.simt.host.expressions import NotForHost
from ridgeline.simt.host.instructions import Mask, lane_numbers, storage
from ridgeline.simt.host.uniformity import WARP

_REDUCTIONS = {"sum": "add", "min": "min", "max": "max", "and": "and", "or": "or", "xor": "xor"}
_MOVES = ("shfl", "shfl_up", "shfl_down", "shfl_xor")
_INTEGER_ATOMICS = {
    "add": "add", "sub": "sub", "and": "and", "or": "or", "xor": "xor", "exch": "xchg",
    "inc": "uinc_wrap", "dec": "udec_wrap",
}  # fmt: skip
_FLOAT_ATOMICS = {"add": "fadd", "sub": "fsub", "exch": "xchg", "min": "fminimum",
                  "max": "fmaximum"}  # fmt: skip


class WarpCollectives(WarpAccesses):
    """Shuffles, votes, reductions and atomics of the active lanes."""

    def warp_op(self, op: ir.WarpOp) -> None:
        """A `WarpOp` statement."""
        if op.name == "sync":
            return
        if op.name == "activemask":
            self.give(op.target, self.bits(self.mask))
            return
        assert op.value is not None
        members = self._members(op)
        value = self.value(op.value)
        if op.name in _MOVES:
            self.give(op.target, self._moved(op, value))
        elif op.name in ("ballot", "any", "all"):
            self.give(op.target, self._vote(op, value, members))
        elif op.name == "match":
            self.give(op.target, self._match(value, members))
        else:
            self.give(op.target, self._reduced(op, value, members))

    def give(self, target: ir.Variable | None, value: Value) -> None:
        """A variable takes a result."""
        if target is not None:
            lanes = WARP if target.name in self.of.uniformity.varying else 1
            self.assign(self.slots[target.name], self.convert(value, target.dtype), lanes)

    def _members(self, op: ir.WarpOp) -> Mask:
        """The active lanes that the operation's mask names."""
        if op.mask is None:
            return self.mask
        bits = self.convert(self.value(op.mask), dtypes.uint32)
        if bits.lanes > 1:  # all that take part name the same lanes; masks of groups differ
            raise NotForHost("a mask that differs between lanes")
        named = self.insert(0, f"bitcast i32 {bits.name} to <{WARP} x i1>")
        return self.meet(self.mask, Value(named, dtypes.bool_, WARP))

    def _moved(self, op: ir.WarpOp, value: Value) -> Value:
        value = self.widen(value, WARP)
        assert op.argument is not None
        known = self.literal_of(op.argument)
        if known is not None:
            return self.permuted(value, [_source(op.name, n, known, op.width) for n in range(WARP)])
        lanes = lane_numbers(range(WARP), dtypes.int32)
        by = self.widen(self.convert(self.value(op.argument), dtypes.int32), WARP)
        source = self._sources(op, lanes, by)
        spread = self.reserve(value.type)
        self.set(spread, value)
        kind = register_type(value.dtype)
        if kind == "i1":
            raise NotForHost("shuffles of truth values by a distance that is computed")
        addresses = self.offset(spread, source, kind)
        return self.gather(addresses, value.dtype, None)

    def _sources(self, op: ir.WarpOp, lanes: Value, by: Value) -> Value:
        """The lane that each lane reads, where the distance is not known."""
        last = self.widen(Value(str(op.width - 1), dtypes.int32), WARP)
        group = self.widen(Value(str(WARP - op.width), dtypes.int32), WARP)
        start = self.apply("and", dtypes.int32, lanes, group)
        end = self.apply("or", dtypes.int32, start, last)
        if op.name == "shfl":
            return self.apply("or", dtypes.int32, start, self.apply("and", dtypes.int32, by, last))
        if op.name == "shfl_xor":
            wanted = self.apply("xor", dtypes.int32, lanes, by)
        else:
            sign = "sub" if op.name == "shfl_up" else "add"
            wanted = self.apply(sign, dtypes.int32, lanes, by)
        low = self.apply("le", dtypes.bool_, start, wanted)
        high = self.apply("le", dtypes.bool_, wanted, end)
        if op.name == "shfl_xor":  # lanes of earlier groups may be read, as in CUDA
            low = self.apply("le", dtypes.bool_, self.widen(Value("0", dtypes.int32), WARP), wanted)
        return self.choose(self.both(low, high), wanted, lanes)

    def _vote(self, op: ir.WarpOp, value: Value, members: Mask) -> Value:
        yes = self.meet(members, self.widen(value, WARP))
        if op.name == "ballot":
            return self.bits(yes)
        if op.name == "any":
            return self.any(yes)
        missing = self.without(members, self.widen(value, WARP))
        return self.apply("not", dtypes.bool_, self.any(missing))

    def _match(self, value: Value, members: Mask) -> Value:
        """For every lane the lanes with an equal value."""
        value = self.widen(value, WARP)
        found = Value("zeroinitializer", dtypes.uint32, WARP)
        for lane in range(WARP):
            one = self.widen(self.part(value, lane, 1), WARP)
            equal = self.meet(members, self.apply("eq", dtypes.bool_, value, one))
            bits = self.bits(equal)
            text = f"insertelement {found.type} {found.name}, i32 {bits.name}, i64 {lane}"
            found = Value(self.insert(0, text), dtypes.uint32, WARP)
        return found

    def _reduced(self, op: ir.WarpOp, value: Value, members: Mask) -> Value:
        assert op.value is not None
        name, dtype = _REDUCTIONS[op.name], op.value.dtype
        value = self.widen(value, WARP)
        if members is not None:
            value = self.choose(
                members, value, self.widen(self._neutral(op.name, dtype, value), WARP)
            )
        step = WARP // 2
        while step:
            other = self.permuted(value, [lane ^ step for lane in range(WARP)])
            value = self.rounded(self.apply(name, value.dtype, value, other), dtype)
            step //= 2
        return self.part(value, 0, 1)

    def _neutral(self, name: str, dtype: DType, like: Value) -> Value:
        if name in ("sum", "or", "xor"):
            return self._literal(0, Value("", like.dtype))
        if name == "and":
            return Value("-1", like.dtype)
        if dtype.kind == "float":
            return self._literal(
                float("inf") if name == "min" else float("-inf"), Value("", like.dtype)
            )
        bits, signed = dtype.bits, dtype.kind == "int"
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        return Value(str(high if name == "min" else low), like.dtype)

    # ---- atomics ------------------------------------------------------------------------------

    def atomic(self, op: ir.Atomic) -> None:
        """Active lanes in turn, lowest first."""
        if op.array.space == "local" or op.array.dtype.itemsize < 4:
            raise NotForHost("atomics on this memory")
        inside = self.inside(op.array, op.index)
        if inside is not None:
            self.report_outside(inside, op.place)
        mask = self._active(inside)
        addresses = self._lane_addresses(op.array, op.index)
        value = None if op.value is None else self.widen(self.value(op.value), WARP)
        compare = None if op.compare is None else self.widen(self.value(op.compare), WARP)
        kept = self.reserve(f"<{WARP} x {storage(op.array.dtype)}>") if op.target else ""
        self._in_turn(op, mask, addresses, value, compare, kept)
        if op.target is not None:
            self.give(op.target, self.get(kept, op.array.dtype, WARP))

    def _in_turn(
        self, op: ir.Atomic, mask: Mask, addresses: str, value: Value | None,
        compare: Value | None, kept: str,
    ) -> None:  # fmt: skip
        turn, act, on, done = (self.label(word) for word in ("turn", "act", "on", "done"))
        counter = self.reserve("i32")
        self.line(f"store i32 0, ptr {counter}")
        self.jump(turn)
        self.begin(turn)
        lane = self.insert(0, f"load i32, ptr {counter}")
        bit = self.insert(0, f"extractelement <{WARP} x i1> {self.lanes_of(mask).name}, i32 {lane}")
        self.branch(Value(bit, dtypes.bool_), act, on)
        self.begin(act)
        address = self.insert(0, f"extractelement <{WARP} x ptr> {addresses}, i32 {lane}")
        own = [
            None if v is None else self.insert(0, f"extractelement {v.type} {v.name}, i32 {lane}")
            for v in (value, compare)
        ]
        old = self._atomic_access(op, address, own[0], own[1])
        if kept and old:
            at = self.insert(0, f"getelementptr {storage(op.array.dtype)}, ptr {kept}, i32 {lane}")
            self.line(f"store {storage(op.array.dtype)} {old}, ptr {at}")
        self.jump(on)
        self.begin(on)
        following = self.insert(0, f"add i32 {lane}, 1")
        self.line(f"store i32 {following}, ptr {counter}")
        more = self.insert(0, f"icmp ult i32 {following}, {WARP}")
        self.branch(Value(more, dtypes.bool_), turn, done)
        self.begin(done)

    def _atomic_access(
        self, op: ir.Atomic, address: str, value: str | None, compare: str | None
    ) -> str:
        kind, size = storage(op.array.dtype), op.array.dtype.itemsize
        if op.name == "load":
            return self.insert(0, f"load atomic {kind}, ptr {address} seq_cst, align {size}")
        if op.name == "store":
            self.line(f"store atomic {kind} {value}, ptr {address} seq_cst, align {size}")
            return ""
        if op.name == "cas":
            bits = f"i{8 * size}"
            old, new = compare, value
            if kind != bits:
                old, new = (
                    self.insert(0, f"bitcast {kind} {v} to {bits}") for v in (compare, value)
                )
            pair = self.insert(
                0, f"cmpxchg ptr {address}, {bits} {old}, {bits} {new} seq_cst seq_cst"
            )
            found = self.insert(0, f"extractvalue {{ {bits}, i1 }} {pair}, 0")
            return found if kind == bits else self.insert(0, f"bitcast {bits} {found} to {kind}")
        return self.insert(0, f"atomicrmw {self._opcode(op)} ptr {address}, {kind} {value} seq_cst")

    def _opcode(self, op: ir.Atomic) -> str:
        kind = op.array.dtype.kind
        if kind == "float":
            return _FLOAT_ATOMICS[op.name]
        if op.name in ("min", "max"):
            return op.name if kind == "int" else f"u{op.name}"
        return _INTEGER_ATOMICS[op.name]


def _source(name: str, lane: int, by: int, width: int) -> int:
    """The lane that a lane reads; its own where that is outside its group."""
    start = lane - lane % width
    if name == "shfl":
        return start + by % width
    wanted = {"shfl_up": lane - by, "shfl_down": lane + by}.get(name, lane ^ by)
    if name == "shfl_xor":
        return wanted if wanted < start + width else lane
    return wanted if start <= wanted < start + width else lane
