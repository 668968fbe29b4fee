"""Reductions that leave out masked elements, as in torch.masked; `masked.pyi` has signatures."""

from ridgeline.module_paths import unknown as _unknown
from ridgeline.tensors import dispatch

_names = dispatch.namespace("masked")
globals().update(_names)
__all__ = list(_names)
__getattr__ = _unknown(__name__)
