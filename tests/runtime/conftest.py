"""Runtime tests use a disk cache of their own, also in the processes they start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ridgeline.config import config


@pytest.fixture(autouse=True, scope="session")
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o700)
    patch = pytest.MonkeyPatch()
    patch.setenv("RIDGELINE_CACHE_DIR", str(folder))
    with config.override(cache_dir=str(folder)):
        yield folder
    patch.undo()
