"""Printed tensors against torch's own, on a table of shapes, element types and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl

torch = pytest.importorskip("torch")

NAN, INF = float("nan"), float("inf")
TABLE: list[tuple[Any, str]] = [
    (3.5, "float32"), (3, "int64"), (True, "bool"), (3.0, "float32"), (NAN, "float32"),
    (1e10, "float32"), (1e-7, "float32"), (-2.25, "float64"), (-0.0, "float32"),
    (1 + 2j, "complex64"), (complex(1.5, -0.0), "complex64"), ([], "float32"), ([], "int64"),
    ([], "float64"), ([], "bool"),
    ([], "complex64"), (np.zeros((0, 3)), "float32"), (np.zeros((2, 3, 0)), "int64"),
    (np.zeros((0, 2)), "bool"), ([1.0, 2.0, 3.0], "float32"), ([1.5, -2.25, 3], "float32"),
    ([1.0, NAN, INF], "float32"), ([-INF, 2.5], "float32"), ([NAN] * 3, "float32"),
    ([0.1, NAN, -INF], "float32"), ([1e-6, 1.0, 1000.0], "float32"), ([1e9, 1.0], "float32"),
    ([1.0, 10000.0], "float32"), ([1e-5, 2e-5], "float32"), ([0.0, 0.0], "float32"),
    ([-0.0, 1.0], "float32"), ([[1.0, -200.25], [3000.5, 0.0]], "float32"),
    ([123456.789, 0.5], "float32"), ([1.0, 1000.0], "float32"), ([1.0, 1001.0], "float32"),
    ([0.001, 999.5], "float32"), ([1e8, 1.0], "float64"), ([1.1e8], "float32"),
    ([1e-4], "float32"), ([[1, -200], [3000, 0]], "int64"), ([1, 2], "int32"),
    ([1, 200], "uint8"), ([-128, 127], "int8"), ([1], "int16"), ([1, 2], "uint16"),
    ([-(2**63), 2**63 - 1], "int64"), ([True, False], "bool"),
    ([[True, False], [False, False]], "bool"), ([1.5, 2.0], "float16"),
    ([65504.0, 1e-4], "float16"), ([1.5, 2.0], "bfloat16"), ([1.5, 2.0], "float64"),
    ([0.5, 448.0], "float8_e4m3fn"), ([1.5, 57344.0], "float8_e5m2"),
    ([1 + 2j, -3.5 - 1j], "complex64"), ([1 + 2j, 0], "complex128"),
    ([complex(NAN, 1.5), 2], "complex64"), ([1e-7 + 1j, 2e5], "complex64"),
    ([[1 + 2j, -3.5 - 100j], [0, 1]], "complex64"), ([complex(INF, 1), 2j], "complex64"),
    (np.arange(40).reshape(4, 10) * (1.5 - 1j), "complex64"), (np.arange(1100) + 1j, "complex64"),
    (np.arange(2000.0), "float32"), (np.arange(2000).reshape(40, 50), "int64"),
    (np.linspace(0, 1, 1500), "float32"), (np.arange(40.0), "float32"), (np.arange(60), "int64"),
    (np.arange(24.0).reshape(2, 3, 4), "float32"), (np.arange(16).reshape(2, 2, 2, 2), "int64"),
    (np.arange(4000.0).reshape(10, 20, 20), "float32"),
    (np.arange(2002.0).reshape(1001, 2), "float32"),
    (np.arange(2002.0).reshape(2, 1001), "float32"), (np.zeros(2000), "bool"),
    (np.arange(1000), "int64"), (np.arange(1001), "int64"), (np.full(18, 1.5), "float64"),
    (np.where(np.arange(1200) == 5, NAN, np.arange(1200) / 7), "float64"),
]  # fmt: skip


def as_ours(text: str) -> str:
    return text.replace("torch.", "ridgeline.")


@pytest.mark.parametrize("number", range(len(TABLE)))
def test_printed_as_torch_prints(number: int) -> None:
    values, dtype = TABLE[number]
    array = np.array(values)
    theirs = torch.from_numpy(array).to(getattr(torch, dtype))
    ours = rl.tensor(array, dtype=getattr(rl, dtype))
    assert repr(ours) == as_ours(repr(theirs))


def test_what_stands_behind_the_numbers() -> None:
    for name in ("float32", "float64"):
        ours = rl.ones(3, dtype=getattr(rl, name), requires_grad=True)
        theirs = torch.ones(3, dtype=getattr(torch, name), requires_grad=True)
        assert repr(ours) == as_ours(repr(theirs))
        assert repr(ours * 2) == as_ours(repr(theirs * 2))
        assert repr(ours.exp()) == as_ours(repr(theirs.exp()))
    parameter = rl.nn.Parameter(rl.zeros(2, 2))
    assert repr(parameter) == repr(torch.nn.Parameter(torch.zeros(2, 2)))
    long = np.full(9, 1.2345)
    assert repr(rl.tensor(long).requires_grad_()) == as_ours(
        repr(torch.tensor(long).requires_grad_())
    )


def test_the_default_element_type_is_not_named() -> None:
    rl.set_default_dtype(rl.float64)
    try:
        assert repr(rl.tensor([1.5], dtype=rl.float64)) == "tensor([1.5000])"
        assert (
            repr(rl.tensor([1.5], dtype=rl.float32)) == "tensor([1.5000], dtype=ridgeline.float32)"
        )
    finally:
        rl.set_default_dtype(rl.float32)


def test_html_is_escaped_and_capped() -> None:
    text = (rl.ones(2, requires_grad=True) * 2)._repr_html_()
    assert text.startswith('<pre title="float32 [2] on cpu">tensor([2., 2.], grad_fn=&lt;Mul')
    assert text.endswith("</pre>") and "<Mul" not in text
    assert len(rl.zeros(30, 1, 30)._repr_html_()) < 6000
