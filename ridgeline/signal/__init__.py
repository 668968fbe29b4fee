"""Signals, as in torch.signal: `signal.windows.hann(64)`."""

from ridgeline.signal import windows

__all__ = ["windows"]
