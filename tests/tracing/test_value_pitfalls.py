"""Values that compilers get wrong: each case on torch and here, in every way to run.

Most were reported against other compilers: writes through odd views, division and remainder of
negative and infinite numbers, overflow, NaN in extremes, empty and 0-d tensors, narrow floats,
gradients at kinks. The cases are in `view_pitfalls.py` and `number_pitfalls.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.config import config
from tests.tracing import number_pitfalls, view_pitfalls  # noqa: F401  # they register their cases
from tests.tracing.value_cases import CASES

torch = pytest.importorskip("torch")


def _flat(result: Any) -> list[Any]:
    parts = result if isinstance(result, tuple | list) else [result]
    return [part for one in parts for part in (_flat(one) if isinstance(one, tuple) else [one])]


def _seen(tensor: Any) -> tuple[str, np.ndarray]:
    """The name of an element type and the values, narrow floats as float32."""
    tensor = tensor.detach()
    if isinstance(tensor, torch.Tensor):
        tensor = tensor.resolve_conj().resolve_neg()
        name = str(tensor.dtype).split(".")[-1]
        return name, np.array((tensor.float() if name == "bfloat16" else tensor).numpy())
    name = tensor.dtype.name
    return name, np.array((tensor.float() if name == "bfloat16" else tensor).numpy())


def _run(
    function: Callable[..., Any], module: Any, arguments: tuple[np.ndarray, ...], jitted: bool
) -> list[tuple[str, np.ndarray]]:
    """Results and what the arguments hold afterwards; of a jitted function, of its second call."""

    def call(*given: Any) -> Any:
        return function(module, *given)

    run = rl.jit(call) if jitted else call
    for _ in range(2 if jitted else 1):
        given = [module.tensor(a) for a in arguments]
        result = _flat(run(*given))
    return [_seen(t) for t in (*result, *given)]


def _compare(got: tuple[str, np.ndarray], want: tuple[str, np.ndarray]) -> None:
    assert got[0] == want[0] and got[1].shape == want[1].shape
    a, b = got[1], want[1]
    if a.dtype.kind not in "fc":
        np.testing.assert_array_equal(a, b)
        return
    tolerance = 2e-2 if got[0] == "bfloat16" else 1e-5
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    if a.dtype.kind == "f":
        zeros = (a == 0) & (b == 0)
        np.testing.assert_array_equal(np.signbit(a)[zeros], np.signbit(b)[zeros])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_every_way_agrees_with_torch(name: str) -> None:
    function, arguments = CASES[name]
    want = _run(function, torch, arguments, jitted=False)
    ways = {"interpreter": ("interpreter", False), "deferred": ("compiled", False),
            "jit": ("compiled", True)}  # fmt: skip
    for way, (tier, jitted) in ways.items():
        with config.override(tier=tier), rl.eager() if way == "interpreter" else nullcontext():
            got = _run(function, rl, arguments, jitted)
        for one, other in zip(got, want, strict=True):
            _compare(one, other)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.unfold(0, 3, 1).zero_(),
        lambda x: x[0].expand(3).add_(1),
        lambda x: rl.as_strided(x, (2, 3), (1, 1)).mul_(2),
        lambda x: x.unfold(0, 3, 2).__setitem__(0, 1.0),
    ],
)
def test_a_write_to_elements_that_are_one_in_memory_is_refused(write: Callable[..., Any]) -> None:
    """torch.compile #152425: the result depends on who computes it."""
    for function in (write, rl.jit(write)):
        x = rl.arange(6).float()
        with pytest.raises(rl.RidgelineError, match="one in memory"):
            function(x)
        assert x.tolist() == [0, 1, 2, 3, 4, 5]
