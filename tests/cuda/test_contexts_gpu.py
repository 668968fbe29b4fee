"""On one GPU: a second context stands for a second device, and programs run on both.

Streams, events, functions, modules and graphs of one context are invalid in the other, so a call
that goes to the wrong one fails. What cannot be seen with one GPU is a copy that is direct.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import dtypes, nn
from ridgeline.runtime.cuda import device as devices
from ridgeline.runtime.cuda.driver import bindings, call
from ridgeline.runtime.cuda.space import DeviceSpace
from ridgeline.runtime.cuda.stream import Event, Stream
from ridgeline.runtime.cuda.transfer import let_read

from .two_devices import BOTH, Split, batch, in_threads, trained, training

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("two_contexts")]


def test_a_function_of_one_context_is_none_of_the_other() -> None:
    """What makes the tests below mean something: the driver does tell the contexts apart."""
    streams = [devices.device(n).stream for n in range(2)]
    assert streams[0].device.context != streams[1].device.context
    devices.device(0).activate()
    event = streams[0].record_event()
    with pytest.raises(rl.RidgelineError, match="cuEventRecord failed"):
        call("cuEventRecord", event.handle, streams[1].handle)


def test_training_in_turn() -> None:
    losses = trained(("cpu", *BOTH), 6)
    for place in BOTH:
        np.testing.assert_allclose(losses[place], losses["cpu"], rtol=1e-4)


def test_training_in_two_threads() -> None:
    steps = {place: training(place) for place in ("cpu", *BOTH)}
    losses: dict[str, list[float]] = {}

    def train(place: str) -> None:
        losses[place] = [steps[place](*batch(place)).item() for _ in range(100)]

    in_threads(train, BOTH)
    train("cpu")
    for place in BOTH:
        np.testing.assert_allclose(losses[place], losses["cpu"], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("jitted", [False, True])
def test_one_model_on_two_devices(jitted: bool) -> None:
    losses: dict[str, list[float]] = {}
    for name, places in (("one", ("cpu", "cpu")), ("two", BOTH)):
        split = Split(*places)
        step = rl.jit(split.step) if jitted else split.step
        losses[name] = [step(*batch(places[0])).item() for _ in range(5)]
    np.testing.assert_allclose(losses["two"], losses["one"], rtol=1e-4)


def test_copies() -> None:
    values = np.random.default_rng(0).normal(size=(1 << 20) + 3)  # not a multiple of anything
    there = rl.tensor(values, device="cuda:0")
    other = (there * 2).to("cuda:1")
    back = (other + 1).to("cuda:0")
    np.testing.assert_array_equal(other.cpu().numpy(), values * 2)
    np.testing.assert_array_equal(back.cpu().numpy(), values * 2 + 1)
    for _ in range(20):  # memory that the other context reads is not handed out before it has
        piece = rl.full((1 << 20,), 3.0, device="cuda:0") * 2
        copied = piece.to("cuda:1")
        del piece
        rl.full((1 << 20,), 5.0, device="cuda:0").sum().item()
        assert copied.sum().item() == 6.0 * (1 << 20)


def test_libraries() -> None:
    """cuBLASLt and cuDNN have a handle for each device."""
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(256, 256)).astype(np.float32) for _ in range(2))
    image = rng.normal(size=(8, 64, 16, 16)).astype(np.float16)
    filters = rng.normal(size=(64, 64, 3, 3)).astype(np.float16)
    convolved: dict[str, Any] = {}
    product = rl.jit(lambda x, y: (x @ y).relu() + 1)
    convolution = rl.jit(lambda x, w: nn.functional.conv2d(x, w, padding=1))
    for _ in range(3):  # launched, captured, replayed
        for place in BOTH:
            got = product(rl.tensor(a, device=place), rl.tensor(b, device=place))
            wanted = np.maximum(a.astype(np.float64) @ b, 0) + 1
            np.testing.assert_allclose(got.cpu().numpy(), wanted, rtol=1e-4, atol=1e-3)
            given = rl.tensor(image, device=place), rl.tensor(filters, device=place)
            convolved[place] = convolution(*given).cpu().numpy()
    np.testing.assert_array_equal(convolved["cuda:0"], convolved["cuda:1"])
    exact = nn.functional.conv2d(rl.tensor(image).float(), rl.tensor(filters).float(), padding=1)
    np.testing.assert_allclose(convolved["cuda:1"], exact.numpy(), rtol=2e-2, atol=0.1)


def test_streams_events_and_finalizers() -> None:
    first, second = (devices.device(n) for n in range(2))
    side = Stream(second)
    begin, end = Event(enable_timing=True), Event(enable_timing=True)
    begin.record(first.stream)
    begin.record(side)  # it belongs to that device from now on
    memory = DeviceSpace(1).take_in(np.arange(1000))
    memory.used_on(side)
    end.record(side)
    side.synchronize()
    assert begin.elapsed_time(end) >= 0
    first.activate()
    del memory, side, begin, end
    gc.collect()
    # finalizers went to the second context, and this thread's calls go to the first still
    call("cuStreamSynchronize", first.stream.handle)
    again = DeviceSpace(0).copy(DeviceSpace(1).take_in(np.arange(5)))
    assert again.array(dtypes.int64, (5,)).tolist() == [0, 1, 2, 3, 4]


def test_a_fault_names_its_line_and_its_device_goes_on() -> None:
    table = {place: rl.tensor([[1.0], [2.0]], device=place) for place in BOTH}
    picked = nn.functional.embedding(rl.tensor([7], device="cuda:1"), table["cuda:1"])
    with pytest.raises(rl.RidgelineError, match="index 7 is outside axis 0 of size 2") as caught:
        picked.tolist()
    assert "test_contexts_gpu.py" in str(caught.value)
    for place in BOTH:
        assert (table[place] * 2).tolist() == [[2.0], [4.0]]


def test_memory_is_mapped_for_another_device() -> None:
    """The call that lets devices read each other's memory is well formed; there is one to ask."""
    own, names = devices.device(0), bindings()
    let_read(own, own)
    location = names.CUmemLocation()
    location.type = names.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = int(own.handle)
    found = call("cuMemPoolGetAccess", call("cuDeviceGetDefaultMemPool", own.handle), location)
    assert found == names.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
