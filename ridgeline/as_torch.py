"""`import ridgeline.as_torch`: from here on `import torch` and `import torchvision` mean Ridgeline.

`ridgeline run` does this for a whole program and the processes that it starts: the folder
`standins` comes first on their paths, and what is there imports this module.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import ridgeline
from ridgeline import module_paths
from ridgeline.errors import RidgelineError

VERSION = "2.13.0+ridgeline"  # of the torch whose names and behaviour are meant
STANDINS = Path(__file__).with_name("standins")


class TorchModule(ModuleType):
    """`torch`: everything of `ridgeline`, and torch's version."""

    def __init__(self) -> None:
        super().__init__("torch", ridgeline.__doc__)
        self.__path__: list[str] = []
        self.__version__, self.__file__ = VERSION, __file__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(ridgeline, name)

    def __dir__(self) -> list[str]:
        return [*dir(ridgeline), "__version__"]


def install() -> None:
    """Let `torch` and `torchvision` mean Ridgeline in this process."""
    present = sys.modules.get("torch")
    if isinstance(present, TorchModule):
        return
    standing_in = str(getattr(present, "__file__", "")).startswith(str(STANDINS))
    if present is not None and not standing_in:
        raise RidgelineError(
            "torch itself is imported already",
            help="import ridgeline.as_torch first, or start the program with `ridgeline run`",
        )
    sys.modules["torch"] = TorchModule()
    module_paths.serve("torch", "ridgeline")
    module_paths.serve("torchvision", "ridgeline.vision")
    sys.modules["torchvision"] = import_module("ridgeline.vision")


def lead(environment: dict[str, str] | os._Environ[str]) -> None:
    """Let the processes that this one starts do the same."""
    sys.path.insert(0, str(STANDINS))
    paths = [str(STANDINS), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


install()
