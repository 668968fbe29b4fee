"""Linear algebra, as in torch.linalg; `linalg.pyi` has the signatures."""

from ridgeline.errors import LinAlgError as LinAlgError
from ridgeline.tensors import dispatch

_names = dispatch.namespace("linalg")
globals().update(_names)
__all__ = [*_names, "LinAlgError"]
