"""torch.testing: comparisons of tensors that say where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ridgeline.tensors.tensor import Tensor

_TOLERANCES = {
    "float64": (1e-7, 1e-7), "float32": (1.3e-6, 1e-5), "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5), "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    msg: Any = None,
    **options: Any,
) -> None:
    """Raise an AssertionError where values differ by more than their element type's rounding."""
    given: Any = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan, "check_dtype": check_dtype}
    if isinstance(expected, Mapping):
        assert actual.keys() == expected.keys(), "the keys differ"
        for key in expected:
            assert_close(actual[key], expected[key], **given)
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        assert len(actual) == len(expected), "the lengths differ"
        for one, other in zip(actual, expected):
            assert_close(one, other, **given)
    else:
        _compare(actual, expected, rtol, atol, equal_nan, check_dtype, msg)


def _compare(
    actual: Any,
    expected: Any,
    rtol: float | None,
    atol: float | None,
    equal_nan: bool,
    check_dtype: bool,
    msg: Any,
) -> None:
    tensors = isinstance(actual, Tensor) and isinstance(expected, Tensor)
    if tensors and check_dtype:
        assert actual.dtype is expected.dtype, f"{actual.dtype} is not {expected.dtype}"
    kind = actual.dtype.name if isinstance(actual, Tensor) else "float64"
    default = _TOLERANCES.get(kind, (0.0, 0.0))
    one, other = map(_array, (actual, expected))
    assert one.shape == other.shape, f"the shapes {one.shape} and {other.shape} differ"
    np.testing.assert_allclose(
        one, other, default[0] if rtol is None else rtol, default[1] if atol is None else atol,
        equal_nan=equal_nan, err_msg=str(msg or ""),
    )  # fmt: skip


def _array(value: Any) -> Any:
    return np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)


assert_allclose = assert_close
