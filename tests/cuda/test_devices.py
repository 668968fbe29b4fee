"""Two GPUs of different capability in one process, over a driver that refuses every mix-up.

Programs are compiled for each device and their kernels interpreted, so that results can be compared
with the CPU's. `test_contexts_gpu.py` does the same on a real GPU.
"""

from __future__ import annotations

import gc
import pickle
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import dtypes, nn, optim
from ridgeline.errors import DeviceError, OutOfMemoryError
from ridgeline.runtime.cuda import device as devices
from ridgeline.runtime.cuda.memory import allocate
from ridgeline.runtime.cuda.plan import DevicePlan, Slots
from ridgeline.runtime.cuda.space import DeviceSpace
from ridgeline.runtime.cuda.steps import ArgumentWords, KernelStep
from ridgeline.runtime.cuda.stream import Event, Stream

from .fake_code import FakeCode
from .fake_driver import ILLEGAL_ADDRESS, FakeDriver
from .two_devices import BOTH, Split, batch, in_threads, trained, training

PLACES = ("cpu", *BOTH)


def test_jitted_training_in_turn(fake_code: FakeCode) -> None:
    losses = trained(PLACES)
    for place in BOTH:
        np.testing.assert_allclose(losses[place], losses["cpu"], rtol=1e-5)
    # code is made for each device's own capability, and what is captured runs where it was
    assert set(fake_code.architectures) == {"sm_90a", "sm_80"}
    assert fake_code.driver.calls["cuGraphLaunch"] and set(fake_code.driver.launched_on) == {0, 1}


def test_training_in_two_threads(fake_code: FakeCode) -> None:
    steps = {place: training(place) for place in PLACES}
    losses: dict[str, list[float]] = {}

    def train(place: str) -> None:
        losses[place] = [steps[place](*batch(place)).item() for _ in range(3)]

    in_threads(train, BOTH)
    train("cpu")
    for place in BOTH:
        np.testing.assert_allclose(losses[place], losses["cpu"], rtol=1e-5)


@pytest.mark.parametrize("jitted", [False, True])
def test_one_model_on_two_devices(fake_code: FakeCode, jitted: bool) -> None:
    """A graph that goes from one device to the other and back, with one optimizer for both."""
    losses: dict[str, list[float]] = {}
    for name, places in (("one", ("cpu", "cpu")), ("two", BOTH)):
        split = Split(*places)
        step = rl.jit(split.step) if jitted else split.step
        losses[name] = [step(*batch(places[0])).item() for _ in range(3)]
        assert split.second.weight.grad.device == places[1]
    np.testing.assert_allclose(losses["two"], losses["one"], rtol=1e-5)


def test_copies(fake_code: FakeCode) -> None:
    x = rl.tensor([[1.5, -2.0, 3.0], [0.0, 4.0, 5.0]])
    there = x.to("cuda:0")
    for made in (there.to("cuda:1"), there.T.to("cuda:1").T, there.cuda(1), x.to("cuda:1")):
        assert made.device == "cuda:1" and made.tolist() == x.tolist()
    assert there.to("cuda:1").to("cuda:0").to("cuda:0", rl.float64).tolist() == x.tolist()
    assert there[:0].to("cuda:1").shape == (0, 3)
    assert rl.tensor(True, device="cuda:0").to("cuda:1").item() is True
    target = rl.zeros(2, 3, device="cuda:1")
    target.copy_(there)
    assert target.device == "cuda:1" and target.tolist() == x.tolist()


