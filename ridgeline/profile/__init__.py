"""Where time goes and what to change: traces of PyTorch programs in, ranked findings out.

`diagnose(path)` reads torch.profiler traces and returns a `Report`. Names are loaded on first
use, so that importing this package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ridgeline.profile.comparison import compare
    from ridgeline.profile.diagnosis import diagnose
    from ridgeline.profile.report import Finding, Report

__all__ = ["Finding", "Report", "compare", "diagnose"]

_HOMES = {
    "Finding": "ridgeline.profile.report",
    "Report": "ridgeline.profile.report",
    "compare": "ridgeline.profile.comparison",
    "diagnose": "ridgeline.profile.diagnosis",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
