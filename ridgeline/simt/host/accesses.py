"""Elements of arrays: runs of memory where the lanes' addresses are known to be neighbours.

No access leaves its array. An index that may be out of bounds is compared; where it is outside,
nothing is read or written, and the first such place is reported when the launch ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ridgeline import dtypes
from ridgeline.codegen.llvm.scalar_ops import Value
from ridgeline.codegen.llvm.types import register_type, vector
from ridgeline.simt import ir
from ridgeline.simt.host.expressions import NotForHost, WarpExpressions
from ridgeline.simt.host.instructions import Mask, lane_numbers, storage
from ridgeline.simt.host.lane_forms import UNIT, LaneForm
from ridgeline.simt.host.uniformity import WARP

_MOST_RUNS = 8
_WIDEST = 4 * WARP  # elements of one load out of which lanes are picked
OUT_OF_BOUNDS, ASSERTION, DIVERGENT = 1, 2, 3  # what a report says


@dataclass(frozen=True, slots=True)
class LaneRun:
    """Lanes one after the other, and how far their elements are from the first one's."""

    first: int
    offsets: tuple[int, ...]

    @property
    def lanes(self) -> int:
        """How many there are."""
        return len(self.offsets)

    @property
    def same(self) -> bool:
        """One element for all."""
        return not any(self.offsets)

    @property
    def neighbours(self) -> bool:
        """An element each, side by side."""
        return self.offsets == tuple(range(self.lanes))


@dataclass(frozen=True, slots=True)
class AxisForm:
    """An index along one axis by its form, and the distance of neighbours along it."""

    form: LaneForm
    stride: int | Value


