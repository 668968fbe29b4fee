"""The printed form of kernels: golden texts, and parse(print(k)) == k for any kernel."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from ridgeline import dtypes
from ridgeline.loops import ir
from ridgeline.loops.build import op
from ridgeline.loops.ir import Alloc, Buffer, Expr, Kernel, OpExpr, Seq, Store
from ridgeline.loops.text.printer import print_expr, print_kernel
from tests.loops import kernels
from tests.loops.kernels import at, c, param, v
from tests.loops.parser import ParseError, parse_kernel

SOFTMAX = """\
kernel softmax(x: float32[4096, 4096] @0, y: float32[4096, 4096] @1)
for r < 4096 parallel:
  alloc m: float32[] reg
  alloc s: float32[] reg
  m[] = -inf
  for c < 4096 reduce vector:
    m[] max= x[r, c]
  s[] = 0.0
  for c < 4096 reduce vector:
    s[] += exp(x[r, c] - m[])
  for c < 4096 vector:
    y[r, c] = exp(x[r, c] - m[]) / s[]
"""

ARGMAX = """\
kernel argmax(x: float32[4, 6] @0, y: int64[4] @1)
for r < 4:
  alloc best: float32[] reg
  alloc where: int64[] reg
  best[] = -inf
  where[] = 9223372036854775807
  for c < 6 reduce:
    (best, where)[] argmax= x[r, c], c
  y[r] = where[]
"""


def test_golden_texts() -> None:
    assert print_kernel(kernels.softmax(4096, 4096)) == SOFTMAX
    assert print_kernel(kernels.argmax(4, 6)) == ARGMAX


X = param("x", (8, 8), 0)
I, J = v("i"), v("j")  # noqa: E741


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (I * c(4) + J, "i * 4 + j"),
        ((I + c(4)) * J, "(i + 4) * j"),
        (
            OpExpr.make((I, OpExpr.make((J, c(1)), I.dtype, "sub")), I.dtype, "sub"),
            "i - (j - 1)",
        ),
        (op("neg", I * J), "-(i * j)"),
        (op("neg", I) * J, "-i * j"),
        (op("and", op("lt", I, J), op("not", op("eq", I, c(2)))), "(i < j) & (i != 2)"),
        (op("mul", at(X, I, J), ir.const(0.5, dtypes.float32)), "x[i, j] * 0.5"),
        (OpExpr.make((ir.const(-1, dtypes.int32),), dtypes.float64, "cast"), "float64(-1:int32)"),
        (OpExpr.make((at(X, I, J),), dtypes.int32, "bitcast"), "as_int32(x[i, j])"),
        (op("max", at(X, I, c(0)), ir.const(float("nan"), dtypes.float32)), "max(x[i, 0], nan)"),
    ],
    ids=str,
)
def test_expressions_have_few_parentheses(expr: Expr, text: str) -> None:
    assert print_expr(expr) == text


@pytest.mark.parametrize("kernel", [*kernels.EXAMPLES, kernels.symbolic()], ids=lambda k: k.name)
def test_examples_come_back(kernel: Kernel) -> None:
    assert parse_kernel(print_kernel(kernel)) == kernel


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels.loose_kernels())
def test_any_kernel_comes_back(kernel: Kernel) -> None:
    text = print_kernel(kernel)
    assert parse_kernel(text) == kernel
    assert print_kernel(parse_kernel(text)) == text


def test_shared_parts_keep_the_text_short() -> None:
    value = at(X, I, J)
    for _ in range(200):  # written out as a tree this would be 2**200 loads
        value = op("mul", op("add", value, value), op("sub", value, ir.const(1, dtypes.float32)))
    kernel = Kernel("dag", (X,), (), Store(X, (I, J), value))
    text = print_kernel(kernel)
    assert len(text) < 20_000
    assert parse_kernel(text) == kernel


def test_deep_expressions_come_back() -> None:
    value: Expr = at(X, I, J)
    for _ in range(5000):
        value = op("abs", op("add", value, ir.const(1, dtypes.float32)))
    kernel = Kernel("deep", (X,), (), Store(X, (I, J), value))
    assert parse_kernel(print_kernel(kernel)) == kernel


def test_an_allocation_ends_where_its_block_ends() -> None:
    t = Buffer("t", (), dtypes.float32, "reg")
    zero = ir.const(0, dtypes.float32)
    first = Alloc(t, Store(t, (), zero))
    kernel = Kernel("two", (X,), (), Seq((first, Store(X, (c(0), c(0)), zero))))
    text = print_kernel(kernel)
    assert "alloc t: float32[] reg:\n  t[] = 0.0\nx[0, 0] = 0.0" in text
    assert parse_kernel(text) == kernel


def test_a_buffer_out_of_scope_is_refused() -> None:
    kernel = Kernel("bad", (), (), Store(X, (c(0), c(0)), ir.const(0, dtypes.float32)))
    with pytest.raises(ValueError, match="'x' is used where it is not in scope"):
        print_kernel(kernel)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kernel f(",
        "kernel f()\nx[0] = 1.0",
        "kernel f(x: float32[4] @0)\nx[0] = 1.0 +",
        "kernel f(x: float32[4] @0)\nx[0] = (1.0",
        "kernel f(x: float32[4] @0)\nx[0] = cosecant(x[1])",
        "kernel f(x: float32[4] @0)\nfor i < 4:",
        "kernel f(x: float32[4] @0)\nfor i < 4 sideways:\n  x[i] = 1.0",
        "kernel f(x: float32[4] @0)\nx[0] = 1.0 2.0",
        "kernel f(x: float32[4] @0)\n    x[0] = 1.0",
        "kernel f(x: float32[4] @0)\nlet $0 = x[0] + 1.0",
    ],
)
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_kernel(text)


def test_names_of_all_kinds() -> None:
    odd = Buffer("let", (), dtypes.float32, "global", 0)
    one = ir.const(1, dtypes.float32)
    kernel = Kernel("a b", (odd,), ("for",), Store(odd, (), one))
    assert parse_kernel(print_kernel(kernel)) == kernel
