"""Several kernels as one launch: its blocks are shared out among them.

Each distinct kernel is a function; a table in constant memory says which blocks belong to which
call, and which of the launch's addresses are its arguments. All addresses come as one parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from ridgeline.codegen.cuda.emit import function_of
from ridgeline.codegen.cuda.prelude import PRELUDE
from ridgeline.codegen.cuda.source import KernelSource, Launch
from ridgeline.loops.ir import Kernel, index

ADDRESS = 8  # bytes
_MOST_FUNCTIONS = 32  # distinct kernels in one text
_NAMES = 24  # characters of the first kernel's name in the launch's


@dataclass(frozen=True, slots=True)
class Part:
    """One call: its kernel, and the number of each argument among the launch's addresses."""

    kernel: Kernel
    arguments: tuple[int, ...]


def join_key(kernel: Kernel) -> object | None:
    """Equal for kernels that can be one launch; None for one that can not.

    A kernel without barriers runs in blocks of any size that is large enough.
    """
    if kernel.sizes:
        return None
    made = function_of(kernel)
    if made is None or not made.launch.blocks():
        return None
    return "plain" if made.alone else made.launch.block


def fits(parts: Sequence[Kernel], addresses: int, parameter_bytes: int) -> bool:
    """Whether calls of these kernels, with so many addresses between them, are one launch."""
    distinct = len({kernel.name for kernel in parts})
    return distinct <= _MOST_FUNCTIONS and addresses * ADDRESS <= parameter_bytes


def joined(parts: Sequence[Part]) -> KernelSource:
    """The text of one launch for several calls; the largest ones come first."""
    functions = {part.kernel.name: function_of(part.kernel) for part in parts}
    kinds = {name: number for number, name in enumerate(functions)}
    rows: list[tuple[int, int, tuple[int, ...]]] = []  # blocks, kind, arguments
    for part in parts:
        made = functions[part.kernel.name]
        assert made is not None, "only kernels with a key are joined"
        rows.append((made.launch.blocks(), kinds[part.kernel.name], part.arguments))
    rows.sort(key=lambda row: -row[0])
    known = [made for made in functions.values() if made is not None]
    block = max(made.launch.block for made in known)
    shared = max(made.launch.shared_bytes for made in known)
    count = 1 + max(number for part in parts for number in part.arguments)
    cases = [
        f"    case {number}: if (threadIdx.x < {made.launch.block}u) "
        f"{made.launch.symbol}(block{_arguments(made.types)}); break;"
        for number, made in enumerate(known)
    ]
    body = "\n".join([*(made.text for made in known), *_tables(rows), *_head(count)])
    tail = "\n".join([*_find(len(rows)), "  switch (part_kind[low]) {", *cases, "  }", "}", ""])
    digest = blake2b((body + tail).encode(), digest_size=8).hexdigest()
    symbol = f"joined_{known[0].launch.symbol[:_NAMES]}_{digest}"
    head = f'extern "C" __global__ void __launch_bounds__({block}) {symbol}'
    text = f"{PRELUDE}{body}\n{head}(const __grid_constant__ Addresses addresses) {{\n{tail}"
    launch = Launch(symbol, (index(sum(row[0] for row in rows)),), block, shared)
    return KernelSource(symbol, text, (launch,))


def _tables(rows: Sequence[tuple[int, int, tuple[int, ...]]]) -> list[str]:
    """First blocks, kinds, and where the arguments of each call begin."""
    first, starts, arguments = [0], [0], list[int]()
    for blocks, _, own in rows:
        first.append(first[-1] + blocks)
        arguments += own
        starts.append(len(arguments))
    return [
        _table("unsigned int", "part_first", first[:-1]),
        _table("unsigned char", "part_kind", [kind for _, kind, _ in rows]),
        _table("unsigned int", "part_start", starts[:-1]),
        _table("unsigned short", "part_arguments", arguments),
    ]


def _table(kind: str, name: str, values: Sequence[int]) -> str:
    return f"__constant__ {kind} {name}[] = {{{', '.join(map(str, values))}}};"


def _head(count: int) -> list[str]:
    return [f"struct Addresses {{ unsigned long long at[{count}]; }};"]


def _find(count: int) -> list[str]:
    """The call to which a block belongs, by halving the table."""
    return [
        f"  unsigned int low = 0, high = {count};",
        "  while (high - low > 1) {",
        "    const unsigned int middle = (low + high) / 2;",
        "    if (part_first[middle] <= blockIdx.x) low = middle; else high = middle;",
        "  }",
        "  const unsigned int block = blockIdx.x - part_first[low];",
        "  const unsigned short *own = part_arguments + part_start[low];",
    ]


def _arguments(types: Sequence[str]) -> str:
    return "".join(f", ({kind})addresses.at[own[{n}]]" for n, kind in enumerate(types))
