"""Special functions, as in torch.special; `special.pyi` has the signatures."""

from ridgeline.tensors import dispatch

_names = dispatch.namespace("special")
globals().update(_names)
__all__ = list(_names)
