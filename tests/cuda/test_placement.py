"""Values of several devices in one graph, without a GPU: what may move, and who reads what."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.errors import DeviceError
from ridgeline.functions.places import number
from ridgeline.graph.node import TensorType, leaf
from ridgeline.graph.placement import together
from ridgeline.ops.elementwise import add
from ridgeline.runtime.buffer import Buffer
from ridgeline.tensors import tiers
from ridgeline.tensors.values import read


def test_literals_move_also_when_somebody_read_them() -> None:
    there = leaf(TensorType((3, 5), dtypes.float32, "cuda:0"))
    kept = rl.zeros(3, 5)  # the same node as the literal below
    with rl.config.override(tier="compiled"):
        kept.numpy()
    made = add(there, number((3, 5), 0.0, dtypes.float32))
    assert made.type.device == "cuda:0"


def test_values_stay() -> None:
    there = leaf(TensorType((3,), dtypes.float32, "cuda:0"))
    for given in (rl.tensor([1.0, 2.0, 3.0]), rl.tensor([1.0, 2.0, 3.0]) * 2):
        given.numpy()
        with pytest.raises(DeviceError, match="one device"):
            together("add", [there, read(given)])


def test_programs_of_the_host_read_no_memory_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of the host are passed as they are; a device's numbers are copied first."""
    copied = Buffer.borrow(np.zeros((), np.float32))
    monkeypatch.setattr(tiers, "on", lambda memory, device: copied)
    source = leaf(TensorType((), dtypes.float32, "cuda:0"))

    class There:
        device = "cuda:0"

    here = Buffer.borrow(np.ones((), np.float32))
    assert tiers._reachable(here, source, "cuda:0") is here
    assert tiers._reachable(There(), source, "cpu") is copied
