"""Models of the transformers package, compiled: one for each way to write attention."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from ridgeline import torch_backend
from ridgeline.config import config
from tests.torch_backend.families import FAMILIES, check

QUICK = ("gpt2", "llama", "t5")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch_backend.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in FAMILIES],
)
def test_steps_of_a_family_are_torchs(name: str) -> None:
    with config.override(tier="interpreter"):
        check(name, "ridgeline")
    assert torch_backend.by_torch() == {}
