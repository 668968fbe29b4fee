"""A fixture for folders whose functions all jit: none of them may turn out to be open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ridgeline.tracing.conditions import Conditions
from ridgeline.tracing.jit import JitFunction

MEANT = ("stamped",)  # the example of an open function in docs/jit.md


@pytest.fixture(autouse=True)
def none_is_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever is jitted in a test is replayed, and does not run Python in every call."""
    found: list[str] = []
    opened = JitFunction._opened

    def noted(self: JitFunction, conditions: Conditions) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        if conditions.open and name not in MEANT:
            found.append(f"{name}: {conditions.open}")
        return opened(self, conditions)

    monkeypatch.setattr(JitFunction, "_opened", noted)
    yield
    assert not found
