"""State in Python objects, moving views and programs compiled beside, on a GPU."""

from __future__ import annotations

import pytest

import ridgeline as rl

from .python_state import PROGRAMS, check, check_beside

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("tier", ["auto", "compiled"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_on_the_host(name: str, tier: str) -> None:
    with rl.config.override(tier=tier):
        check(PROGRAMS[name], "cuda")


def test_programs_that_are_compiled_beside() -> None:
    check_beside("cuda")