class WarpAccesses(WarpExpressions):
    """Reads and writes of the active lanes."""

    memory: dict[str, str]  # the address of each array
    report_to: str  # where the first error is written

    # ---- reading ------------------------------------------------------------------------------

    def element(self, expr: ir.ElementRead) -> Value:
        """An element of an array; a default takes its place where the index is outside."""
        if expr.peer is not None:
            raise NotForHost("the shared memory of another block")
        if expr.array.name in self.of.scalarised:
            return self.get(self.slots[self.member(expr.array, expr.index)], expr.dtype, WARP)
        inside = self.inside(expr.array, expr.index)
        if expr.default is None and inside is not None:
            self.report_outside(inside, expr.place)
        found = self._read(expr.array, expr.index, inside)
        if expr.default is None or inside is None:
            return found
        return self.choose(inside, found, self.value(expr.default))

    def member(self, array: ir.ThreadArray, index: Sequence[ir.ThreadExpr]) -> str:
        """The variable that an element of a small local array is."""
        at = 0
        for size, expr in zip(array.shape, index):
            known = self.literal_of(expr)
            assert known is not None, "only arrays indexed by literals are variables"
            at = at * int(size) + known
        return f"{array.name}[{at}]"

    def inside(self, array: ir.ThreadArray, index: Sequence[ir.ThreadExpr]) -> Value | None:
        """Whether an index is in bounds; None where it cannot be outside."""
        found: Value | None = None
        for axis, expr in enumerate(index):
            size = self._size(array, axis)
            low, high = self.range_of(expr)
            if isinstance(size, int) and low >= 0 and high < size:
                continue
            limit = Value(str(size), dtypes.int32) if isinstance(size, int) else size
            at, limit = self.matched(self._integer_of(expr), limit)
            if at.dtype.bits == 64:
                limit = self.convert(limit, dtypes.int64)
            text = f"icmp ult {at.type} {at.name}, {limit.name}"
            fits = Value(self.insert(0, text), dtypes.bool_, at.lanes)
            found = fits if found is None else self.both(found, fits)
        return found

    def _integer_of(self, expr: ir.ThreadExpr) -> Value:
        at = self.value(expr)
        return at if at.dtype.bits >= 32 else self.convert(at, dtypes.int32)

    def _size(self, array: ir.ThreadArray, axis: int) -> int | Value:
        size = array.shape[axis]
        if size == "dynamic":
            return self.of.shared_bytes // array.dtype.itemsize
        return size if isinstance(size, int) else self.extents[array.name, axis]

    def report_outside(self, inside: Value, place: ir.SourcePlace) -> None:
        """The first active lane that is outside is an error."""
        outside = self.apply("not", dtypes.bool_, inside)
        bad = self.any(self.meet(self.mask, self.widen(outside, WARP)))
        self.report(bad, OUT_OF_BOUNDS, place)

    def report(self, bad: Value, what: int, place: ir.SourcePlace) -> None:
        """Note an error, unless there is one already."""
        failed, on = self.label("failed"), self.label("on")
        self.branch(bad, failed, on)
        self.begin(failed)
        code = what << 32 | self.of.place_number(place)
        words = f"{self.report_to}, i64 0, i64 {code} monotonic monotonic"
        self.insert(0, f"cmpxchg ptr {words}")
        self.jump(on)
        self.begin(on)

    def unstopped(self) -> Value:
        """False once a block of the launch has failed, or somebody has stopped it."""
        word = self.insert(0, f"load volatile i64, ptr {self.report_to}")
        return Value(self.insert(0, f"icmp eq i64 {word}, 0"), dtypes.bool_)

    def _read(
        self, array: ir.ThreadArray, index: Sequence[ir.ThreadExpr], inside: Value | None
    ) -> Value:
        if array.space == "local":
            mask = self._active(inside)
            if any(map(self.varies, index)):
                return self.gather(self._lane_addresses(array, index), array.dtype, mask)
            return self.raw_load(self._row(array, index), array.dtype, WARP, mask)
        axes = self._axes(array, index)
        runs = None if axes is None else _runs(axes)
        if axes is None or runs is None:
            return self.gather(
                self._lane_addresses(array, index), array.dtype, self._active(inside)
            )
        if len(runs) == 1 and runs[0].same:
            return self._read_one(array, axes, 0, inside)
        mask = self._active(inside)
        if any(not (run.same or run.neighbours) for run in runs):
            near = min(runs[0].offsets) >= 0 and max(runs[0].offsets) < _WIDEST
            if mask is None and len(runs) == 1 and near:
                return self._picked(array, axes, runs[0])
            return self.gather(self._lane_addresses(array, index), array.dtype, mask)
        parts = [self._read_run(array, axes, run, mask) for run in runs]
        return parts[0] if len(parts) == 1 else self.joined(parts)

    def _active(self, inside: Value | None) -> Mask:
        return self.mask if inside is None else self.meet(self.mask, self.widen(inside, WARP))

    def _read_run(
        self, array: ir.ThreadArray, axes: Sequence[AxisForm], run: LaneRun, mask: Mask
    ) -> Value:
        part = None if mask is None else self.part(mask, run.first, run.lanes)
        if run.same:
            some = None if part is None else self._some(part)
            return self.widen(self._read_one(array, axes, run.first, some), run.lanes)
        address = self._address(array, axes, run.first)
        return self.raw_load(address, array.dtype, run.lanes, part)

    def _some(self, bits: Value) -> Value:
        """Whether one of a few lanes is active."""
        if bits.lanes == 1:
            return bits
        word = self.insert(0, f"bitcast {bits.type} {bits.name} to i{bits.lanes}")
        return Value(self.insert(0, f"icmp ne i{bits.lanes} {word}, 0"), dtypes.bool_)

    def _read_one(
        self, array: ir.ThreadArray, axes: Sequence[AxisForm], lane: int, inside: Value | None
    ) -> Value:
        """One element for several lanes; where it must not be read, any number."""
        address = self._address(array, axes, lane)
        if inside is not None:
            spare = self.reserve("i64")
            address = self.insert(0, f"select i1 {inside.name}, ptr {address}, ptr {spare}")
        return self.raw_load(address, array.dtype, 1, None)

    def _picked(self, array: ir.ThreadArray, axes: Sequence[AxisForm], run: LaneRun) -> Value:
        width = max(run.offsets) + 1
        wide = self.raw_load(self._address(array, axes, run.first), array.dtype, width, None)
        return self.permuted(wide, run.offsets)

    # ---- writing ------------------------------------------------------------------------------

    def write(self, statement: ir.ElementWrite) -> None:
        """An element takes a value."""
        if statement.peer is not None:
            raise NotForHost("the shared memory of another block")
        array, index = statement.array, statement.index
        value = self.value(statement.value)
        if array.name in self.of.scalarised:
            self.assign(self.slots[self.member(array, index)], value, WARP)
            return
        inside = self.inside(array, index)
        if inside is not None and not statement.guarded:
            self.report_outside(inside, statement.place)
        axes = None if array.space == "local" else self._axes(array, index)
        if axes is not None and not any(map(self.varies, (*index, statement.value))):
            self._write_one(array, axes, value, inside)
            return
        mask = self._active(inside)
        wide = self.widen(value, WARP)
        if array.space == "local" and not any(map(self.varies, index)):
            self.raw_store(self._row(array, index), wide, array.dtype, mask)
            return
        runs = None if axes is None else _runs(axes)
        if axes is None or runs is None or not all(run.neighbours for run in runs):
            self.scatter(self._lane_addresses(array, index), wide, array.dtype, mask)
            return
        for run in runs:
            part = None if mask is None else self.part(mask, run.first, run.lanes)
            address = self._address(array, axes, run.first)
            self.raw_store(address, self.part(wide, run.first, run.lanes), array.dtype, part)

    def _write_one(
        self, array: ir.ThreadArray, axes: Sequence[AxisForm], value: Value, inside: Value | None
    ) -> None:
        """One value to one element, if any lane is active."""
        some = None if self.mask is None else self.any(self.mask)
        if inside is not None:
            some = inside if some is None else self.both(some, inside)
        if some is None:
            self.raw_store(self._address(array, axes, 0), value, array.dtype, None)
            return
        store, on = self.label("store"), self.label("on")
        self.branch(some, store, on)
        self.begin(store)
        self.raw_store(self._address(array, axes, 0), value, array.dtype, None)
        self.jump(on)
        self.begin(on)

    def assign(self, slot: str, value: Value, lanes: int) -> None:
        """A register takes a value in the active lanes."""
        if lanes == 1:
            self.set(slot, value)
            return
        value = self.widen(value, WARP)
        if self.mask is not None:
            kind = vector(register_type(value.dtype), WARP)
            held = Value(self.insert(0, f"load {kind}, ptr {slot}"), value.dtype, WARP)
            value = self.choose(self.mask, value, held)
        self.set(slot, value)

    # ---- addresses ----------------------------------------------------------------------------

    def _axes(self, array: ir.ThreadArray, index: Sequence[ir.ThreadExpr]) -> list[AxisForm] | None:
        forms = [self.forms.form(expr) for expr in index]
        strides = self._strides(array)
        if any(form is None for form in forms):
            return None
        return [AxisForm(form, stride) for form, stride in zip(forms, strides) if form is not None]

    def _strides(self, array: ir.ThreadArray) -> list[int | Value]:
        """Distances of neighbours along each axis; of sizes that are not known, 64-bit numbers."""
        found: list[int | Value] = []
        for axis in range(len(array.shape)):
            inner = [self._size(array, later) for later in range(axis + 1, len(array.shape))]
            known = prod(size for size in inner if isinstance(size, int))
            total: int | Value = known
            for size in inner:
                if not isinstance(size, int):
                    wide = self.convert(size, dtypes.int64)
                    by = Value(str(total), dtypes.int64) if isinstance(total, int) else total
                    total = self.apply("mul", dtypes.int64, wide, by)
            found.append(total)
        return found

    def _address(self, array: ir.ThreadArray, axes: Sequence[AxisForm], lane: int) -> str:
        """The address of one lane's element."""
        total = Value("0", dtypes.int64)
        for axis in axes:
            at = Value("0", dtypes.int64)
            for term, lanes in axis.form.terms.items():
                if term == UNIT:
                    part = Value(str(lanes[lane]), dtypes.int64)
                else:
                    part = self.convert(self.value(term), dtypes.int64)
                    by = Value(str(lanes[lane]), dtypes.int64)
                    part = part if lanes[lane] == 1 else self.apply("mul", dtypes.int64, part, by)
                at = self.apply("add", dtypes.int64, at, part)
            stride = axis.stride
            step = Value(str(stride), dtypes.int64) if isinstance(stride, int) else stride
            total = self.apply(
                "add", dtypes.int64, total, self.apply("mul", dtypes.int64, at, step)
            )
        return self.offset(self.memory[array.name], total, storage(array.dtype))

    def _row(self, array: ir.ThreadArray, index: Sequence[ir.ThreadExpr]) -> str:
        """Where the lanes' elements of a local array lie side by side, for one index."""
        total = self._flat(array, index)
        by = Value(str(WARP), dtypes.int64)
        first = self.apply("mul", dtypes.int64, total, by)
        return self.offset(self.memory[array.name], first, storage(array.dtype))

    def _flat(self, array: ir.ThreadArray, index: Sequence[ir.ThreadExpr]) -> Value:
        """The number of an element, in row-major order."""
        total = Value("0", dtypes.int64)
        for expr, stride in zip(index, self._strides(array)):
            at = self.convert(self._integer_of(expr), dtypes.int64)
            step = Value(str(stride), dtypes.int64) if isinstance(stride, int) else stride
            total = self.apply(
                "add", dtypes.int64, total, self.apply("mul", dtypes.int64, at, step)
            )
        return total

    def _lane_addresses(self, array: ir.ThreadArray, index: Sequence[ir.ThreadExpr]) -> str:
        """An address a lane."""
        wide = self.widen(self._flat(array, index), WARP)
        if array.space == "local":  # elements of a warp's lanes lie side by side
            lanes = lane_numbers(range(WARP), dtypes.int64)
            count = self.widen(Value(str(WARP), dtypes.int64), WARP)
            wide = self.apply(
                "add", dtypes.int64, self.apply("mul", dtypes.int64, wide, count), lanes
            )
        return self.offset(self.memory[array.name], wide, storage(array.dtype))


