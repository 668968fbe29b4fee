"""Devices without a GPU: names, placement in the graph, parts of a mixed graph, errors."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.errors import DeviceError
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import TensorType, leaf, node
from ridgeline.graph.passes.legalize.partition import partition
from ridgeline.graph.placement import TRANSFER, placed, transfer
from ridgeline.ops.elementwise import add, apply, constant, iota, mul
from ridgeline.ops.movement import broadcast_scalar
from ridgeline.runtime.cuda import driver

GPU = rl.device("cuda")


def test_names() -> None:
    assert rl.device("cuda") == "cuda:0" == rl.device("cuda", 0) == rl.device(0)
    assert (rl.device("cuda:3").type, rl.device("cuda:3").index) == ("cuda", 3)
    assert (rl.device("cpu").type, rl.device("cpu:0").index) == ("cpu", None)
    assert rl.device(rl.device("cuda:1")) == "cuda:1"
    assert repr(rl.device("cuda")) == "device('cuda:0')"
    assert type(rl.device("cpu").type) is str
    for again in (pickle.loads(pickle.dumps(GPU)), copy.deepcopy(GPU)):
        assert again == GPU and type(again) is rl.device
    assert rl.ones(2).device == "cpu" and rl.ones(2).device.type == "cpu"


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cuda:-1", "cpu:1", "", "CUDA"])
def test_names_that_mean_nothing(name: str) -> None:
    with pytest.raises(DeviceError, match="no device"):
        rl.device(name)


def test_no_gpu_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "missing", lambda: "the driver finds no GPU")
    driver.bindings.cache_clear()
    with pytest.raises(DeviceError, match="finds no GPU") as caught:
        driver.bindings()
    assert "ridgeline[cuda]" in str(caught.value) and caught.value.code == "RL0107"


def on_gpu(*shape: int) -> object:
    return leaf(TensorType(shape, dtypes.float32, GPU))


def test_what_has_no_operands_is_made_where_it_is_needed() -> None:
    x = on_gpu(3)
    ramp = iota((3,), 0, dtypes.float32)
    total = add(x, mul(ramp, broadcast_scalar(constant(2.0, dtypes.float32), (3,))))
    assert total.type.device == GPU
    assert not any(n.op is TRANSFER for n in (total, *total.inputs))


def test_a_number_goes_along_by_a_copy() -> None:
    number = leaf(TensorType((), dtypes.float32))
    total = mul(on_gpu(3), broadcast_scalar(number, (3,)))
    assert total.type.device == GPU
    assert total.inputs[1].inputs[0] is transfer(number, GPU)


def test_operands_on_two_devices_are_an_error() -> None:
    with pytest.raises(DeviceError, match="cpu and cuda:0"):
        add(leaf(TensorType((3,), dtypes.float32)), on_gpu(3))
    with pytest.raises(DeviceError, match="cuda:0 and cuda:1"):
        add(on_gpu(3), leaf(TensorType((3,), dtypes.float32, "cuda:1")))


def test_placed_copies_what_has_a_value() -> None:
    x = leaf(TensorType((3,), dtypes.float32))
    assert placed(apply("exp", x), GPU).op is TRANSFER
    assert placed(placed(x, GPU), GPU) is placed(x, GPU)


def test_gradients_go_back_over_a_transfer() -> None:
    from ridgeline.ops.differentiate import reverse

    x = leaf(TensorType((3,), dtypes.float32))
    y = mul(transfer(x, GPU), transfer(x, GPU))
    (gradient,) = reverse([y], [node(y.op, (transfer(x, GPU), transfer(x, GPU)))], [x])
    assert gradient is not None and gradient.type.device == "cpu"


def test_parts() -> None:
    x = leaf(TensorType((4,), dtypes.float32))
    number = leaf(TensorType((), dtypes.float32))
    there = transfer(apply("exp", x), GPU)
    squared = mul(there, broadcast_scalar(transfer(number, GPU), (4,)))
    back = transfer(squared, "cpu")
    total = add(back, x)
    parts = partition(Graph([total, there], [x, number]))
    assert [part.device for part in parts] == ["cpu", GPU, "cpu"]
    first, second, third = parts
    assert list(first.outputs) == [there.inputs[0]] and first.inputs == {x: x}
    assert second.inputs == {there: there.inputs[0], transfer(number, GPU): number}
    assert third.inputs == {back: squared, x: x}


def test_one_part_where_only_numbers_come_from_the_host() -> None:
    number = leaf(TensorType((), dtypes.float32))
    x = on_gpu(4)
    y = mul(x, broadcast_scalar(transfer(number, GPU), (4,)))
    (part,) = partition(Graph([y], [x, number]))
    assert part.device == GPU and part.inputs == {x: x, transfer(number, GPU): number}


def test_to_on_the_host_is_free() -> None:
    x = rl.tensor(np.arange(3.0))
    assert x.to("cpu") is x and x.cpu() is x
    assert x.to("cpu", rl.float32).dtype is rl.float32
    assert rl.zeros_like(x, device="cpu").device == "cpu"


def test_places_that_the_host_found_go_along() -> None:
    from ridgeline.functions.concrete import given
    from ridgeline.ops.gather import gather_along

    places = given(np.array([2, 0]), TensorType((2,), dtypes.int64))
    assert gather_along(on_gpu(3), places, 0).type.device == GPU
