"""All rows by domain, name and version."""

from __future__ import annotations

from functools import cache

from ridgeline.onnx.operators import (
    control,
    convolutions,
    encoders,
    estimators,
    images,
    linear,
    math,
    normalization,
    pooling,
    quantized,
    random,
    recurrent,
    reductions,
    scattering,
    sequences,
    shapes,
    signals,
    strings,
    support_vectors,
    training,
    trees,
)
from ridgeline.onnx.rows import OperatorRow

_FAMILIES = (
    control, convolutions, encoders, estimators, images, linear, math, normalization,
    pooling, quantized, random, recurrent, reductions, scattering, sequences, shapes, signals,
    strings, support_vectors, training, trees,
)  # fmt: skip


@cache
def _rows() -> dict[tuple[str, str], list[OperatorRow]]:
    found: dict[tuple[str, str], list[OperatorRow]] = {}
    for family in _FAMILIES:
        for row in family.ROWS:
            found.setdefault((row.domain, row.name), []).append(row)
    return found


def find(domain: str, name: str, version: int) -> OperatorRow | None:
    """The row of an operator at a version of its domain, or None."""
    for row in _rows().get((domain, name), ()):
        if row.since <= version <= row.until:
            return row
    return None
