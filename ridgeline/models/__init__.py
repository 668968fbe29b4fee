"""Models to train or to start from."""

from ridgeline.models.lenet import lenet5

__all__ = ["lenet5"]
