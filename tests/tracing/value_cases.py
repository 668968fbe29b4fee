"""The table of cases that tests/tracing/test_value_pitfalls.py runs, and arrays for them.

A case gets the module, torch or this package, and its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Case = tuple[Callable[..., Any], tuple[np.ndarray, ...]]
CASES: dict[str, Case] = {}
I64 = np.int64


def case(name: str, *arguments: np.ndarray) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES[name] = (function, arguments)
        return function

    return register


def A(*shape: int, d: Any = np.float32) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=d).reshape(shape)


def R(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)
