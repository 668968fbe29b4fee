"""Transforms of overlapping frames: the short-time Fourier transform and its inverse."""

from __future__ import annotations

from ridgeline import dtypes
from ridgeline.errors import BadValueError, DTypeError, ShapeError
from ridgeline.functions.arithmetic import div, mul
from ridgeline.functions.complex import view_as_real
from ridgeline.functions.concrete import concrete
from ridgeline.functions.fourier import fft, ifft, irfft, rfft
from ridgeline.functions.movement import cut, drop, transpose, unsqueeze
from ridgeline.functions.padding import padded
from ridgeline.functions.registry import public
from ridgeline.functions.windows import unfold
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size
from ridgeline.ops.complex import real_of
from ridgeline.ops.elementwise import constant, full_like, iota
from ridgeline.ops.gather import scatter
from ridgeline.ops.movement import broadcast, broadcast_scalar, pad, permute
from ridgeline.record.cells import known
from ridgeline.record.modes import modes

_NO_WINDOW = 1e-11  # an envelope this small cannot be divided by


@public()
def stft(
    input: Node,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Node | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Node:
    """The transforms of overlapping frames, frequencies along the axis before the frames."""
    if len(input.shape) not in (1, 2):
        raise ShapeError(f"stft needs one or two axes, got shape {list(input.shape)}")
    if return_complex is None and not input.dtype.is_complex:
        raise BadValueError("stft needs return_complex", help="pass return_complex=True")
    x = unsqueeze(input, 0) if len(input.shape) == 1 else input
    hop, width = _lengths("stft", n_fft, hop_length, win_length)
    if center:
        x = padded(x, len(x.shape) - 1, n_fft // 2, n_fft // 2, pad_mode)
    if known(x.shape[-1]) < n_fft:
        raise ShapeError(f"stft: {known(x.shape[-1])} samples are fewer than n_fft {n_fft}")
    frames = unfold(x, -1, n_fft, hop)
    if window is not None or width != n_fft:
        frames = mul(frames, _widened("stft", window, frames, n_fft, width))
    half = not frames.dtype.is_complex if onesided is None else onesided
    norm = "ortho" if normalized else None
    spectrum = rfft(frames, norm=norm) if half else fft(frames, norm=norm)
    result = transpose(spectrum, 1, 2)
    if len(input.shape) == 1:
        result = drop(result, 0)
    whole = input.dtype.is_complex if return_complex is None else return_complex
    return result if whole else view_as_real(result)


@public()
def istft(
    input: Node,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Node | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Node:
    """The signal whose `stft` comes nearest: frames added up and divided by their windows' sum."""
    if not input.dtype.is_complex:
        raise DTypeError(f"istft needs a complex spectrum, got {input.dtype.name}")
    if len(input.shape) not in (2, 3) or 0 in input.shape:
        raise ShapeError(f"istft needs frequencies by frames, got shape {list(input.shape)}")
    x = unsqueeze(input, 0) if len(input.shape) == 2 else input
    hop, width = _lengths("istft", n_fft, hop_length, win_length)
    half = x.shape[1] != n_fft if onesided is None else onesided
    wanted = n_fft // 2 + 1 if half else n_fft
    if x.shape[1] != wanted or (half and return_complex):
        raise ShapeError(
            f"istft: {x.shape[1]} frequencies do not fit n_fft {n_fft}, onesided={half} and "
            f"return_complex={return_complex}"
        )
    norm = "ortho" if normalized else None
    spectrum = transpose(x, 1, 2)
    if return_complex:
        frames = ifft(spectrum, norm=norm)
    else:
        frames = irfft(cut(spectrum, 2, 0, n_fft // 2 + 1), n_fft, norm=norm)
    weights = _widened("istft", window, frames, n_fft, width)
    total = _overlapped(mul(frames, weights), hop)
    squares = broadcast(mul(weights, weights), (1, *frames.shape[1:]), (2,))
    envelope = _overlapped(squares, hop)
    start = n_fft // 2 if center else 0
    present = known(total.shape[1])
    end = start + length if length is not None else present - start
    count = min(end, present) - start
    if count <= 0:
        raise ShapeError(f"istft: no sample is left of {present}, between {start} and {end}")
    total, envelope = cut(total, 1, start, count), cut(envelope, 1, start, count)
    _check_envelope(envelope)
    result = div(total, envelope)
    if end > present:
        result = pad(result, (0, 0), (0, end - present))
    return drop(result, 0) if len(input.shape) == 2 else result


def _lengths(what: str, n_fft: int, hop: int | None, width: int | None) -> tuple[int, int]:
    """The step from frame to frame and the width of the window."""
    step = n_fft // 4 if hop is None else hop
    span = n_fft if width is None else width
    if not (0 < span <= n_fft and step > 0):
        raise BadValueError(f"{what}: win_length {span} and hop {step} do not fit n_fft {n_fft}")
    return step, span


def _widened(what: str, window: Node | None, frames: Node, n_fft: int, width: int) -> Node:
    """The window with zeros around it, as wide as a frame."""
    if window is None:
        window = broadcast_scalar(constant(1, real_of(frames.dtype)), (width,))
    if window.shape != (width,):
        raise ShapeError(f"{what}: the window has shape {list(window.shape)}, not [{width}]")
    left = (n_fft - width) // 2
    return pad(window, (left,), (n_fft - width - left,))


def _overlapped(frames: Node, hop: int) -> Node:
    """Frames [batch, number, width] added up where each starts `hop` after the one before."""
    batch, number, width = frames.shape
    grid: tuple[Size, ...] = (number, width)
    starts, inside = (iota(grid, axis, dtypes.int64) for axis in (0, 1))
    positions = mul(starts, full_like(starts, hop)) + inside
    length = width + hop * (number - 1)
    blank = broadcast_scalar(constant(0, frames.dtype), (length, batch))
    added = scatter(blank, permute(frames, (1, 2, 0)), (positions,), (0,), "add")
    return permute(added, (1, 0))


def _check_envelope(envelope: Node) -> None:
    """Raise where the windows leave a sample out; inside jit the values are not known yet."""
    if modes.capture is None and abs(concrete(envelope, "istft")).min() < _NO_WINDOW:
        raise BadValueError(
            "istft: the windows leave out some samples, which cannot be found again",
            help="use a smaller hop_length or a window without zeros",
        )
