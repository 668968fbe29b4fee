"""Vectors of narrow floats of which some lanes are constants.

LLVM folds constant parts of a vector and has no code for some of the results. It then ends the
process, so a failure of these tests is a crash.
"""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl


@pytest.mark.parametrize("dtype", [rl.bfloat16, rl.float16, rl.float8_e4m3fn, rl.float8_e5m2])
@pytest.mark.parametrize("columns", [7, 15, 16, 17, 31, 33, 63])
def test_padding_beside_numbers(columns: int, dtype: rl.DType) -> None:
    x = (np.arange(4 * columns) % 8).astype(np.float32).reshape(4, columns)
    narrow = rl.tensor(x).to(dtype)
    for before, after in ((-1, 2), (2, -1), (0, 20), (20, 0)):
        kept = x[:, max(-before, 0) : columns + min(after, 0)]
        wanted = np.pad(kept, ((0, 0), (max(before, 0), max(after, 0))), constant_values=3)
        with rl.config.override(tier="compiled"):
            got = rl.nn.functional.pad(narrow, [before, after], value=3).numpy()
        np.testing.assert_array_equal(got.astype(np.float32), wanted)


@pytest.mark.parametrize("dtype", [rl.float32, rl.float64, rl.float16, rl.bfloat16])
@pytest.mark.parametrize("shape", [(3, 1, 1, 1), (2, 1, 2, 1), (2, 1, 1, 3)])
def test_a_quotient_beside_what_is_padded(shape: tuple[int, ...], dtype: rl.dtype) -> None:
    """Lanes outside of an image hold 0 / 0 before they are padded, and that is not zero."""
    values = np.linspace(0.5, 1.5, int(np.prod(shape))).reshape(shape)
    x = rl.tensor(values).to(dtype)
    with rl.config.override(tier="compiled"):
        found = rl.nn.functional.pad(x.softmax(-1), (1, 1, 1, 1)).float().numpy()
    weights = np.exp(values - values.max(-1, keepdims=True))
    wanted = np.pad(weights / weights.sum(-1, keepdims=True), ((0, 0), (0, 0), (1, 1), (1, 1)))
    np.testing.assert_allclose(found, wanted, atol=1e-2)
    assert (found[wanted == 0] == 0).all()
