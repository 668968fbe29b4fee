"""Both tiers on torch's samples for its ops: where they differ beyond what docs/numerics.md says.

`python -m tests.functions.tiers [NAME...]` tries every function (or those named) in every type.
"""

from __future__ import annotations

import math
import random
import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

import ridgeline as rl
from ridgeline.errors import RidgelineError
from tests.functions.test_conformance import (
    MOST,
    ORDER,
    SKIPPED,
    Foreign,
    database,
    found,
    samples as torch_samples,
    tensors,
    translated,
)

Array = npt.NDArray[Any]
DTYPES = (
    "bfloat16", "float16", "float32", "float64", "int64", "int32", "uint8", "bool", "complex64",
    "complex128",
)  # fmt: skip
SAMPLES = 4
_EPSILONS = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
_SMALLEST = {"bfloat16": 2.0**-133, "float16": 2.0**-24, "float32": 2.0**-149, "float64": 5e-324}
# attention rounds its weights to the element type between its two products, as torch's does
_ROUNDED_BETWEEN = ("nn.functional.scaled_dot_product_attention",)
# close to their zeros these are accurate to an ulp of what is added up there
_SUMS_OF_ONE = re.compile(r"lgamma|digamma|bessel_[jy]|airy")
_POWERS = ("pow", "float_power")
_SUMS_OF_OPERANDS = ("logaddexp", "logaddexp2")


def entries() -> list[Any]:
    """The ops of torch's table that are public functions here."""
    return [
        op for op in database.op_db
        if not SKIPPED.search(op.name) and found(torch, op.name) and found(rl, op.name)
    ]  # fmt: skip


def samples(op: Any, dtype: str, seed: int, most: int) -> Iterator[Any]:
    """Some small samples of an op, other ones by another seed."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    drawn = list(torch_samples(op, getattr(torch, dtype)))
    random.Random(seed).shuffle(drawn)
    for sample in drawn:
        given = [sample.input, sample.args, sample.kwargs]
        small = sum(t.numel() for t in tensors(given, torch.Tensor)) <= MOST
        if small and not sample.kwargs.get("dropout_p"):
            yield sample
            most -= 1
        if not most:
            return


def results(
    function: Any, values: list[Any], named: dict[str, Any], tier: str
) -> list[Array] | str:
    """What a call gives in a tier, or the kind of error that it raises."""
    with rl.config.override(tier=tier):
        try:
            return [t.numpy() for t in tensors(function(*values, **named), rl.Tensor)]
        except (RidgelineError, TypeError) as error:
            return type(error).__name__


def difference(op: Any, one: Array, other: Array, inputs: list[Array]) -> str:
    """How two results differ beyond what is stated, in words; empty where they do not."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return f"{one.dtype}{one.shape} and {other.dtype}{other.shape}"
    name = "float64" if one.dtype == np.complex128 else one.dtype.name
    name = "float32" if one.dtype == np.complex64 else name
    if name not in _EPSILONS:
        return "" if np.array_equal(one, other) else f"{one.ravel()[:5]} and {other.ravel()[:5]}"
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    a, b = one.astype(wide), other.astype(wide)
    whole = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~whole], b[~whole], equal_nan=True):
        return "NaN or infinity in one of them"
    a, b = a[whole], b[whole]
    size = np.maximum(np.abs(a), np.abs(b))
    epsilon = _EPSILONS[name]
    ulp = np.maximum(2.0 ** np.floor(np.log2(np.maximum(size, 1e-300))) * epsilon, _SMALLEST[name])
    limit = _limit(op, name, ulp, [*inputs, size])
    excess = np.abs(a - b) / limit
    if not excess.size or excess.max() <= 1:
        return ""
    worst = excess.argmax()
    return f"{a[worst]!r} and {b[worst]!r}, {abs(a - b)[worst] / ulp[worst]:.4g} ulp"


def _limit(op: Any, name: str, ulp: Array, values: list[Array]) -> Array:
    """Twice the stated error: each tier may have it."""
    if isinstance(op, UnaryUfuncInfo | BinaryUfuncInfo):
        is_special = op.name.startswith("special.") or "gamma" in op.name
        added = 1.0 if _SUMS_OF_ONE.search(op.name) else 0.0
        if op.name in _SUMS_OF_OPERANDS:
            added = max(float(np.abs(v[np.isfinite(v)]).max(initial=0)) for v in values)
        if op.name in _POWERS and values[0].dtype.kind == "c":
            return ulp * 2 * (4 + 2 * np.abs(values[1] * np.log(values[0])).max())
        least = 8 if is_special else 4 if values[0].dtype.kind == "c" else 2
        return np.maximum(ulp, added * _EPSILONS[name]) * 2 * least
    # sums and what is made of them, in float32 for narrow types and rounded once
    inner = name if op.name in _ROUNDED_BETWEEN else "float64" if name == "float64" else "float32"
    count = sum(v.size for v in values)
    scale = max(float(np.abs(v[np.isfinite(v)]).max(initial=0)) for v in values)
    return 2 * ulp + 2 * (math.log2(max(count, 1)) + 8) * _EPSILONS[inner] * scale


def differences(op: Any, dtype: str, seed: int = 0, most: int = SAMPLES) -> Iterator[str]:
    """Where the tiers differ on an op's samples."""
    if getattr(torch, dtype) not in op.supported_dtypes("cpu"):
        return
    for sample in samples(op, dtype, seed, most):
        arguments = ORDER.get(op.name, list)([sample.input, *sample.args])
        try:
            values, named = translated([arguments, sample.kwargs], [])
        except Foreign:
            continue
        one, other = (
            results(found(rl, op.name), values, named, tier) for tier in ("interpreter", "compiled")
        )
        shapes = [list(t.shape) for t in tensors([values, named], rl.Tensor)]
        if isinstance(one, str) or isinstance(other, str):
            said = "" if one == other else f"{one!s:.60} and {other!s:.60}"
        elif len(one) != len(other):
            said = f"{len(one)} and {len(other)} results"
        else:
            given = [t.numpy() for t in tensors([values, named], rl.Tensor)]
            inputs = [g if g.dtype.kind == "c" else g.astype(np.float64) for g in given]
            said = "; ".join(filter(None, (difference(op, *p, inputs) for p in zip(one, other))))
        if said:
            yield f"{op.full_name} {dtype} {shapes} {sample.kwargs!s:.60}: {said}"


def main(names: list[str]) -> None:
    """Print what differs, type by type."""
    total = 0
    for dtype in DTYPES:
        for op in entries():
            if names and op.name not in names:
                continue
            for line in differences(op, dtype):
                total += 1
                print(line, flush=True)
    print(f"{total} differences")
    sys.exit(total > 0)


if __name__ == "__main__":
    main(sys.argv[1:])
