"""Every function of the standard is there, with the standard's parameters."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import array_api as xp

# parameters: the functions that have them
MAIN = {
    "start, /, stop=None, step=1, *, dtype=None, device=None": "arange",
    "obj, /, *, dtype=None, device=None, copy=None": "asarray",
    "shape, *, dtype=None, device=None": "empty ones zeros",
    "x, /, *, dtype=None, device=None": "empty_like ones_like zeros_like",
    "n_rows, n_cols=None, /, *, k=0, dtype=None, device=None": "eye",
    "x, /, *, device=None, copy=None": "from_dlpack",
    "shape, fill_value, *, dtype=None, device=None": "full",
    "x, /, fill_value, *, dtype=None, device=None": "full_like",
    "start, stop, /, num, *, dtype=None, device=None, endpoint=True": "linspace",
    "*arrays, indexing='xy'": "meshgrid",
    "x, /, *, k=0": "tril triu",
    "x, dtype, /, *, copy=True, device=None": "astype",
    "from_, to, /": "can_cast",
    "type, /": "finfo iinfo",
    "dtype, kind": "isdtype",
    "*arrays_and_dtypes": "result_type",
    "x, /": (
        "abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 "
        "floor imag isfinite isinf isnan log log10 log1p log2 logical_not matrix_transpose "
        "negative nonzero positive real reciprocal round sign signbit sin sinh sqrt square "
        "tan tanh trunc unique_all unique_counts unique_inverse unique_values "
    ),
    "x1, x2, /": (
        "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor "
        "copysign divide equal floor_divide greater greater_equal hypot less less_equal "
        "logaddexp logical_and logical_or logical_xor matmul maximum minimum multiply "
        "nextafter not_equal pow remainder subtract "
    ),
    "x, /, min=None, max=None": "clip",
    "x, indices, /, *, axis=None": "take",
    "x, indices, /, *, axis=-1": "take_along_axis",
    "x1, x2, /, *, axes=2": "tensordot",
    "x1, x2, /, *, axis=-1": "vecdot",
    "*arrays": "broadcast_arrays",
    "*shapes": "broadcast_shapes",
    "x, /, shape": "broadcast_to",
    "arrays, /, *, axis=0": "concat stack",
    "x, /, axis": "expand_dims squeeze",
    "x, /, *, axis=None": "flip",
    "x, source, destination, /": "moveaxis",
    "x, /, axes": "permute_dims",
    "x, repeats, /, *, axis=None": "repeat",
    "x, /, shape, *, copy=None": "reshape",
    "x, /, shift, *, axis=None": "roll",
    "x, repetitions, /": "tile",
    "x, /, *, axis=0": "unstack",
    "x, /, *, axis=None, keepdims=False": "argmax argmin count_nonzero max mean min all any",
    "x1, x2, /, *, side='left', sorter=None": "searchsorted",
    "condition, x1, x2, /": "where",
    "x1, x2, /, *, invert=False": "isin",
    "x, /, *, axis=-1, descending=False, stable=True": "argsort sort",
    "x, /, *, axis=None, dtype=None, include_initial=False": "cumulative_prod cumulative_sum",
    "x, /, *, axis=None, dtype=None, keepdims=False": "prod sum",
    "x, /, *, axis=None, correction=0.0, keepdims=False": "std var",
    "x, /, *, axis=-1, n=1, prepend=None, append=None": "diff",
}
LINALG = {
    "x, /, *, upper=False": "cholesky",
    "x1, x2, /, *, axis=-1": "cross vecdot",
    "x, /": "det eigh eigvalsh eig eigvals inv matrix_transpose slogdet svdvals",
    "x, /, *, offset=0": "diagonal",
    "x1, x2, /": "matmul outer solve",
    "x, /, *, keepdims=False, ord='fro'": "matrix_norm",
    "x, n, /": "matrix_power",
    "x, /, *, rtol=None": "matrix_rank pinv",
    "x, /, *, mode='reduced'": "qr",
    "x, /, *, full_matrices=True": "svd",
    "x1, x2, /, *, axes=2": "tensordot",
    "x, /, *, offset=0, dtype=None": "trace",
    "x, /, *, axis=None, keepdims=False, ord=2": "vector_norm",
}
FFT = {
    "x, /, *, n=None, axis=-1, norm='backward'": "fft ifft rfft irfft hfft ihfft",
    "x, /, *, s=None, axes=None, norm='backward'": "fftn ifftn rfftn irfftn",
    "n, /, *, d=1.0, dtype=None, device=None": "fftfreq rfftfreq",
    "x, /, *, axes=None": "fftshift ifftshift",
}
METHODS = (
    "__abs__ __add__ __and__ __array_namespace__ __bool__ __complex__ __dlpack__ "
    "__dlpack_device__ __eq__ __float__ __floordiv__ __ge__ __getitem__ __gt__ __index__ "
    "__int__ __invert__ __le__ __lshift__ __lt__ __matmul__ __mod__ __mul__ __ne__ __neg__ "
    "__or__ __pos__ __pow__ __rshift__ __setitem__ __sub__ __truediv__ __xor__ to_device "
    "__radd__ __iadd__ __rmatmul__ __imatmul__ __rpow__ __ipow__ __rlshift__ __ixor__ "
    "dtype device mT ndim shape size T"
)
DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"
)


def bare(function: Any) -> str:
    """A function's parameters without annotations."""
    signature = inspect.signature(function)
    empty = inspect.Parameter.empty
    parameters = [p.replace(annotation=empty) for p in signature.parameters.values()]
    return str(inspect.Signature(parameters))[1:-1]


