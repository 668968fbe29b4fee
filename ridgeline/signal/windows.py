"""Windows for signals, as in torch.signal.windows; `windows.pyi` has the signatures."""

from ridgeline.tensors import dispatch

_names = dispatch.namespace("signal.windows")
globals().update(_names)
__all__ = list(_names)
