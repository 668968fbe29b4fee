"""Devices for tests: two GPUs that are not there, or one that stands for two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import machines
from .fake_code import FakeCode
from .fake_driver import FakeDriver


@pytest.fixture
def fake() -> Iterator[FakeDriver]:
    """Two GPUs that are not there."""
    with machines.pretended_gpus() as made:
        yield made


@pytest.fixture
def fake_code(fake: FakeDriver, tmp_path: Path) -> Iterator[FakeCode]:
    """The compiler over them."""
    with machines.pretended_code(fake, str(tmp_path)) as made:
        yield made


@pytest.fixture
def two_contexts() -> Iterator[None]:
    """A second context of the GPU as `cuda:1`."""
    with machines.two_contexts():
        yield
