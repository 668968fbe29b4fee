"""The public functions by name, for modules that import them; `public.pyi` has the signatures."""

from ridgeline.tensors import dispatch

globals().update(dispatch.FUNCTIONS)
__all__ = list(dispatch.FUNCTIONS)
