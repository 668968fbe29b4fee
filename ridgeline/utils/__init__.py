"""Helpers around training, under torch.utils' names; `utils.data` is `ridgeline.data`."""

from importlib import import_module
from typing import Any

from ridgeline.module_paths import unknown as _unknown

_find = _unknown(__name__)


def __getattr__(name: str) -> Any:
    if name in ("checkpoint", "dlpack", "pytree", "tensorboard"):
        return import_module(f"{__name__}.{name}")
    return _find(name)