@pytest.mark.parametrize("connected", [False, True])
def test_copies_go_directly_where_devices_are_connected(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, connected: bool
) -> None:
    monkeypatch.setattr(
        FakeDriver, "_cuDeviceCanAccessPeer", lambda self, device, peer: int(connected)
    )
    values = np.arange(100, dtype=np.int64)
    there = DeviceSpace(0).take_in(values)
    for _ in range(3):
        copied = DeviceSpace(1).copy(there)
        np.testing.assert_array_equal(copied.array(dtypes.int64, (100,)), values)
    assert fake.gpus[0].readers == ({1} if connected else set()) and not fake.gpus[1].readers
    assert fake.calls.get("cuMemPoolSetAccess", 0) == int(connected)
    assert rl.cuda.can_device_access_peer(1, 0) is connected
    # what the other device reads is not handed out again before it has
    del there
    allocate(devices.device(0).main_stream, 1)
    assert (devices.device(0).main_stream.handle, 1) in [
        (stream, event.context.gpu.number) for stream, event in fake.waits
    ]


def test_devices_are_not_mixed(fake_code: FakeCode) -> None:
    x, y = (rl.ones(3, device=place) for place in BOTH)
    x, y = x.clone(), y.clone()
    for function in (rl.add, rl.dot, lambda a, b: rl.cat([a, b]), rl.jit(lambda a, b: a * b)):
        with pytest.raises(DeviceError, match="cuda:0 and cuda:1"):
            function(x, y)
    assert (x * rl.tensor(2.0) + 1).tolist() == [3, 3, 3]  # numbers of the host go anywhere


def test_gradients_cross(fake_code: FakeCode) -> None:
    x = rl.tensor([1.0, -2.0, 3.0], device="cuda:0", requires_grad=True)
    w = rl.tensor([2.0, 0.5, -1.0], device="cuda:1", requires_grad=True)
    ((x * x).to("cuda:1") * w).to("cuda:0").sum().backward()
    assert x.grad.device == "cuda:0" and x.grad.tolist() == [4.0, -2.0, -6.0]
    assert w.grad.device == "cuda:1" and w.grad.tolist() == [1.0, 4.0, 9.0]
    parameters = [x, w]
    total = nn.utils.clip_grad_norm_(parameters, 1.0)
    np.testing.assert_allclose(total.item(), np.sqrt(16 + 4 + 36 + 1 + 16 + 81), rtol=1e-6)
    np.testing.assert_allclose(sum((p.grad**2).sum().item() for p in parameters), 1, rtol=1e-5)


def test_clipping_and_kept_steps_of_layers(fake_code: FakeCode) -> None:
    found: dict[str, list[Any]] = {}
    for place in ("cpu", "cuda:0"):
        rl.manual_seed(0)
        layer = nn.LSTM(3, 4, 2).to(place)
        found[place] = []
        for step in range(3):
            layer.zero_grad()
            x = np.random.default_rng(step).normal(size=(5, 2, 3))
            (layer(rl.tensor(x, dtype=rl.float32, device=place))[0] ** 2).sum().backward()
            total = nn.utils.clip_grad_norm_(layer.parameters(), 0.1)
            assert total.device == place
            nn.utils.clip_grad_value_(layer.parameters(), 0.01)
            found[place] += [total.item(), *(p.grad.tolist() for p in layer.parameters())]
    for host, device in zip(found["cpu"], found["cuda:0"], strict=True):
        np.testing.assert_allclose(device, host, rtol=1e-4, atol=1e-6)


