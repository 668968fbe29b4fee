"""Imports while a function is traced: which modules are found, and those that are run by it."""

from __future__ import annotations

import sys
import types
from itertools import pairwise
from typing import Any

from ridgeline.tracing.reads import attributes
from ridgeline.tracing.reads.recorder import ReadRecorder


def begin(recorder: ReadRecorder, namespace: dict[str, Any], module: str) -> None:
    """A module is about to be imported by its absolute name."""
    recorder.builtin(namespace, "__import__")
    if any(name not in sys.modules for name in _with_packages(module)):
        recorder.loads()


def end(recorder: ReadRecorder, module: str, name: str) -> None:
    """A module was imported, and perhaps a name from it."""
    recorder.loaded()
    names = _with_packages(module)
    for path in names:
        found = sys.modules.get(path)
        recorder.note(sys.modules, "key", path, found, f"the module {path}")
    for package, path in pairwise(names):  # `import a.b as c` takes them from each other
        _attribute(recorder, sys.modules.get(package), path.rpartition(".")[2])
    _attribute(recorder, sys.modules.get(module), name)


def _with_packages(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _attribute(recorder: ReadRecorder, module: Any, name: str) -> None:
    if isinstance(module, types.ModuleType) and name in vars(module):
        attributes.of_module(recorder, module, name)
