"""Values of several devices in one graph, without a GPU: what may move, and who reads what."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.compiler import compile_graph
from ridgeline.errors import DeviceError
from ridgeline.execution import device_copies
from ridgeline.execution.tiers import program_for
from ridgeline.functions.index_checks import number
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import TensorType, leaf
from ridgeline.graph.passes.legalize.partition import partition
from ridgeline.graph.placement import together, transfer
from ridgeline.ops.elementwise import add
from ridgeline.record.values import read
from ridgeline.runtime.buffer import HostBuffer


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


class There:
    """Memory that only looks like a device's: it has no address of the host's."""

    device, nbytes, borrowed = "cuda:0", 12, False


def test_programs_read_numbers_of_the_host_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = HostBuffer.borrow(np.zeros((), np.float32))
    monkeypatch.setattr(device_copies, "on", lambda memory, device: copied)
    here = HostBuffer.borrow(np.ones((), np.float32))
    number = leaf(TensorType((), dtypes.float32))
    assert device_copies._reachable(here, number, "cuda:0") is here
    vector = leaf(TensorType((1,), dtypes.float32))
    assert device_copies._reachable(here, vector, "cuda:0") is copied
    theirs = leaf(TensorType((), dtypes.float32, "cuda:0"))
    assert device_copies._reachable(There(), theirs, "cpu") is copied


def test_programs_of_the_host_refuse_memory_of_a_device() -> None:
    x = leaf(TensorType((3,), dtypes.float32))
    program = compile_graph(Graph([add(x, x)], [x]))
    for use in (program.run, program.profile):
        with pytest.raises(DeviceError, match="program of cpu was given memory of cuda:0"):
            use([There()])
    with pytest.raises(DeviceError, match="program of cpu was given memory of cuda:0"):
        program.begin([HostBuffer.borrow(np.ones(3, np.float32))], {0}).finish({0: There()})


def test_a_copy_that_has_a_value_is_where_a_graph_begins() -> None:
    x = leaf(TensorType((3,), dtypes.float32))
    there = transfer(x, "cuda:0")
    doubled = add(there, there)
    back = transfer(doubled, "cpu")
    first, second = partition(Graph([add(back, back)], [there]))
    assert first.inputs == {there: there} and second.inputs == {back: doubled}


def test_what_a_program_does_not_read_may_lie_anywhere() -> None:
    """The gradient of one parameter comes of a pass over all of them."""
    x = leaf(TensorType((3,), dtypes.float32))
    other = leaf(TensorType((3,), dtypes.float32, "cuda:0"))
    with rl.config.override(tier="compiled"):
        program = program_for(Graph([add(x, x)], [other, x]))
    (made,) = program.run([There(), HostBuffer.borrow(np.ones(3, np.float32))])
    assert made.array(dtypes.float32, (3,)).tolist() == [2.0] * 3
