"""Dropout: elements or whole channels set to zero at random while training."""

from __future__ import annotations

from ridgeline.errors import BadValueError
from ridgeline.nn import functional
from ridgeline.nn.module import Module
from ridgeline.tensors.tensor import Tensor


class Dropout(Module):
    """Elements set to zero with probability p, the others scaled by 1/(1-p)."""

    function = "dropout"

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise BadValueError(f"a dropout probability lies in 0…1, not {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = getattr(functional, self.function)(input, self.p, self.training)
        return input.copy_(result) if self.inplace else result

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout1d(Dropout):
    """Whole channels of [n, c, l]."""

    function = "dropout1d"


class Dropout2d(Dropout):
    """Whole channels of [n, c, h, w]."""

    function = "dropout2d"


class Dropout3d(Dropout):
    """Whole channels of [n, c, d, h, w]."""

    function = "dropout3d"


class AlphaDropout(Dropout):
    """Dropout that keeps the mean and variance of SELU's outputs."""

    function = "alpha_dropout"


class FeatureAlphaDropout(Dropout):
    """AlphaDropout of whole channels."""

    function = "feature_alpha_dropout"
