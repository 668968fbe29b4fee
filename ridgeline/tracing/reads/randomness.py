"""The random streams that libraries share: one that has moved on says that a function drew."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np


def random_states() -> tuple[Any, ...]:
    """Where the streams stand that functions draw from which are given no generator."""
    name, keys, *rest = np.random.get_state(legacy=True)
    states = (random.getstate(), name, np.asarray(keys).tobytes(), *rest)
    torch = sys.modules.get("torch._C")  # of torch itself: this package may have its name
    generator = getattr(torch, "default_generator", None)
    return states if generator is None else (*states, generator.get_state().numpy().tobytes())
