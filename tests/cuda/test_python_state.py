"""State in Python objects, moving views and programs made beside, on GPUs that are not there."""

from __future__ import annotations

import pytest

from .fake_code import FakeCode
from .python_state import PROGRAMS, check, check_beside


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_on_the_host(fake_code: FakeCode, name: str) -> None:
    check(PROGRAMS[name], "cuda:1")


def test_programs_that_are_compiled_beside(fake_code: FakeCode) -> None:
    check_beside("cuda:0")
