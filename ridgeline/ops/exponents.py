"""frexp written out for kernels: the exponent's bits, read and replaced."""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline import dtypes
from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import add, apply, cast, full_like, mul, select, sub
from ridgeline.ops.reinterpret import reinterpret

_LIFT = 54  # subnormal numbers times this power of two are normal


def split_exponent_written(current: Node, inputs: Sequence[Node]) -> list[Node]:
    """A mantissa in [0.5, 1) and a power of two; zeros, infinities and NaN are their own, with 0.

    Computed in float64, which holds every narrower number as a normal one.
    """
    x = cast(inputs[0], dtypes.float64)
    subnormal = apply("lt", apply("abs", x), full_like(x, 2.0**-1022))
    normal = select(subnormal, mul(x, full_like(x, 2.0**_LIFT)), x)
    bits = reinterpret(normal, dtypes.int64)
    field = full_like(bits, 0x7FF << 52)
    exponent = apply("shr", apply("and", bits, field), full_like(bits, 52))
    lifted = select(subnormal, full_like(bits, _LIFT), full_like(bits, 0))
    power = sub(sub(exponent, full_like(bits, 1022)), lifted)
    rest = apply("and", bits, apply("not", field))
    mantissa = reinterpret(add(rest, full_like(bits, 1022 << 52)), dtypes.float64)
    own = apply("or", apply("eq", x, full_like(x, 0)), apply("ne", sub(x, x), full_like(x, 0)))
    return [
        cast(select(own, x, mantissa), current.types[0].dtype),
        cast(select(own, full_like(bits, 0), power), dtypes.int32),
    ]
