"""NVIDIA's libraries, found in the wheels that pip installs or on the system.

What they make is destroyed when the next such thing is made: finalizers only note it (`device.py`).
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
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


_discarded: deque[Callable[[], object]] = deque()


def destroying(destroy: Callable[..., object], made: object) -> Callable[[], object]:
    """What the holder of something that a library made does at its end, for `__del__`: C code."""
    return partial(_discarded.append, partial(destroy, made))


def destroy_discarded() -> None:
    """Destroy what nobody holds any more."""
    while _discarded:
        try:
            destroy = _discarded.popleft()
        except IndexError:  # another thread took it
            return
        destroy()
