"""Discrete Fourier transforms, as in torch.fft; `fft.pyi` has the signatures."""

from ridgeline.module_paths import unknown as _unknown
from ridgeline.tensors import dispatch

_names = dispatch.namespace("fft")
globals().update(_names)
__all__ = list(_names)
__getattr__ = _unknown(__name__)
