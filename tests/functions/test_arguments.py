"""Arguments of the wrong kind: named, never left to Python's or NumPy's own errors."""

from __future__ import annotations

import inspect
import random
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.functions.registry import TABLE
from ridgeline.nn import functional
from ridgeline.record import recorder
from ridgeline.tensors import dispatch

X = rl.zeros(2, 3)


@pytest.mark.parametrize("call, message", [
    (lambda: X.topk("a"), "topk needs an int for 'k', got str 'a'"),
    (lambda: X.topk(1.5), "topk needs an int for 'k', got float"),
    (lambda: X.roll(X), "roll needs an int or a list of ints for 'shifts', got a tensor"),
    (lambda: rl.cat(X), "cat needs a list of tensors for 'tensors', got a tensor"),
    (lambda: rl.stack([X, 1]), "stack needs a list of tensors"),
    (lambda: X.repeat_interleave([2]), "needs an int or a tensor for 'repeats', got a list of 1"),
    (lambda: X.clone().masked_scatter_(1, X), "needs a tensor for 'mask', got int 1"),
    (lambda: X.diagonal("a"), "diagonal needs an int for 'offset'"),
    (lambda: rl.full("ab", 1), "size"),
    (lambda: rl.meshgrid(1, 2), "meshgrid needs tensors, got int"),
    (lambda: X.histc(X), "histc needs an int for 'bins'"),
    (lambda: rl.zeros(()).split(1), "at least one axis"),
    (lambda: X.tile(-1), "at least 0"),
])  # fmt: skip
def test_the_argument_is_named(call, message: str) -> None:
    with pytest.raises(rl.RidgelineError, match=message):
        call()


def test_a_call_with_too_few_arguments_is_pythons_to_explain() -> None:
    with pytest.raises(TypeError, match="topk"):
        X.topk()


def public_functions() -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """Every public function, method and in-place method, with the body that has its signature."""
    found: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
    for key, entry in TABLE.items():
        if entry.namespace:
            found[key] = (dispatch.NAMESPACES[entry.namespace][entry.name], entry.body)
        elif entry.function:
            found[key] = (dispatch.FUNCTIONS[entry.name], entry.body)
        elif entry.method:
            found[key] = (getattr(rl.Tensor, entry.name), entry.body)
        if entry.inplace:
            found[f"{key}_"] = (getattr(rl.Tensor, entry.name + "_"), entry.body)
    for name in dir(functional):
        function = getattr(functional, name)
        found[f"functional.{name}"] = (function, inspect.unwrap(function))
    return found


FUNCTIONS = public_functions()
HUGE = [2**31, 2**40, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, -(10**30)]
TENSORS = [
    rl.zeros(0), rl.ones(2, 0, 3), rl.ones(1, 1), rl.ones(2, 2, 2, 2, 2), rl.tensor(-1),
    rl.full((3,), float("nan")), rl.tensor([2**62, -(2**63), 5]), rl.tensor([9, -9, 3]),
    rl.ones(3, dtype=rl.uint8), rl.ones(2, 2, dtype=rl.float16), rl.ones(3, dtype=rl.float8_e4m3fn),
    rl.ones(2, 3), rl.ones(3), rl.ones(()), rl.zeros(0, 3), rl.ones(2, 3, 4), rl.ones(1, 2, 4, 4),
    rl.ones(2, 3, dtype=rl.int64), rl.ones(3, dtype=rl.bool), rl.ones(2, 2, dtype=rl.complex64),
    rl.ones(3, 3, dtype=rl.float64), rl.ones(4, dtype=rl.bfloat16),
]  # fmt: skip
VALUES = [
    *TENSORS, 0, 1, -1, 7, -9, 2.5, -0.5, float("nan"), float("inf"), 1j, True, None, "a", "mean",
    "", [], (), [1], [0, 1], (2, 3), [1, [2]], [-1], ["a"], [None], {}, object(), rl.float32,
    rl.int64, [rl.ones(2)], [rl.ones(2), rl.ones(3)], (rl.ones(2), 2), np.ones(3), slice(1), ...,
    b"x", range(3), len, *HUGE, float("-inf"), 1e308, [2**63], [-2], [0, 0], [1.5], [float("nan")],
    (0, -1), (5,), [[1, 2], [3]], [[]], "cuda", "reflect", "i->", np.int64(3), np.float32(1),
    np.array("x"), {1}, iter([1]), Exception, NotImplemented, rl.Tensor, (1,) * 9,
    [rl.ones(2), None], complex("nan"),
]  # fmt: skip


LEFT_ALONE = ("generator", "distance_function")  # the error of a caller's function is the caller's


def random_call(
    name: str, body: Callable[..., Any], draw: random.Random
) -> tuple[list[Any], dict[str, Any]]:
    """As many arguments as the function takes, nearly all of them wrong."""
    declared = list(inspect.signature(body).parameters.values())
    places = [p for p in declared if p.kind is p.POSITIONAL_OR_KEYWORD]
    needed = sum(p.default is p.empty for p in places)
    values = [draw.choice(VALUES) for _ in range(draw.randint(needed, len(places)))]
    if values and (name.endswith("_") or draw.random() < 0.7):
        values[0] = draw.choice(TENSORS).clone()
    if any(p.kind is p.VAR_POSITIONAL for p in declared):
        values += [draw.choice(VALUES) for _ in range(draw.randint(0, 2))]
    named = {}
    for parameter in declared:
        if parameter.kind is not parameter.KEYWORD_ONLY or parameter.name in LEFT_ALONE:
            continue
        if parameter.default is parameter.empty or draw.random() < 0.2:
            named[parameter.name] = draw.choice(VALUES)
    return values, named


@pytest.mark.parametrize("start", range(8))
def test_no_wrong_argument_ends_in_a_foreign_traceback(start: int) -> None:
    bad = []
    for name in list(FUNCTIONS)[start::8]:
        function, body = FUNCTIONS[name]
        draw = random.Random(zlib.crc32(name.encode()))
        for _ in range(6):
            values, named = random_call(name, body, draw)
            try:
                function(*values, **named)
                recorder.flush()
            except rl.RidgelineError:
                pass
            except Exception as error:
                bad.append(f"{name}({values}, {named}): {error!r}")
    assert not bad, "\n".join(bad[:10])


def test_a_value_that_numpy_refuses_names_the_op_and_the_line() -> None:
    huge = rl.ones(2).broadcast_to((2**40, 2**20, 2))
    with (
        rl.config.override(tier="interpreter"),
        pytest.raises(rl.RidgelineError, match=r"RL0106(.|\n)*test_arguments.py"),
    ):
        (huge + 1).tolist()