def test_gradients_are_scaled_on_both(fake_code: FakeCode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ridgeline.amp.scaler.is_available", lambda: True)  # the pretended ones
    parameters = [rl.ones(2, device=place).requires_grad_() for place in BOTH]
    optimizer = optim.SGD(parameters, lr=1.0)
    scaler = rl.amp.GradScaler(init_scale=4.0)
    for overflow, wanted in ((False, [0.0, 0.0]), (True, [0.0, 0.0])):
        optimizer.zero_grad()
        loss = parameters[0].sum() + parameters[1].sum().to("cuda:0")
        scaler.scale(loss).backward()
        if overflow:  # on one of the two: neither takes the step
            parameters[1].grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        assert [p.tolist() for p in parameters] == [wanted, wanted]
    assert scaler.get_scale() == 2.0


def test_the_current_device(fake_code: FakeCode) -> None:
    def made() -> rl.Tensor:
        return rl.ones(2, device="cuda")

    jitted = rl.jit(lambda: rl.ones(2, device="cuda") * 3)
    assert rl.cuda.current_device() == 0 and made().device == jitted().device == "cuda:0"
    with rl.cuda.device(1):
        assert rl.cuda.current_device() == 1 and rl.device("cuda") == "cuda:1"
        assert made().device == jitted().device == rl.ones(1).cuda().device == "cuda:1"
        assert rl.cuda.current_stream() is devices.device(1).main_stream
        with rl.cuda.device("cuda:0"):
            assert made().device == jitted().device == "cuda:0"
        assert nn.Linear(1, 1).cuda().weight.device == "cuda:1"
        assert nn.Linear(1, 1).cuda("cuda:0").weight.device == "cuda:0"
        seen: list[int] = []
        other = threading.Thread(target=lambda: seen.append(rl.cuda.current_device()))
        other.start()
        other.join()
        assert seen == [0]  # each thread has its own
    rl.cuda.set_device(1)
    assert made().device == "cuda:1"
    rl.cuda.set_device("cuda:0")
    assert made().device == "cuda:0" and jitted.traces == 2
    stream = rl.cuda.Stream(1)
    with rl.cuda.stream(stream):  # its device is the current one inside
        assert made().device == "cuda:1" and rl.cuda.current_stream() is stream
    assert rl.cuda.current_device() == 0


def test_devices_that_are_not_there(fake: FakeDriver) -> None:
    for use in (rl.cuda.set_device, rl.cuda.device, rl.cuda.Stream, rl.ones(1).to):
        with pytest.raises(DeviceError, match="no device cuda:2: this machine has 2"):
            use("cuda:2")
    for name in ("cpu", "cuda:-1", "gpu", -1):
        with pytest.raises(DeviceError):
            rl.cuda.set_device(name)
    assert rl.cuda.current_device() == 0


def test_each_device_has_its_own_facts_and_figures(fake: FakeDriver) -> None:
    assert rl.cuda.device_count() == 2
    assert [rl.cuda.get_device_capability(n) for n in range(2)] == [(9, 0), (8, 0)]
    assert [rl.cuda.get_device_properties(n).multi_processor_count for n in range(2)] == [132, 60]
    kept = allocate(devices.device(1).stream, 1 << 20)
    assert rl.cuda.memory_allocated(0) == 0 and rl.cuda.memory_allocated(1) >= 1 << 20
    free, total = rl.cuda.mem_get_info(1)
    assert free < total and rl.cuda.mem_get_info(0) == (total, total)
    del kept
    assert rl.cuda.memory_allocated(1) == 0 and rl.cuda.max_memory_allocated(1) >= 1 << 20
    rl.cuda.empty_cache()
    assert rl.cuda.memory_reserved(1) == 0 and rl.cuda.mem_get_info(1) == (total, total)


def test_a_shortage_names_what_its_own_device_holds(fake_code: FakeCode) -> None:
    here, there = (rl.tensor(np.zeros(1 << 18, np.float32), device=place) for place in BOTH)
    fake_code.driver.gpus[1].memory = 1 << 24
    with pytest.raises(OutOfMemoryError, match="cuda:1 has no room for 1 GiB") as caught:
        allocate(devices.device(1).stream, 1 << 30)
    assert str(caught.value).count("1 MiB in 1 values made at") == 1
    assert here.device != there.device


def test_a_fault_is_raised_by_the_device_that_has_it(fake_code: FakeCode) -> None:
    table = {place: rl.tensor([[1.0], [2.0]]).to(place) for place in BOTH}
    number = {"cuda:0": 1, "cuda:1": 7}
    picked = {
        place: nn.functional.embedding(rl.tensor([number[place]], device=place), table[place])
        for place in BOTH
    }
    assert picked["cuda:0"].tolist() == [[2.0]]
    with pytest.raises(rl.RidgelineError, match="index 7 is outside axis 0 of size 2") as caught:
        rl.cuda.synchronize(1)
    assert "test_devices.py" in str(caught.value)
    rl.cuda.synchronize(0)


def test_tensors_are_stored_and_loaded_where_they_are(fake_code: FakeCode) -> None:
    x = rl.tensor([1.0, 2.0], device="cuda:1", requires_grad=True)
    again = pickle.loads(pickle.dumps(x))
    assert again.device == "cuda:1" and again.requires_grad and again.tolist() == [1.0, 2.0]
    first, second = (nn.Linear(2, 2).to(place) for place in BOTH)
    second.load_state_dict(first.state_dict())
    assert second.weight.device == "cuda:1"
    assert second.weight.tolist() == first.weight.tolist()


LAYERS: dict[str, Callable[..., nn.Module]] = {
    "linear": partial(nn.Linear, 2, 3),
    "bilinear": partial(nn.Bilinear, 2, 3, 2),
    "convolution": partial(nn.Conv2d, 2, 3, 1),
    "transposed": partial(nn.ConvTranspose1d, 2, 3, 1),
    "batch norm": partial(nn.BatchNorm2d, 3),
    "layer norm": partial(nn.LayerNorm, 3),
    "group norm": partial(nn.GroupNorm, 1, 3),
    "embedding": partial(nn.Embedding, 4, 2, 0),
    "prelu": nn.PReLU,
    "lstm": partial(nn.LSTM, 2, 3, 2),
    "cell": partial(nn.GRUCell, 2, 3),
    "attention": partial(nn.MultiheadAttention, 4, 2),
    "transformer": partial(nn.TransformerEncoderLayer, 4, 2, 8),
    "adaptive": partial(nn.AdaptiveLogSoftmaxWithLoss, 16, 6, [2, 4]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_made_where_they_are_asked_for(fake: FakeDriver, name: str) -> None:
    with rl.config.override(tier="interpreter"):
        made = []
        for place in ("cpu", "cuda:1"):
            rl.manual_seed(5)
            made.append(LAYERS[name](device=place))
        for here, there in zip(*(layer.state_dict().values() for layer in made)):
            assert there.device == "cuda:1"
            np.testing.assert_allclose(there.cpu().numpy(), here.numpy(), rtol=1e-6)


def test_the_array_api_names_devices(fake: FakeDriver) -> None:
    xp = rl.array_api
    assert xp.__array_namespace_info__().devices() == PLACES
    with rl.config.override(tier="interpreter"):
        for make in (
            partial(xp.zeros, 3), partial(xp.full, 3, 2.0), partial(xp.arange, 3), xp.eye,
            partial(xp.linspace, 0, 1, 5), partial(xp.linspace, 0j, 1j, 5), partial(xp.arange, 0),
            partial(xp.asarray, [1]), partial(xp.fft.fftfreq, 4),
        ):  # fmt: skip
            given = (3,) if make is xp.eye else ()
            there = make(*given, device="cuda:1")
            assert there.device == "cuda:1" and xp.ones_like(there).device == "cuda:1"
            assert there.tolist() == make(*given).tolist()
            assert xp.astype(there, xp.complex128, device="cuda:0").device == "cuda:0"
        x = rl.tensor([1.0], device="cuda:1")
        assert repr(x) == "tensor([1.], device='cuda:1')" and x.__dlpack_device__() == (2, 1)
        assert rl.from_dlpack(np.ones(2), device="cuda:1").device == "cuda:1"
        with pytest.raises(rl.RidgelineError, match="memory of cuda:1 is not handed"):
            x.__dlpack__()


def test_finalizers_leave_the_device_as_it_is(fake: FakeDriver) -> None:
    """Python may let go of anything between two calls, in any thread."""
    here, there = devices.device(0), devices.device(1)
    side = Stream(there)
    memory = allocate(there.stream, 100)
    memory.used_on(side)
    event = side.record_event()
    held: list[Any] = [memory, event, side]
    del memory, event, side

    class Drop:
        slots: frozenset[int] = frozenset()
        waits = False

        def enqueue(self, stream: Any) -> None:
            held.clear()
            gc.collect()

    def steps(words: ArgumentWords) -> list[Any]:
        return [Drop(), KernelStep(fake.function("behind", 1), 1, 32, 0, 1, (0,), words)]

    plan = DevicePlan(here, Slots(1, (), (), 0, 0), steps)
    plan.run([DeviceSpace(0).take_in(np.ones(4, np.float32))])
    assert fake.launches and not held
    # a thread that never used a device has no context before, and none after
    other = threading.Thread(target=held.clear)
    held.append(Stream(there).record_event())
    other.start()
    other.join()
    here.destroy_discarded()
    there.destroy_discarded()
    assert fake.calls["cuEventDestroy"] >= 2 and not fake.refused


def test_another_library_may_change_the_context(fake: FakeDriver) -> None:
    space = DeviceSpace(0)
    memory = space.take_in(np.arange(4))
    fake.cuCtxSetCurrent(fake.contexts[1])
    assert space.copy(memory).array(dtypes.int64, (4,)).tolist() == [0, 1, 2, 3]


def test_events(fake: FakeDriver) -> None:
    first, second = (devices.device(n).stream for n in range(2))
    event, later = Event(enable_timing=True), Event(enable_timing=True)
    assert event.query()  # not recorded yet: nothing to wait for
    event.synchronize()
    first.wait_event(event)
    event.record(first)
    second.wait_event(event)
    event.record(second)  # it belongs to that device from now on
    later.record(first)
    with pytest.raises(DeviceError, match="one device"):
        event.elapsed_time(later)
    later.record(second)
    done: list[Any] = []
    thread = threading.Thread(
        target=lambda: done.extend((event.query(), event.elapsed_time(later)))
    )
    thread.start()
    thread.join()
    assert done == [True, 1.0]


def test_an_event_that_failed_is_not_done(fake: FakeDriver) -> None:
    event = devices.device(0).stream.record_event()
    fake.failing["cuEventQuery"] = [ILLEGAL_ADDRESS]
    with pytest.raises(rl.RidgelineError, match="cuEventQuery failed"):
        event.query()


def test_plans_on_one_stream_do_not_interleave(fake: FakeDriver) -> None:
    """Two threads run programs on a device: each uses the scratch memory for itself."""
    order: list[int] = []
    inside = threading.Event()

    class Slow:
        slots: frozenset[int] = frozenset()
        waits = False

        def __init__(self, plan: int) -> None:
            self.plan = plan

        def enqueue(self, stream: Any) -> None:
            order.append(self.plan)
            inside.wait(0.05)  # time enough for the other thread to come in between

    plans = [
        DevicePlan(devices.device(0), Slots(0, (), (), 512, 0), lambda words, n=n: [Slow(n)] * 3)
        for n in range(2)
    ]
    in_threads(lambda n: plans[n].run([]), range(2))
    assert order in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])


def test_slices_of_memory_begin_anywhere(fake_code: FakeCode) -> None:
    """Those that begin where kernels may take 16 bytes at once are read in place."""
    data = np.arange(512, dtype=np.float32).reshape(8, 64)
    for place in BOTH:
        x = rl.tensor(data, device=place)
        x.sum().item()
        for i in range(5):
            np.testing.assert_array_equal((x[i : i + 3] * 2).cpu().numpy(), data[i : i + 3] * 2)
            assert (x[i, 7:9] + 1).cpu().tolist() == [64 * i + 8, 64 * i + 9]
        pending = x[2:4] + 0
        x.zero_()
        np.testing.assert_array_equal(pending.cpu().numpy(), data[2:4])
