"""torchvision's datasets, transforms, ops, models and utils, as training programs use them.

Pictures are read by Pillow where it is installed, and tensors are taken everywhere.
"""

from ridgeline.module_paths import unknown as _unknown
from ridgeline.vision import datasets, io, models, ops, transforms, utils

__version__ = "0.28.0+ridgeline"
__all__ = ["datasets", "io", "models", "ops", "transforms", "utils"]
__getattr__ = _unknown(__name__)
