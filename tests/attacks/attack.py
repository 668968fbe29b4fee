"""What an attack is: trials named by seeds, and the faults that they must find when planted.

A module of this folder that defines `ATTACK` is an attack; nothing else registers it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

import tests.attacks
from tests.fuzz.faults import Fault


@dataclass(frozen=True, slots=True)
class Attack:
    """`trial(seed)` raises where a promise does not hold; the same seed is the same trial.

    A trial runs in a process of its own, or shares one with trials of neighbouring seeds: it leaves
    the process as it found it. One that crashes the process or takes longer than `limit` seconds
    has found something as well.
    """

    name: str
    promise: str  # what every trial tries to break, in a line
    trial: Callable[[int], None]
    short: int  # how many seeds CI tries
    faults: tuple[Fault, ...]  # each is found by one of the short trials at the latest
    limit: float = 60.0


def attacks() -> dict[str, Attack]:
    """All attacks by name."""
    found = {}
    for module in pkgutil.iter_modules(tests.attacks.__path__):
        attack = getattr(importlib.import_module(f"tests.attacks.{module.name}"), "ATTACK", None)
        if isinstance(attack, Attack):
            found[attack.name] = attack
    return found
