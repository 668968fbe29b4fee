"""On a GPU, pointwise and special functions are as close to the truth as docs/numerics.md says."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.functions.registry import Entry
from ridgeline.graph.node import Node
from ridgeline.ops import special as ops
from ridgeline.scalars import Array
from ridgeline.tensors.dispatch import make_function
from tests.functions import accuracy
from tests.functions.accuracy import CASES, DTYPES, Case
from tests.loops import test_incomplete_gamma as incomplete, test_special as special
from tests.loops.accuracy import ulps

pytestmark = pytest.mark.gpu
COUNT = 150  # random arguments of a kind
# What stands on CUDA's own exponentials, good to 1 ulp where ours on a CPU are good to half of one.
ON_EXPONENTIALS = ("sigmoid", "nn.functional.celu alpha=3.0", "logaddexp")


def on_device(name: str, *operands: Array) -> Array:
    """A special function by its name in the scalar table, compiled for the GPU."""

    def body(*nodes: Node) -> Node:
        return ops.special(name, *nodes)

    function = make_function(Entry(name, body, True, False, False, False, False, ()))
    with rl.config.override(tier="compiled"):
        return function(*[rl.tensor(o, device="cuda") for o in operands]).cpu().numpy()


@pytest.mark.parametrize("dtype", DTYPES, ids=[dtype.name for dtype in DTYPES])
@pytest.mark.parametrize("case", CASES, ids=[case.label for case in CASES])
def test_pointwise_functions(case: Case, dtype: dtypes.DType) -> None:
    points = accuracy.sample(case, dtype, COUNT)
    error, place = points.worst(accuracy.ours(case, points.operands, "compiled", "cuda"))
    allowed = case.allowed(dtype) + 0.5 * (case.label in ON_EXPONENTIALS)
    assert error <= allowed, f"{case.label}({place}): {error} ulp"


@pytest.mark.parametrize("dtype", DTYPES, ids=[dtype.name for dtype in DTYPES])
def test_whole_powers_and_their_logarithms_are_exact(dtype: dtypes.DType) -> None:
    top = {dtypes.float64: 1022, dtypes.float16: 14}.get(dtype, 126)
    whole = np.unique(np.linspace(-top, top, 41).round()).astype(dtype.numpy)
    powers = np.exp2(whole.astype(np.float64)).astype(dtype.numpy)
    with rl.config.override(tier="compiled"):
        exponents, given = (rl.tensor(v, device="cuda") for v in (whole, powers))
        assert rl.exp2(exponents).tolist() == powers.tolist()
        assert rl.log2(given).tolist() == whole.tolist()
        assert rl.sinc(rl.arange(1, 9, device="cuda").to(dtype)).tolist() == [0.0] * 8


@pytest.mark.parametrize("name", special.OF_ONE)
def test_special_functions(name: str) -> None:
    special.check(name, on_device(name, special.samples(name)), special.LIMIT)


@pytest.mark.parametrize("name", incomplete.NAMES)
def test_incomplete_gamma_functions(name: str) -> None:
    given = incomplete.operands()
    found = on_device(name, *given).tolist()
    for a, x, got, truth in zip(*(v.tolist() for v in given), found, incomplete.truths(name)):
        if truth >= 1e-300:
            error = ulps(got, truth, 8)
            assert error <= incomplete.LIMIT[name], f"{name}({a!r}, {x!r}) = {got!r}: {error} ulp"


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_remainder_of_zero_has_the_sign_of_the_dividend(dtype: str) -> None:
    kind = getattr(rl, dtype)
    a = rl.tensor([-10.0, 10.0, -0.0, 0.0, 7.5, -7.5], dtype=kind, device="cuda")
    b = rl.tensor([5.0, -5.0, 5.0, -5.0, -2.0, 2.0], dtype=kind, device="cuda")
    with rl.config.override(tier="compiled"):
        found = (a % b).cpu()
    assert found.tolist() == [0.0, 0.0, 0.0, 0.0, -0.5, 0.5]
    assert rl.signbit(found).tolist() == [True, False, True, False, True, False]
