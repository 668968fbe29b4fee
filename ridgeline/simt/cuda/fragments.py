"""Tensor-core fragments as instructions of PTX: `nvcuda::wmma` without its headers.

A fragment is an array of registers, how many depends on its part, shape and type. Addresses and
strides are the user's: rows begin at multiples of 16 bytes, as CUDA asks.
"""

from __future__ import annotations

from ridgeline import dtypes
from ridgeline.errors import RidgelineError
from ridgeline.simt import ir

_SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
_NARROW = {dtypes.float16: "f16", dtypes.bfloat16: "bf16", dtypes.int8: "s8", dtypes.uint8: "u8"}
_SUMS = {dtypes.float32: "f32", dtypes.float16: "f16", dtypes.int32: "s32"}
# registers of the left and the right part by shape, for types with two and four elements a register
_PAIRS = {(16, 16, 16): (4, 4), (32, 8, 16): (8, 2), (8, 32, 16): (2, 8)}
_FOURS = {(16, 16, 16): (2, 2), (32, 8, 16): (4, 1), (8, 32, 16): (1, 4)}


class NoTensorCoreForm(RidgelineError, NotImplementedError):
    """A fragment that tensor cores do not have."""


def checked(fragment: ir.Fragment) -> None:
    """Refuse what `wmma` instructions do not have."""
    shape = (fragment.m, fragment.n, fragment.k)
    types = _SUMS if fragment.use == "accumulator" else _NARROW
    if shape not in _SHAPES or fragment.dtype not in types:
        wanted = ", ".join(kind.name for kind in types)
        raise NoTensorCoreForm(
            f"tensor cores have no {fragment.use} fragment of {shape} {fragment.dtype.name}",
            help=f"shapes are {', '.join(map(str, _SHAPES))}; types {wanted}",
        )


def registers(fragment: ir.Fragment) -> int:
    """How many registers of a lane a fragment takes."""
    if fragment.use == "accumulator":
        return 4 if fragment.dtype is dtypes.float16 else 8
    if fragment.dtype is dtypes.float16:
        return 8
    table = _PAIRS if fragment.dtype is dtypes.bfloat16 else _FOURS
    return table[fragment.m, fragment.n, fragment.k][fragment.use == "b"]


def register_kind(fragment: ir.Fragment) -> str:
    """The C++ type of its registers."""
    return "float" if fragment.dtype is dtypes.float32 else "unsigned int"


def load(fragment: ir.Fragment, name: str, address: str, stride: str, layout: str) -> str:
    """A fragment from memory."""
    part = {"a": "a", "b": "b", "accumulator": "c"}[fragment.use]
    kind = {**_NARROW, **_SUMS}[fragment.dtype]
    count = registers(fragment)
    listed = ", ".join(f"%{n}" for n in range(count))
    outputs = ", ".join(f'"={_letter(fragment)}"({name}[{n}])' for n in range(count))
    return (
        f'asm volatile("wmma.load.{part}.sync.aligned.{layout}.{_shape(fragment)}.{kind} '
        f'{{{listed}}}, [%{count}], %{count + 1};" : {outputs} : "l"({address}), "r"({stride}) '
        f': "memory");'
    )


def store(fragment: ir.Fragment, name: str, address: str, stride: str, layout: str) -> str:
    """An accumulator to memory."""
    count = registers(fragment)
    listed = ", ".join(f"%{n + 2}" for n in range(count))
    inputs = ", ".join(f'"{_letter(fragment)}"({name}[{n}])' for n in range(count))
    return (
        f'asm volatile("wmma.store.d.sync.aligned.{layout}.{_shape(fragment)}.'
        f'{_SUMS[fragment.dtype]} [%0], {{{listed}}}, %1;" :: "l"({address}), "r"({stride}), '
        f'{inputs} : "memory");'
    )


def multiply(statement: ir.FragmentMultiply, names: tuple[str, str, str, str]) -> str:
    """`target = a @ b + c`."""
    target, a, b, c = statement.target, statement.a, statement.b, statement.c
    parts = (target, a, b, c)
    counts = [registers(part) for part in parts]
    starts = [sum(counts[:n]) for n in range(4)]
    groups = [
        "{" + ", ".join(f"%{start + n}" for n in range(count)) + "}"
        for start, count in zip(starts, counts)
    ]
    narrow = _NARROW[a.dtype]
    types = f"{_SUMS[target.dtype]}.{_SUMS[c.dtype]}"
    if narrow != "f16":
        types = f"{_SUMS[target.dtype]}.{narrow}.{_NARROW[b.dtype]}.{_SUMS[c.dtype]}"
    outputs = ", ".join(f'"={_letter(target)}"({names[0]}[{n}])' for n in range(counts[0]))
    inputs = ", ".join(
        f'"{_letter(part)}"({name}[{n}])'
        for part, name, count in list(zip(parts, names, counts))[1:]
        for n in range(count)
    )
    return (
        f'asm volatile("wmma.mma.sync.aligned.{a.layout}.{b.layout}.{_shape(target)}.{types} '
        f'{", ".join(groups)};" : {outputs} : {inputs});'
    )


def filled(fragment: ir.Fragment, name: str, value: str) -> str:
    """All elements take one value, which is repeated over registers that hold several."""
    one = value
    if fragment.dtype is dtypes.float16:
        one = f"rl_to_float16({value}) * 0x10001u"
    elif fragment.dtype is dtypes.bfloat16:
        one = f"rl_to_bfloat16({value}) * 0x10001u"
    elif fragment.dtype.itemsize == 1:
        one = f"(unsigned int)(unsigned char)({value}) * 0x1010101u"
    return f"for (int e = 0; e < {registers(fragment)}; e++) {name}[e] = {one};"


def _letter(fragment: ir.Fragment) -> str:
    return "f" if register_kind(fragment) == "float" else "r"


def _shape(fragment: ir.Fragment) -> str:
    return f"m{fragment.m}n{fragment.n}k{fragment.k}"
