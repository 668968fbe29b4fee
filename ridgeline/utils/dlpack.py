"""torch.utils.dlpack: memory shared with other libraries."""

from ridgeline.interop.dlpack import from_dlpack as from_dlpack
from ridgeline.tensors.tensor import Tensor


def to_dlpack(tensor: Tensor) -> object:
    """A capsule with the memory of a tensor."""
    return tensor.__dlpack__()
