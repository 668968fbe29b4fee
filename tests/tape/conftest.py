"""Every test of tapes runs twice: calls are matched by Python, and by machine code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ridgeline.config import config
from ridgeline.tape import native
from ridgeline.tape.tape_recorder import TapeRecorder


@pytest.fixture(autouse=True, params=["python", "machine code"])
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """How known calls are matched."""
    by_code = request.param == "machine code"
    if by_code and not native.is_made(TapeRecorder):
        pytest.skip("no machine code is made for this Python")
    with config.override(native_tape=by_code):
        native.follow_settings()
        yield request.param
    native.follow_settings()
