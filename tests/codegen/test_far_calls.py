"""The C library is called only where a vector holds a number that needs it."""

from collections.abc import Callable

import numpy as np
import pytest

import ridgeline as rl


@pytest.mark.parametrize("far", [[], [3], [0, 17, 40], list(range(41))])
def test_near_and_far_numbers_in_one_vector(far: list[int]) -> None:
    x = np.linspace(-3, 3, 41)
    x[far] *= 1e15
    with rl.config.override(tier="compiled"):
        np.testing.assert_allclose(rl.sin(rl.tensor(x)).numpy(), np.sin(x), rtol=0, atol=1e-15)
        np.testing.assert_allclose(rl.cos(rl.tensor(x)).numpy(), np.cos(x), rtol=0, atol=1e-15)


def test_calls_stand_behind_a_branch() -> None:
    source = rl.loops(rl.sin, rl.ones(64, dtype=rl.float64)).default().source()
    kernel = source[source.index("define void") :]
    assert "call double @sin" not in kernel and "@far_sin_" in kernel
    assert "br i1 %any" in source[: source.index("define void")]


@pytest.mark.parametrize("function", [rl.sin, lambda t: rl.abs(t) ** 1.7])
@pytest.mark.parametrize("dtype", [rl.float64, rl.float32])
def test_calls_of_parts_that_are_joined(
    function: Callable[[rl.Tensor], rl.Tensor], dtype: rl.dtype
) -> None:
    x = rl.tensor(np.linspace(-3, 40, 33)).to(dtype)

    def joined(x: rl.Tensor) -> rl.Tensor:
        y = rl.stack([function(x), x, function(x + 1)], 1)
        y[3:30:2, 1] = y[3:30:2, 0] * 2
        return rl.nn.functional.pad(y, (1, 2, 0, 1), value=5.0)

    with rl.config.override(tier="interpreter"):
        expected = joined(x).numpy()
    with rl.config.override(tier="compiled"):
        np.testing.assert_allclose(rl.jit(joined)(x).numpy(), expected, rtol=1e-6)
