"""The class that receives the generated methods; `methods.pyi` gives their signatures."""


class TensorMethods:
    """Base of Tensor: `dispatch.py` puts the public functions here as methods."""

    __slots__ = ()
