"""On a GPU: code that nothing uses is unloaded, and a first step needs no second copy of state."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.runtime.cuda import device as devices

from .code_on_devices import ever_new_lengths, first_step, small_tables

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    with rl.config.override(tier="compiled"):
        yield


def test_ever_new_programs_do_not_fill_the_device() -> None:
    """In a process of its own: tables and loaded code of other tests are left alone."""
    program = "from tests.cuda.test_modules_gpu import unloads; unloads()"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def unloads() -> None:
    """Run many programs where few are kept: the code of some is unloaded, that in use is not."""
    unloaded: list[object] = []
    real = devices.function

    def noted(name: str) -> object:
        if name == "cuModuleUnload":
            unloaded.append(name)
        return real(name)

    with pytest.MonkeyPatch.context() as patch, rl.config.override(tier="compiled"):
        small_tables(patch)
        patch.setattr(devices, "function", noted)
        keep = rl.jit(lambda x: (x.cumsum(0) * 2).sum())
        x = rl.tensor(np.arange(5, dtype=np.float32), device="cuda:0")
        assert keep(x).item() == 40.0
        ever_new_lengths(3, 200)
        gc.collect()  # programs that lie in cycles
        devices.device(0).unload_discarded()
        assert unloaded and keep(x).item() == 40.0


def test_a_first_step_overwrites_its_state() -> None:
    size = 64 << 20
    gc.collect()
    before = rl.cuda.memory_allocated()  # what other tests of this process hold
    state = first_step(size)
    assert rl.cuda.max_memory_allocated() - before < 1.25 * 2 * 4 * size
    assert state.sum().item() == 7.0 * size


@pytest.mark.parametrize("dtype", [rl.float32, rl.bfloat16])
def test_the_first_step_of_training_calls_libraries_inside_a_graph(dtype: rl.DType) -> None:
    """Products and attention that no call has warmed up: captured, or made by themselves."""
    losses = {}
    for place in ("cpu", "cuda:0"):
        rl.manual_seed(0)
        model = nn.Sequential(nn.Linear(640, 1280), nn.GELU(), nn.Linear(1280, 640))
        model = model.to(place).to(dtype)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        x = rl.tensor(np.random.default_rng(0).normal(size=(96, 640)).astype(np.float32))
        x = x.to(place).to(dtype)

        @rl.jit
        def step(x: rl.Tensor) -> rl.Tensor:
            optimizer.zero_grad()  # noqa: B023
            loss = (model(x).float() ** 2).mean()  # noqa: B023
            loss.backward()
            optimizer.step()  # noqa: B023
            return loss

        losses[place] = [step(x).item() for _ in range(3)]
    np.testing.assert_allclose(losses["cuda:0"], losses["cpu"], rtol=2e-2)
