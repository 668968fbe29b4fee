"""torch.onnx as far as models ask about it: nothing is ever exported here."""

from ridgeline.module_paths import unknown as _unknown


def is_in_onnx_export() -> bool:
    """False: models are not exported to ONNX."""
    return False


__getattr__ = _unknown(__name__)
