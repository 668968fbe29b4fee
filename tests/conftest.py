"""Tests keep compiled code in a folder of their own and compile for the same rates everywhere.

Those marked `gpu` are skipped without one.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Sequence

import pytest
from hypothesis import settings

# What a run of the tests says depends on the code alone; `--hypothesis-profile default` searches.
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same")

os.environ.setdefault("RIDGELINE_CACHE_DIR", tempfile.mkdtemp(prefix="ridgeline-tests-"))
os.environ.setdefault("RIDGELINE_CALIBRATE", "0")
os.environ.setdefault("RIDGELINE_BACKGROUND", "0")  # tiers change at counted points
os.environ.setdefault("RIDGELINE_ANNOUNCE", "0")  # how long compiling takes is chance here
os.environ.setdefault("RIDGELINE_VERIFY", "1")  # every graph and program after every pass


def pytest_collection_finish() -> None:
    """No collection looks at what all test files import (torch alone is a million objects)."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def left_alone() -> None:
    """Nor at what the files before this one left behind: they import more while they run."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    import ridgeline as rl  # after the folder is named

    if not rl.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu") is not None:
                item.add_marker(pytest.mark.skip(reason="no GPU"))


@pytest.fixture
def nothing_recorded() -> None:
    """What earlier tests recorded and something still holds is computed, not with this one's."""
    from ridgeline.record.recorder import flush

    flush()
