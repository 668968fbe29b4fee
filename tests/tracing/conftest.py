"""What tests of tracing share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ridgeline as rl


@pytest.fixture(params=["interpreter", "compiled"])
def both_tiers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both tiers: memory is only handed over, and written to in place, by compiled programs."""
    with rl.config.override(tier=request.param):
        yield
