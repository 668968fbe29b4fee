"""Fourier transforms against torch, and their derivatives against differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from ridgeline.errors import RidgelineError
from tests.ops.derivatives import check_derivatives

ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
MANY = tuple(name + end for name in ONE for end in ("2", "n"))
REAL_INPUT = ("rfft", "ihfft", "rfft2", "ihfft2", "rfftn", "ihfftn")


def signal(name: str, shape: tuple[int, ...]) -> np.ndarray:
    random = np.random.default_rng(5)
    x = random.standard_normal(shape)
    return x if name in REAL_INPUT else x + 1j * random.standard_normal(shape)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(ONE),
    st.lists(st.integers(2, 6), min_size=1, max_size=3),
    st.sampled_from([None, 1, 3, 8]),
    st.sampled_from([None, "backward", "ortho", "forward"]),
    st.data(),
)
def test_one_axis(
    name: str, shape: list[int], n: int | None, norm: str | None, data: st.DataObject
) -> None:
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = signal(name, tuple(shape))
    got = getattr(rl.fft, name)(rl.tensor(x), n=n, dim=dim, norm=norm)
    want = getattr(torch.fft, name)(torch.tensor(x), n=n, dim=dim, norm=norm)
    np.testing.assert_allclose(got.numpy(), want.resolve_conj().numpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("norm", [None, "ortho"])
def test_several_axes(name: str, norm: str | None) -> None:
    x = signal(name, (3, 4, 5))
    for kwargs in ({}, {"s": (4, 6)}, {"s": (2, 3), "dim": (0, 2)}):
        if name.endswith("n") and kwargs == {"s": (4, 6)}:
            kwargs = {"dim": (-1, 1)}
        got = getattr(rl.fft, name)(rl.tensor(x), norm=norm, **kwargs)
        want = getattr(torch.fft, name)(torch.tensor(x), norm=norm, **kwargs)
        np.testing.assert_allclose(got.numpy(), want.resolve_conj().numpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", (*ONE, "rfft2", "irfft2", "fftn", "hfft2"))
@pytest.mark.parametrize("size", [None, 5])
def test_derivatives(name: str, size: int | None) -> None:
    x = signal(name, (2, 4))
    if name in ONE:
        check_derivatives(lambda t: getattr(rl.fft, name)(t, n=size, norm="ortho"), x)
    else:
        check_derivatives(lambda t: getattr(rl.fft, name)(t), x)


def test_single_precision_and_integers() -> None:
    assert rl.fft.fft(rl.tensor([1.0, 2.0])).dtype is rl.complex64
    assert rl.fft.rfft(rl.tensor([1, 2, 3])).dtype is rl.complex64
    assert rl.fft.irfft(rl.tensor([1j, 2, 3])).dtype is rl.float32


@pytest.mark.parametrize("n", [1, 4, 5])
def test_frequencies_and_shifts(n: int) -> None:
    for name in ("fftfreq", "rfftfreq"):
        got, want = getattr(rl.fft, name)(n, d=0.5), getattr(torch.fft, name)(n, d=0.5)
        np.testing.assert_allclose(got.numpy(), want.numpy())
    x = np.arange(float(2 * n)).reshape(2, n)
    for name in ("fftshift", "ifftshift"):
        for dim in (None, 1, (0, 1)):
            got = getattr(rl.fft, name)(rl.tensor(x), dim)
            np.testing.assert_array_equal(
                got.numpy(), getattr(torch.fft, name)(torch.tensor(x), dim).numpy()
            )


@pytest.mark.parametrize("return_complex", [True, False])
def test_short_time_transform(return_complex: bool) -> None:
    x, window = np.random.default_rng(0).standard_normal((2, 40)), np.hanning(8)
    got = rl.stft(rl.tensor(x), 8, 3, window=rl.tensor(window), return_complex=return_complex)
    want = torch.stft(
        torch.tensor(x), 8, 3, window=torch.tensor(window), return_complex=return_complex
    )
    np.testing.assert_allclose(got.numpy(), want.resolve_conj().numpy(), rtol=1e-10, atol=1e-10)


def test_windows() -> None:
    for name in ("hann", "hamming", "blackman", "bartlett", "cosine", "kaiser", "nuttall"):
        for sym in (True, False):
            got = getattr(rl.signal.windows, name)(7, sym=sym)
            want = getattr(torch.signal.windows, name)(7, sym=sym)
            np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-6)


def test_wrong_input() -> None:
    for wrong in (
        lambda: rl.fft.fft(rl.tensor([1.0]), norm="sideways"),
        lambda: rl.fft.rfft(rl.tensor([1j])),
        lambda: rl.fft.fft(rl.tensor([1.0]), n=0),
        lambda: rl.fft.fftn(rl.ones(2, 2), dim=(0, 0)),
        lambda: rl.fft.fft(rl.tensor([1.0]), dim=3),
        lambda: rl.fft.fft2(rl.ones(2, 2), s=(2,)),
    ):
        with pytest.raises(RidgelineError):
            wrong()