@pytest.mark.parametrize(
    ("module", "table"),
    [(xp, MAIN), (xp.linalg, LINALG), (xp.fft, FFT)],
    ids=["main", "linalg", "fft"],
)
def test_parameters(module: Any, table: dict[str, str]) -> None:
    for parameters, names in table.items():
        for name in names.split():
            assert bare(getattr(module, name)) == parameters, name


def test_array_object_is_complete() -> None:
    x = xp.ones((1, 1))
    assert [name for name in METHODS.split() if not hasattr(x, name)] == []
    assert type(x.size)(3) == 3 and x.size == 1 and x.size() == (1, 1)


def test_types_and_constants() -> None:
    assert set(xp.__array_namespace_info__().dtypes()) == set(DTYPES.split())
    for name in DTYPES.split():
        assert xp.__array_namespace_info__().dtypes()[name] is getattr(xp, name)
    assert xp.pi > xp.e > 0 and math.isinf(xp.inf) and math.isnan(xp.nan) and xp.newaxis is None


def test_tensors_name_this_namespace() -> None:
    x = rl.tensor([1.0, 2.0])
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(rl.RidgelineError, match="no version"):
        x.__array_namespace__(api_version="2031.12")


def test_devices_are_a_tuple_that_lists_can_be_added_to() -> None:
    devices = xp.__array_namespace_info__().devices()
    assert isinstance(devices, tuple) and "cpu" in devices
    assert [None, *devices] == [None] + devices and [*devices, None] == devices + [None]  # noqa: RUF005
    assert (*devices, None) == devices + (None,)  # noqa: RUF005


@pytest.mark.parametrize("far", [10**19, 10**30, 1 << 63, 3])
def test_diagonals_far_outside(far: int) -> None:
    x = xp.reshape(xp.arange(6.0), (2, 3))
    zeros, kept = np.zeros((2, 3)), np.asarray(x)
    for k in (far, -far):
        np.testing.assert_array_equal(np.asarray(xp.eye(2, 3, k=k)), zeros)
        np.testing.assert_array_equal(np.asarray(xp.tril(x, k=k)), kept if k > 0 else zeros)
        np.testing.assert_array_equal(np.asarray(xp.triu(x, k=k)), zeros if k > 0 else kept)
