"""Horizontal fusion: several kernels in one launch, which share out its blocks.

Each distinct kernel is a function; a table in constant memory says which blocks belong to which
call, and which of the launch's addresses are its arguments. All addresses come as one parameter,
the workspace last. Kernels of several launches are joined launch by launch, each with a part of the
workspace to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ridgeline.codegen.cuda.emit import Functions, functions_of
from ridgeline.codegen.cuda.prelude import PRELUDE
from ridgeline.codegen.cuda.source import KernelSource, Launch
from ridgeline.loops.ir import Kernel, index
from ridgeline.loops.tensor_cores import tile_around
from ridgeline.weak import fingerprint

ADDRESS = 8  # bytes
_MOST_FUNCTIONS = 32  # distinct kernels in one text
_NAMES = 24  # characters of the first kernel's name in the launch's


@dataclass(frozen=True, slots=True)
class FusedCall:
    """One call: its kernel, and the number of each argument among the launch's addresses."""

    kernel: Kernel
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    """One call in a launch."""

    blocks: int
    kind: int
    arguments: tuple[int, ...]
    workspace: int  # where its part begins


def join_key(kernel: Kernel) -> tuple[int, ...] | None:
    """Equal for kernels that can share a launch (their block size); None if one cannot."""
    if kernel.sizes or tile_around(kernel.body) is not None:
        return None
    made = functions_of(kernel)
    if not all(launch.blocks() and launch.cluster == 1 for launch in made.launches):
        return None
    return tuple(map(made.block_of, range(len(made.launches)))) or None


def fits(parts: Sequence[Kernel], addresses: int, parameter_bytes: int) -> bool:
    """Whether calls of these kernels, with so many addresses in all, fit into one launch."""
    distinct = len({kernel.name for kernel in parts})
    return distinct <= _MOST_FUNCTIONS and (addresses + 1) * ADDRESS <= parameter_bytes


def joined(parts: Sequence[FusedCall]) -> KernelSource:
    """The text of several calls as one, over so many addresses and the workspace."""
    functions = {part.kernel.name: functions_of(part.kernel) for part in parts}
    kinds = {name: number for number, name in enumerate(functions)}
    made = list(functions.values())
    count = 1 + max(number for part in parts for number in part.arguments)
    texts: list[str] = []
    launches: list[Launch] = []
    for number in range(len(made[0].launches)):
        rows, workspace = [], 0
        for part in parts:
            own = functions[part.kernel.name]
            blocks = own.launches[number].blocks()
            rows.append(_Row(blocks, kinds[part.kernel.name], part.arguments, workspace))
            workspace += own.workspace_bytes
        text, launch = _launch(made, rows, number, count)
        texts.append(text)
        launches.append(launch)
    head = f"struct Addresses {{ unsigned long long at[{count + 1}]; }};\n"
    whole = PRELUDE + head + "\n".join(texts)
    return KernelSource(launches[0].symbol, whole, tuple(launches), workspace)


def _launch(
    made: Sequence[Functions], rows: Sequence[_Row], number: int, count: int
) -> tuple[str, Launch]:
    """One launch of all calls; those with the most blocks come first."""
    rows = sorted(rows, key=lambda row: -row.blocks)
    own = [functions.launches[number] for functions in made]
    cases = [
        f"    case {kind}: if (threadIdx.x < {launch.block}u) "
        f"{launch.symbol}(block{_arguments(functions, count)}); break;"
        for kind, (launch, functions) in enumerate(zip(own, made))
    ]
    tables = _tables(rows)
    body = "\n".join([*_find(len(rows)), "  switch (part_kind[low]) {", *cases, "  }", "}", ""])
    texts = "\n".join(functions.texts[number] for functions in made)
    digest = fingerprint("\n".join([texts, *tables, body]), 8)
    symbol = f"joined_{own[0].symbol[:_NAMES]}_{digest}"
    block = max(launch.block for launch in own)
    head = f'extern "C" __global__ void __launch_bounds__({block}) {symbol}'
    text = "\n".join([
        texts, *(f"static {table}".replace(" part_", f" {symbol}_part_") for table in tables),
        f"{head}(const __grid_constant__ Addresses addresses) {{",
        body.replace("part_", f"{symbol}_part_"),
    ])  # fmt: skip
    shared = max(launch.shared_bytes for launch in own)
    return text, Launch(symbol, (index(sum(row.blocks for row in rows)),), block, shared)


def _tables(rows: Sequence[_Row]) -> list[str]:
    """First blocks, kinds, and where the arguments and the workspace of each call begin."""
    first, starts, arguments = [0], [0], list[int]()
    for row in rows:
        first.append(first[-1] + row.blocks)
        arguments += row.arguments
        starts.append(len(arguments))
    return [
        _table("unsigned int", "part_first", first[:-1]),
        _table("unsigned char", "part_kind", [row.kind for row in rows]),
        _table("unsigned int", "part_start", starts[:-1]),
        _table("unsigned short", "part_arguments", arguments),
        _table("unsigned int", "part_workspace", [row.workspace for row in rows]),
    ]


def _table(kind: str, name: str, values: Sequence[int]) -> str:
    return f"__constant__ {kind} {name}[] = {{{', '.join(map(str, values))}}};"


def _find(count: int) -> list[str]:
    """The call to which a block belongs, by binary search in the table."""
    return [
        f"  unsigned int low = 0, high = {count};",
        "  while (high - low > 1) {",
        "    const unsigned int middle = (low + high) / 2;",
        "    if (part_first[middle] <= blockIdx.x) low = middle; else high = middle;",
        "  }",
        "  const unsigned int block = blockIdx.x - part_first[low];",
        "  const unsigned short *own = part_arguments + part_start[low];",
    ]


def _arguments(functions: Functions, count: int) -> str:
    given = "".join(f", ({kind})addresses.at[own[{n}]]" for n, kind in enumerate(functions.types))
    if not functions.workspace_bytes:
        return given
    return f"{given}, (unsigned char *)addresses.at[{count}] + part_workspace[low]"
