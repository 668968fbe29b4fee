"""Fourier transforms and what goes with them."""

from __future__ import annotations

from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.onnx.operators.elements import element_type
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import OnnxError
from ridgeline.tensors.tensor import Tensor


def _complex(x: Tensor) -> Tensor:
    """What the last axis holds, as complex numbers: real parts alone, or both parts."""
    if x.shape[-1] == 1:
        return rl.complex(x[..., 0], rl.zeros_like(x[..., 0]))
    return rl.complex(x[..., 0], x[..., 1])


def _work(x: Tensor) -> Tensor:
    return x if x.dtype.itemsize >= 4 else x.to(rl.float32)


def _transform(input: Tensor, length: Any, axis: int, inverse: int, onesided: int) -> Tensor:
    axis %= input.ndim
    given = _work(input)
    if inverse and onesided:
        whole: Tensor = rl.fft.irfft(_complex(given), length, axis).unsqueeze(-1)
        return whole.to(input.dtype)
    function = rl.fft.ifft if inverse else rl.fft.fft
    found = function(_complex(given), length, axis)
    if onesided:
        found = rl.narrow(found, axis, 0, found.shape[axis] // 2 + 1)
    return rl.view_as_real(found).to(input.dtype)


def _dft_17(
    input: Tensor, dft_length: int | None = None, axis: int = 1, inverse: int = 0,
    onesided: int = 0,
) -> Tensor:  # fmt: skip
    return _transform(input, dft_length, axis, inverse, onesided)


def _dft(
    input: Tensor, dft_length: int | None = None, axis: int = -2, inverse: int = 0,
    onesided: int = 0,
) -> Tensor:  # fmt: skip
    return _transform(input, dft_length, axis, inverse, onesided)


def _stft(
    signal: Tensor, frame_step: int, window: Tensor | None = None, frame_length: int | None = None,
    onesided: int = 1,
) -> Tensor:  # fmt: skip
    if frame_length is None and window is None:
        raise OnnxError("STFT is given neither a window nor a length of frames")
    length: Any = frame_length if window is None or frame_length else window.shape[0]
    if signal.ndim == 2:  # real, without an axis that says so
        signal = signal.unsqueeze(-1)
    count = (signal.shape[1] - length) // frame_step + 1
    places = rl.arange(count).unsqueeze(1) * frame_step + rl.arange(length)
    frames = rl.index_select(_work(signal), 1, places.reshape(-1))
    frames = frames.reshape(signal.shape[0], count, length, signal.shape[2])
    if window is not None:
        frames = frames * _work(window).reshape(-1, 1)
    return _transform(frames, None, 2, 0, onesided).to(signal.dtype)


def _mel(hertz: Any) -> Any:
    return 2595 * np.log10(1 + hertz / 700)


def _mel_weights(
    num_mel_bins: int, dft_length: int, sample_rate: int, lower_edge_hertz: float,
    upper_edge_hertz: float, output_datatype: int = 1,
) -> Tensor:  # fmt: skip
    """Triangles over frequencies whose corners are evenly spaced in pitch."""
    bins = dft_length // 2 + 1
    low_edge, high_edge = _mel(lower_edge_hertz), _mel(upper_edge_hertz)
    step = (high_edge - low_edge) / (num_mel_bins + 2)
    corners = np.arange(num_mel_bins + 2) * step + low_edge
    hertz = 700 * (10 ** (corners / 2595) - 1)
    at = (((dft_length + 1) * hertz) // sample_rate).astype(np.int64)
    weights = np.zeros((bins, num_mel_bins), np.float64)
    for number in range(num_mel_bins):
        low, centre, high = at[number : number + 3]
        if low == centre:
            weights[centre, number] = 1
        else:
            rising = np.arange(low, centre + 1)
            weights[rising, number] = (rising - low) / (centre - low)
        if high > centre:
            falling = np.arange(centre, high)
            weights[falling, number] = (high - falling) / (high - centre)
    return rl.from_numpy(weights).to(element_type(output_datatype))


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("DFT", _dft_17, 17, 19),
    OperatorRow("DFT", _dft, 20),
    OperatorRow("STFT", _stft),
    OperatorRow("MelWeightMatrix", _mel_weights),
)
