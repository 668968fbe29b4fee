"""NVIDIA's libraries, found in the wheels that pip installs or on the system."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any


def load(folders: Sequence[str], names: Sequence[str]) -> Any:
    """The first library of these names, in folders of the wheels first; None if there is none."""
    found = find_spec("nvidia")
    roots = (found.submodule_search_locations or ()) if found else ()
    for root, folder, name in product(roots, folders, names):
        path = Path(root) / folder / name
        if path.exists():
            return ctypes.CDLL(str(path))
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
