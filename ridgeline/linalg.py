"""Linear algebra, as in torch.linalg; `linalg.pyi` has the signatures."""

from ridgeline.errors import LinAlgError as LinAlgError
from ridgeline.module_paths import unknown as _unknown
from ridgeline.reference import describe as _describe
from ridgeline.tensors import dispatch

_names = dispatch.namespace("linalg")
globals().update(_names)
__all__ = [*_names, "LinAlgError"]
_describe("linalg", {"LinAlgError": LinAlgError})
__getattr__ = _unknown(__name__)