def _runs(axes: Sequence[AxisForm]) -> list[LaneRun] | None:
    """The lanes by what their elements have in common; None where they are too many runs."""
    runs: list[LaneRun] = []
    before: tuple[object, ...] | None = None
    first, offsets = 0, list[int]()
    for lane in range(WARP):
        signature, offset = _signature(axes, lane)
        if signature != before:
            if offsets:
                runs.append(_run(first, offsets))
            before, first, offsets = signature, lane, []
        offsets.append(offset)
    runs.append(_run(first, offsets))
    cut = [piece for run in runs for piece in _cut(run)]
    return cut if len(cut) <= _MOST_RUNS else (runs if len(runs) == 1 else None)


def _run(first: int, offsets: list[int]) -> LaneRun:
    return LaneRun(first, tuple(offset - offsets[0] for offset in offsets))


def _cut(run: LaneRun) -> list[LaneRun]:
    """A run as pieces of equal or neighbouring elements."""
    if run.same or run.neighbours:
        return [run]
    pieces: list[LaneRun] = []
    at = 0
    while at < run.lanes:
        end = at + 1
        step = run.offsets[end] - run.offsets[at] if end < run.lanes else 0
        if step in (0, 1):
            while end < run.lanes and run.offsets[end] - run.offsets[end - 1] == step:
                end += 1
        pieces.append(_run(run.first + at, list(run.offsets[at:end])))
        at = end
    return pieces


def _signature(axes: Sequence[AxisForm], lane: int) -> tuple[tuple[object, ...], int]:
    """What lanes of one run have in common, and how far this one is along."""
    fixed: list[object] = []
    offset = 0
    for axis in axes:
        for term, lanes in axis.form.terms.items():
            if term == UNIT and isinstance(axis.stride, int):
                offset += lanes[lane] * axis.stride
            else:
                fixed.append(lanes[lane])
    return tuple(fixed), offset
