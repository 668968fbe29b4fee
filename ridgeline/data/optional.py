"""Packages that only some sources need."""

from __future__ import annotations

import importlib
from types import ModuleType

from ridgeline.errors import RidgelineError


class MissingPackageError(RidgelineError, ImportError):
    """A package that is not installed is needed for what was asked."""

    code = "RL0303"


def need(module: str, package: str, purpose: str) -> ModuleType:
    """Import a module, or say which package to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            f"{purpose} needs the package {package}", help=f"python -m pip install {package}"
        ) from error
