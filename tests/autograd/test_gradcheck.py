"""gradcheck itself, and every differentiable public function under it."""

from __future__ import annotations

import importlib
import pkgutil
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import ridgeline as rl
from ridgeline import ops
from ridgeline.functions.registry import TABLE
from ridgeline.graph.node import Op, topological
from ridgeline.ops.collectives import COLLECTIVES
from ridgeline.ops.elementwise import ROWS
from ridgeline.ops.placed import PLACED_OPS
from ridgeline.record.values import read
from ridgeline.tensors.pytree import flatten
from tests.autograd.gradient_cases import (
    BINARY,
    CASES,
    EXEMPT,
    REDUCING,
    ROUGH,
    UNARY,
    body_of,
    draw,
)

gradcheck, gradgradcheck = rl.autograd.gradcheck, rl.autograd.gradgradcheck


class Wrong(rl.autograd.Function):
    """A product whose second gradient is wrong."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        a, b = ctx.saved_tensors
        return gradient * b, gradient * a * 1.5

    @staticmethod
    def jvp(ctx: Any, da: Any, db: Any) -> Any:
        return da * ctx.saved_tensors[1]


def test_a_wrong_gradient_is_named() -> None:
    inputs = (rl.tensor(draw(2, 3)), rl.tensor(draw(2, 3) + 1))
    with pytest.raises(rl.RidgelineError) as caught:
        gradcheck(Wrong.apply, inputs, check_forward_ad=False)
    text = str(caught.value)
    assert "reverse mode" in text and "input 1" in text and "element [0, 0]" in text
    assert f"numerical  {inputs[0][0, 0].item():.6g}"[:16] in text
    assert not gradcheck(Wrong.apply, inputs, check_forward_ad=False, raise_exception=False)
    with pytest.raises(rl.RidgelineError, match="drawn direction"):
        gradcheck(Wrong.apply, inputs, check_forward_ad=False, fast_mode=True)


def test_only_inputs_that_ask_are_checked() -> None:
    asking = rl.tensor(draw(3)).requires_grad_()
    assert gradcheck(lambda a, b: Wrong.apply(a, b), (asking, rl.tensor(draw(3))))
    assert gradcheck(lambda a, n, flag: a * n if flag else a, (asking, rl.tensor([1, 2, 3]), True))


def test_complex_functions() -> None:
    z = rl.tensor(draw(3) + 1j * draw(3)[::-1])
    for function in (rl.exp, rl.abs, rl.conj, rl.angle, lambda a: a * a.conj(), rl.view_as_real):
        assert gradcheck(function, z, check_batched_grad=True)
        assert gradgradcheck(function, z)
    assert gradcheck(lambda a: rl.complex(a, a * a), rl.tensor(draw(3)))
    with pytest.raises(rl.RidgelineError, match="imaginary part"):
        gradcheck(lambda a, b: Wrong.apply(a, b), (z, z), check_forward_ad=False)


def test_what_cannot_be_checked() -> None:
    with pytest.raises(rl.RidgelineError, match="among the inputs"):
        gradcheck(lambda a: a * 2.0, rl.tensor([1, 2]))
    with pytest.raises(rl.RidgelineError, match="results"):
        gradcheck(lambda a: a > 0, rl.tensor(draw(2)))
    with pytest.warns(UserWarning, match="double precision"):
        gradcheck(lambda a: a * 2, rl.ones(2), eps=1e-2)


def test_second_order_finds_what_first_order_cannot() -> None:
    class Flat(rl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            ctx.save_for_backward(a)
            return a**3

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (a,) = ctx.saved_tensors
            return gradient * 3 * (a * a).detach()

    x = rl.tensor(draw(3))
    assert gradcheck(Flat.apply, x, check_forward_ad=False)
    with pytest.raises(rl.RidgelineError, match="input 0"):
        gradgradcheck(Flat.apply, x)
    assert gradgradcheck(lambda a: a**3, x, rl.tensor(draw(3)), check_batched_grad=True)


def test_several_results_and_nothing_at_all() -> None:
    assert gradcheck(lambda a: (a.sin(), {"b": a.sum()}), rl.tensor(draw(2, 2)))
    assert gradcheck(rl.sin, rl.tensor(np.zeros((0, 2))))
    assert gradcheck(rl.sin, rl.tensor(draw()))


# ---- every public function -----------------------------------------------------------------------


def check(function: Any, inputs: Any, smooth: bool) -> None:
    gradcheck(function, inputs, fast_mode=True, rtol=1e-5, atol=1e-6)
    if smooth:
        gradgradcheck(function, inputs, fast_mode=True, rtol=1e-4, atol=1e-5)


def test_every_function_is_checked_or_exempt() -> None:
    known = {*UNARY, *BINARY, *REDUCING, *CASES, *EXEMPT}
    missing = [key for key, entry in TABLE.items() if key not in known and not entry.creation]
    assert not missing, f"add these to gradient_cases.py: {missing}"


SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@pytest.mark.parametrize("name", UNARY)
@settings(max_examples=3, deadline=None, derandomize=True)
@given(SHAPES)
def test_elementwise(name: str, shape: tuple[int, ...]) -> None:
    check(body_of(name), rl.tensor(draw(*shape) + (1 if name == "acosh" else 0)), name not in ROUGH)


@pytest.mark.parametrize("name", BINARY)
@settings(max_examples=3, deadline=None, derandomize=True)
@given(SHAPES, st.booleans())
def test_binary(name: str, shape: tuple[int, ...], broadcast: bool) -> None:
    left = draw(*(1 if broadcast else n for n in shape[:1]), *shape[1:])
    inputs = (rl.tensor(left + 0.05), rl.tensor(draw(*shape, seed=1)))
    check(body_of(name), inputs, name not in ROUGH)


NEEDS_AN_AXIS = ("diff", "trapezoid", "cumulative_trapezoid", "unbind", "unbind_copy")
# a spread of one element is 0 / 0, and what has no elements has no extreme
LEAST = {"var": 2, "std": 2, "var_mean": 2, "std_mean": 2, "masked.var": 2, "masked.std": 2}


@pytest.mark.parametrize("name", REDUCING)
@settings(max_examples=4, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 4), max_size=3), st.integers(0, 2))
@example([], 0)
@example([0, 2], 1)
@example([3, 1, 2], 0)
def test_along_an_axis(name: str, shape: list[int], axis: int) -> None:
    x, dim = rl.tensor(draw(*shape)), axis % max(len(shape), 1)
    if (shape[dim] if shape else 1) < LEAST.get(name, 1) or (not shape and name in NEEDS_AN_AXIS):
        return
    check(lambda a: body_of(name)(a, dim=dim), x, name not in ROUGH)


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    function, *arrays = CASES[name]
    check(function, tuple(rl.tensor(a) for a in arrays), name not in ROUGH)


def differentiable_ops() -> dict[str, Op]:
    """Every op of `ridgeline/ops` that has a reverse rule, by name."""
    found: dict[str, Op] = {}
    for module in pkgutil.iter_modules(ops.__path__):
        for value in vars(importlib.import_module(f"ridgeline.ops.{module.name}")).values():
            listed = value.values() if isinstance(value, dict) else [value]
            found |= {op.name: op for op in listed if isinstance(op, Op) and op.vjp is not None}
    return found


def test_every_op_with_a_derivative_is_reached() -> None:
    reached: set[str] = set()
    calls = [(body_of(name), (draw(2, 3) + (name == "acosh"),)) for name in UNARY]
    calls += [(body_of(name), (draw(2, 3), draw(2, 3, seed=1))) for name in BINARY]
    calls += [(partial(body_of(name), dim=1), (draw(2, 3),)) for name in REDUCING]
    calls += [(function, tuple(arrays)) for function, *arrays in CASES.values()]
    for function, arrays in calls:
        inputs = [rl.tensor(a, requires_grad=a.dtype.kind in "fc") for a in arrays]
        results: list[Any] = []
        flatten(function(*inputs), results)
        smooth = [t for t in results if isinstance(t, rl.Tensor) and t.requires_grad]
        asking = [t for t in inputs if t.requires_grad]
        seeds = [rl.ones_like(t) for t in smooth]
        slopes = rl.autograd.grad(smooth, asking, seeds, create_graph=True, allow_unused=True)
        roots = [read(t) for t in (*smooth, *slopes) if t is not None]
        reached |= {node.op.name for node in topological(roots)}
    reached |= set(ROWS)  # tried one by one in test_scalar_rows.py
    reached |= {"custom", "variable"}  # a user's own rule, and a leaf under another name
    reached |= {"nextafter", "search"}  # no slope that differences could see
    reached |= {op.name for op in COLLECTIVES}  # tried on ranks, in tests/distributed
    reached |= {op.name for op in PLACED_OPS}  # identities, tried over meshes there
    # by differences, in test_experts.py of tests/distributed, and identities in test_local.py
    reached |= {"to_experts", "from_experts", "grouped_product", "grouped_outer", "expert_counts"}
    reached |= {"local_part", "from_parts"}
    reached |= {"narrowed"}  # the identity, whose gradient autocast rounds on purpose
    assert {name for name in differentiable_ops() if name not in reached} == set()
