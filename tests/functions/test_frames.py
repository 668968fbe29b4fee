"""Short-time Fourier transforms and their inverses against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from tests.functions.reference import agree, torch

CASES: list[dict[str, Any]] = [
    {},
    {"hop_length": 3},
    {"win_length": 6, "hop_length": 2},
    {"normalized": True},
    {"onesided": False},
    {"length": 15},
    {"length": 60},
]


def windowed(lib: Any, options: dict[str, Any]) -> dict[str, Any]:
    width = options.get("win_length", 10)
    return {**options, "window": lib.hamming_window(width, dtype=lib.float64)}


@pytest.mark.parametrize("options", CASES)
def test_inverse_with_gradients(options: dict[str, Any]) -> None:
    rows = 10 if options.get("onesided") is False else 6
    draw = np.random.default_rng(0)
    parts = draw.standard_normal((2, rows, 9, 2))
    agree(lambda lib, x: lib.istft(lib.view_as_complex(x), 10, **windowed(lib, options)), [parts])


def test_back_and_forth() -> None:
    x = rl.tensor(np.random.default_rng(1).standard_normal((2, 40)), requires_grad=True)
    window = rl.hann_window(8, dtype=rl.float64)

    def there_and_back(x: rl.Tensor) -> rl.Tensor:
        spectrum = rl.stft(x, 8, 2, window=window, return_complex=True)
        return rl.istft(spectrum, 8, 2, window=window, length=40)

    np.testing.assert_allclose(there_and_back(x).tolist(), x.tolist(), atol=1e-12)
    assert rl.autograd.gradcheck(there_and_back, (x,))
    np.testing.assert_allclose(rl.jit(there_and_back)(x).tolist(), x.tolist(), atol=1e-12)


def test_complex_signals() -> None:
    z = np.random.default_rng(2).standard_normal((8, 5)) + 1j
    ours = rl.istft(rl.tensor(z), 8, return_complex=True)
    theirs = torch.istft(torch.tensor(z), 8, return_complex=True, window=torch.ones(8))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-6)


@pytest.mark.parametrize("call, message", [
    (lambda z: rl.istft(z.real, 10), "complex"),
    (lambda z: rl.istft(z, 12), "frequencies"),
    (lambda z: rl.istft(z[0, 0], 10), "frequencies by frames"),
    (lambda z: rl.istft(z, 10, window=rl.ones(9)), "window has shape"),
    (lambda z: rl.istft(z, 10, window=rl.zeros(10)), "leave out"),
    (lambda z: rl.istft(z, 10, hop_length=0), "hop"),
])  # fmt: skip
def test_wrong_arguments(call: Any, message: str) -> None:
    with pytest.raises(rl.RidgelineError, match=message):
        call(rl.ones(2, 6, 9, dtype=rl.complex64))
