"""A product of matrices as one kernel for Hopper: the skeleton around what is made of the sums.

A block has three groups of four warps. One thread of the first fetches tiles of both operands into
a ring in shared memory, as far ahead as there is room; the other two groups multiply what has come
(`Mma` of a `TensorCoreTile`), and finish a tile in registers: threads exchange sums in fours, until
each has eight columns side by side, for which the statements behind the sums run as a vector loop.
Blocks stay and go on to the next tile, whose operands are fetched while the last one is finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from ridgeline.codegen.cuda.access import Registers, plain_name
from ridgeline.codegen.cuda.barriers import Memory, memory
from ridgeline.codegen.cuda.cheap_functions import few_steps
from ridgeline.codegen.cuda.hopper.instructions import (
    DESCRIPTOR,
    INSTRUCTIONS,
    STEP,
    SWIZZLE,
    Multiply,
    fetch,
)
from ridgeline.codegen.cuda.hopper.product_text import (
    BEGINS,
    CUTS,
    GOES_ON,
    HELD_IN_FULL,
    HELD_ROUNDED,
    JOINS,
    KERNEL,
    MULTIPLY_STEP,
    RELEASE,
    TAKES_BY_TESTS,
    TAKES_EACH,
    TOOLS,
    ZEROES,
)
from ridgeline.codegen.cuda.hopper.tiles import OperandTiles
from ridgeline.codegen.cuda.parameters import parameters
from ridgeline.codegen.cuda.prelude import PRELUDE
from ridgeline.codegen.cuda.source import KernelSource, Launch, TileMap
from ridgeline.codegen.cuda.statements import Statements
from ridgeline.codegen.cuda.threads import RegisterSpread, Threads
from ridgeline.codegen.cuda.types import is_narrow_float, memory_type
from ridgeline.codegen.cuda.vectors import Guards
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.ir import Expr, For, Kernel, Load, OpExpr, Seq, Stmt, Store
from ridgeline.loops.steps.step import known_extent
from ridgeline.loops.tensor_cores import OCTET, ProductNest, TensorCoreTile, work_behind

GROUP = 128  # threads that multiply together
TEAMS = 2  # groups that multiply
THREADS = GROUP * (TEAMS + 1)
_INSTRUCTION_ROWS = 64
_BLOCK_LIMIT = 1024  # bytes that shared memory may have to be moved by, to begin at an atom
_BARRIER = 8
_ALIGNED = 256
_MAPS = tuple(f"const __grid_constant__ TensorMap {name}_map" for name in ("left", "right"))
_TURNS = TEAMS * (_BARRIER + 4)  # whose turn it is, and who ends a tile
_ZEROING = 256  # threads
_MOST_INSTRUCTIONS = 2000  # that finish a tile one octet after the other
_REGISTERS, _MOST_AHEAD = 184, 4  # for sums and what is read ahead, and how many octets that is


def stage_bytes(tile: TensorCoreTile) -> int:
    """The bytes of a tile of each operand."""
    return (tile.rows + tile.columns) * SWIZZLE


def shared_bytes(tile: TensorCoreTile) -> int:
    """The shared memory that a block asks for."""
    return tile.stages * (stage_bytes(tile) + 2 * _BARRIER) + _TURNS + _BLOCK_LIMIT


def product_source(kernel: Kernel, tile: TensorCoreTile, nest: ProductNest) -> KernelSource:
    """The text of a kernel that is one product."""
    return _Product(kernel, tile, nest).source()


@dataclass(frozen=True)
class _Product:
    kernel: Kernel
    tile: TensorCoreTile
    nest: ProductNest

    def source(self) -> KernelSource:
        """The text, and how to launch it."""
        cuts, name = self.tile.cut > 0, plain_name(self.kernel.name)
        parts = [PRELUDE, INSTRUCTIONS, DESCRIPTOR, *self._fetches(), self._multiply.text()]
        parts += [self._constants(), self._held(), MULTIPLY_STEP, RELEASE, self._finish(), TOOLS]
        parts += [CUTS, self._zeroes(f"{name}_0")] * cuts
        symbols = [f"{name}_{n}" for n in range(1 + cuts)]
        launches = [
            Launch(symbol, (ir.index(blocks),), threads, shared, cluster, self._maps)
            for symbol, blocks, threads, shared, cluster in (
                (symbols[0], 1, _ZEROING, 0, 1),
                (symbols[-1], self._clusters, THREADS, shared_bytes(self.tile), self.tile.cluster),
            )
        ]
        text = "".join([*parts, self._text(symbols[-1])])
        return KernelSource(self.kernel.name, text, tuple(launches[not cuts :]), self._workspace)

    @property
    def _maps(self) -> tuple[TileMap, ...]:
        return self._left.map, self._right.map

    @property
    def _counts(self) -> int:
        """Bytes of the numbers of parts that are there, of every tile that is cut."""
        size = 4 * self.tile.cut * self.tile.cluster * TEAMS
        return -(-size // _ALIGNED) * _ALIGNED

    @property
    def _workspace(self) -> int:
        """What parts of sums take, and their numbers."""
        tile = self.tile
        parts = tile.parts * tile.cut * tile.cluster * tile.rows * tile.columns * 4
        return self._counts + parts if tile.cut else 0

    def _zeroes(self, symbol: str) -> str:
        text = ZEROES.replace("SYMBOL", symbol)
        return text.replace("PARAMETERS", parameters(self.kernel, True, _MAPS))

    @cached_property
    def _left(self) -> OperandTiles:
        nest, parameter = self.nest, self._parameter(self.nest.left.buffer)
        counts = (nest.row_count, nest.depth, nest.batch_counts)
        return OperandTiles(nest.left, parameter, *counts, self.tile.rows, 1, "left", "row")

    @cached_property
    def _right(self) -> OperandTiles:
        nest, parameter = self.nest, self._parameter(self.nest.right.buffer)
        counts = (nest.columns, nest.depth, nest.batch_counts)
        return OperandTiles(
            nest.right, parameter, *counts, self.tile.columns, self.tile.cluster, "right", "column"
        )

    def _parameter(self, buffer: ir.Buffer) -> int:
        return self.kernel.params.index(buffer)

    @property
    def _multiply(self) -> Multiply:
        left, right = self.nest.left, self.nest.right
        columns = self.tile.columns // TEAMS if self._aside else self.tile.columns
        return Multiply(columns, left.dtype, left.turned, right.turned)

    @property
    def _aside(self) -> bool:
        """True where the teams share the columns of a tile, since it has but 64 rows."""
        return not self.tile.in_turns and self.tile.rows == _INSTRUCTION_ROWS

    @property
    def _aside_step(self) -> int:
        """Bytes from the columns of one team to those of the other."""
        columns, right = self._multiply.columns, self.nest.right
        halves = right.turned and columns % (SWIZZLE // right.dtype.itemsize)
        return columns * (right.dtype.itemsize if halves else SWIZZLE)

    @property
    def _own_rows(self) -> int:
        """Rows that a team multiplies."""
        whole = self.tile.in_turns or self._aside
        return self.tile.rows if whole else self.tile.rows // TEAMS

    @property
    def _tall(self) -> int:
        """Rows of tiles, those of the blocks of a cluster together."""
        return -(-self.nest.row_count // (self.tile.rows * self.tile.cluster))

    @property
    def _wide(self) -> int:
        return -(-self.nest.columns // self.tile.columns)

    @property
    def _tiles(self) -> int:
        return self._tall * self._wide * prod(self.nest.batch_counts)

    @property
    def _clusters(self) -> int:
        work = self._tiles + self.tile.cut * (max(self.tile.parts, 1) - 1)
        return min(work, self.tile.blocks // self.tile.cluster)

    def _fetches(self) -> list[str]:
        """The instructions that fetch tiles."""
        needed = {(tiles.rank, tiles.blocks > 1) for tiles in (self._left, self._right)}
        return [fetch(rank, shared) for rank, shared in sorted(needed)]

    def _constants(self) -> str:
        nest, tile, multiply = self.nest, self.tile, self._multiply
        depth = SWIZZLE // nest.left.dtype.itemsize
        turned_step = multiply.depth * SWIZZLE
        numbers = {
            "ROWS": nest.row_count, "OCTETS": -(-nest.columns // OCTET),
            "TILE_ROWS": tile.rows, "TILE_COLUMNS": tile.columns, "TILE_DEPTH": depth,
            "STEPS": -(-nest.depth // depth), "STAGES": tile.stages, "STAGE": stage_bytes(tile),
            "CLUSTER": tile.cluster, "NEAR": tile.near, "TALL": self._tall, "WIDE": self._wide,
            "WHOLE": self._tiles - max(tile.cut, 1), "IN_TURNS": int(tile.in_turns),
            "ASIDE": int(self._aside), "ASIDE_STEP": self._aside_step,
            "OWN_ROWS": self._own_rows,
            "BLOCKS": self._own_rows // _INSTRUCTION_ROWS, "COUNT": multiply.columns // 2,
            "RELEASES": 1 if tile.in_turns else TEAMS, "WORDS": 2 if self._rounded is None else 1,
            "LEFT_STEP": turned_step if nest.left.turned else STEP,
            "RIGHT_STEP": turned_step if nest.right.turned else STEP,
        }  # fmt: skip
        numbers |= {
            "AHEAD": self._ahead,
            "CUT": max(tile.cut, 1),
            "PARTS": tile.parts if tile.cut else 1,
        }
        if tile.cut:
            numbers |= {"COUNTS": self._counts, "PLACES": 1 if tile.in_turns else TEAMS}
        lines = [f"constexpr int {name} = {value};" for name, value in numbers.items()]
        return "\n".join([*lines, f"typedef {multiply.total} TOTAL;", ""])

    def _held(self) -> str:
        if self._rounded is None:
            return HELD_IN_FULL
        return HELD_ROUNDED.replace("KIND", self._rounded.name)

    @cached_property
    def _rounded(self) -> DType | None:
        """The type of 16 bits to which all that reads the sums rounds them first."""
        expressions = [e for s in ir.statements(self.nest.behind) for e in ir.expressions(s)]
        kinds: set[DType | None] = set()
        for expr in ir.subexpressions(*expressions):
            if any(map(self._is_sum, ir.children(expr))):
                rounds = isinstance(expr, OpExpr) and expr.name == "cast"
                kinds.add(expr.dtype if rounds and expr.dtype.itemsize == 2 else None)
        kinds |= {None for root in expressions if self._is_sum(root)}
        found = kinds.pop() if len(kinds) == 1 else None
        return found if found is not None and is_narrow_float(found) else None

    def _is_sum(self, expr: Expr) -> bool:
        return isinstance(expr, Load) and expr.buffer == self.nest.sums

    def _batches(self) -> list[str]:
        return [loop.name for loop in self.nest.batches]

    @cached_property
    def _read_ahead(self) -> dict[Load, str]:
        """What is read for octets to come where results are made, and its name among it."""
        found = list(self._behind({}).read_first())
        return {load: f"x{number}" for number, load in enumerate(found)} if self._ahead else {}

    def _behind(self, held: dict[Load, str]) -> Behind:
        loops = [*self.nest.batches, self.nest.rows, self.nest.octets]
        ranges = {loop.name: (0, known_extent(loop) - 1) for loop in loops}
        return Behind(self.kernel, self.nest, ranges, held)

    @cached_property
    def _ahead(self) -> int:
        """Octets for which is read ahead: as many as there are registers for."""
        each = sum(load.dtype.itemsize * OCTET // 4 for load in self._behind({}).read_first())
        sums = self._multiply.columns // 2 * self._own_rows // _INSTRUCTION_ROWS
        most = min(_MOST_AHEAD, self._octets)
        return max(0, min(most, (_REGISTERS - sums) // each)) if each else 0

    @cached_property
    def _is_long(self) -> bool:
        """True where caches of instructions would not hold what is made of each octet in turn."""
        return work_behind(self.nest) * OCTET * self._octets > _MOST_INSTRUCTIONS

    @property
    def _octets(self) -> int:
        """Octets that a thread finishes."""
        return self._own_rows // _INSTRUCTION_ROWS * 2 * (self._multiply.columns // 32)

    def _finish(self) -> str:
        """The functions that read for eight columns, and that make something of their sums."""
        loops = [*self.nest.batches, self.nest.rows, self.nest.octets]
        inner, reader = self._behind(self._read_ahead), self._behind({})
        names = [f"const int {inner.declared(loop.name)}" for loop in loops]
        taken = ", ".join([*names, parameters(self.kernel, False)])
        inner.statement(self.nest.behind)
        held = "const ReadAhead &held, " * bool(self._read_ahead)
        head = f"DEVICE void rl_finish(TOTAL (&{SUMS})[8], {held}{taken}) {{"
        finish = [head, *inner.lines.text, "}", ""]
        if not self._read_ahead:
            return "\n".join(finish)
        for loop in loops:
            reader.declared(loop.name)
        kinds = [f"  {reader.read_into(load, name)}" for load, name in self._read_ahead.items()]
        kept = ["struct ReadAhead {", *kinds, "};"]
        read = [f"DEVICE void rl_read(ReadAhead &held, {taken}) {{", *reader.lines.text, "}"]
        return "\n".join([*kept, *read, *finish])

    def _text(self, symbol: str) -> str:
        kernel, cuts, reads = self.kernel, self.tile.cut > 0, bool(self._read_ahead)
        cluster = self.tile.cluster
        names = [plain_name(param.name) for param in kernel.params]
        batches = [f"batch{n}" for n in range(len(self.nest.batches))]
        here = [*batches, "row", "octet", *names]
        inside = [*batches, "row < ROWS ? row : ROWS - 1", "octet < OCTETS ? octet : OCTETS - 1"]
        words = {
            "CLUSTERS": f"__cluster_dims__({cluster}, 1, 1) " if cluster > 1 else "",
            "SYMBOL": symbol,
            "PARAMETERS": parameters(kernel, cuts, _MAPS),
            "JOINS": JOINS if cuts else "",
            "UNROLLS": "#pragma unroll 1" if self._is_long else "#pragma unroll",
            "TAKES": TAKES_BY_TESTS if self._is_long else TAKES_EACH,
            "BEGINS": BEGINS if reads else "",
            "GOES_ON": GOES_ON if reads else "",
            "ARGUMENTS": ", ".join(["made", *["now"] * reads, *here]),
            "READS": ", ".join([*inside, *names]),
            "BATCHES": self._batch_numbers(),
            "FETCHES": "\n".join([*self._left.fetches(), *self._right.fetches()]),
        }  # fmt: skip
        text = KERNEL
        for word, meant in words.items():
            text = text.replace(word, meant)
        return text

    def _batch_numbers(self) -> str:
        """The variables of the loops over batches."""
        lines, rest = [], "at.batch"
        for axis, count in reversed(list(enumerate(self.nest.batch_counts))):
            lines.append(f"const int batch{axis} = {rest} % {count};")
            rest = f"({rest} / {count})"
        return "\n".join(" " * 8 + line for line in lines)


SUMS = "rl_sums"  # the name of what a thread has of them


class Behind(Statements):
    """Emits what one thread makes of eight sums, at a row and an octet that it is given.

    Nobody else reads or writes what it writes, so a vector that is written over is read before.
    What is `held` was read already.
    """

    def __init__(
        self,
        kernel: Kernel,
        nest: ProductNest,
        ranges: dict[str, tuple[int, int]],
        held: Mapping[Load, str],
    ) -> None:
        super().__init__(nest.behind, ranges, {})
        self.threads = Threads({}, 1)
        self.registers[nest.sums.name] = Registers(SUMS, nest.sums, RegisterSpread((0,), (OCTET,)))
        self.values.near = few_steps(kernel, kernel.body)
        self._nest, self._read_before = nest, held

    def declared(self, name: str) -> str:
        """The C++ name of the variable of a loop around it."""
        return self._declare(name)

    def read_first(self) -> Iterator[Load]:
        """What is read as vectors, and may be read before anything is written."""
        behind = self._nest.behind
        parts = behind.body if isinstance(behind, Seq) else (behind,)
        written: set[Memory] = set()
        seen: set[Load] = set()
        for part in parts:
            vectors = isinstance(part, For) and part.kind == "vector"
            for load, needed in self._packed_loads(part).items() if vectors else ():  # type: ignore[arg-type]
                always = () in needed or self.values.is_inside(load)
                if always and memory(load.buffer) not in written and load not in seen:
                    seen.add(load)
                    yield load
            written |= {memory(s.buffer) for s in ir.statements(part) if isinstance(s, Store)}

    def read_into(self, load: Load, name: str) -> str:
        """Emit the reading of a vector; the declaration of what holds it."""
        lane = _lane_of(self._nest.behind)
        kind = f"Pack<{memory_type(load.buffer.dtype)}, {OCTET}>"
        self.values.forget()
        at = self._address(load.buffer, self._first(load.index, lane))
        self.lines.line(f"held.{name} = *(const {kind} *)({at});")
        return f"{kind} {name};"

    def _packed_loads(self, loop: For) -> dict[Load, dict[Guards, None]]:
        stores = [s for s in ir.statements(loop.body) if isinstance(s, Store)]
        found = super()._packed_loads(loop)
        for load in {
            e
            for s in stores
            for e in ir.subexpressions(s.value)
            if isinstance(e, Load) and e not in found
        }:
            over = [s for s in stores if memory(s.buffer) == memory(load.buffer)]
            same = all(s.buffer.shape == load.buffer.shape and s.index == load.index for s in over)
            if over and same and self._packs(load, loop.name, OCTET):
                found[load] = {(): None}
        return found

    def _read_pack(self, load: Load, lane: str, length: int, needed: Iterable[Guards]) -> None:
        if load in self._read_before:
            self.packs[load] = f"held.{self._read_before[load]}"
        else:
            super()._read_pack(load, lane, length, needed)


def _lane_of(behind: Stmt) -> str:
    """The name of the vector loops."""
    return next(s.name for s in ir.statements(behind) if isinstance(s, For) and s.kind == "vector")
