"""A third backend is a class, a space and a line of a table: models train on it as on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import devices, nn, optim
from ridgeline.compiler import program
from ridgeline.compiler.backend import backend
from ridgeline.errors import IndexRangeError
from ridgeline.runtime import buffer
from tests.compiler.toy_backend import ToyBackend

HERE = "tests.compiler.toy_backend"


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The line of the table."""
    kind = devices.Kind(f"{HERE}:ToyBackend", f"{HERE}:ToySpace")
    monkeypatch.setitem(devices.KINDS, "toy", kind)
    monkeypatch.setattr(ToyBackend, "code", {})
    with rl.config.override(tier="compiled", cache_dir=str(tmp_path)):
        yield
    backend.cache_clear()
    buffer.space.cache_clear()
    program._programs.clear()


def trained(place: str) -> list[float]:
    """The losses of a jitted model with a convolution, an index and a scan in it."""
    rl.manual_seed(0)
    rng = np.random.default_rng(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).to(place)
    optimizer = optim.Adam(model.parameters(), lr=0.05)
    x = rl.tensor(rng.normal(size=(4, 1, 4, 4)).astype(np.float32), device=place)
    y = rl.tensor(rng.integers(0, 3, 4), device=place)

    @rl.jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return [step(x, y).item() for _ in range(4)]


def test_a_model_trains_as_on_the_cpu() -> None:
    np.testing.assert_allclose(trained("toy:0"), trained("cpu"), rtol=1e-4)
    assert ToyBackend.code  # which ran


def test_programs_come_back_from_the_disk_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    x = rl.tensor(np.arange(12, dtype=np.float32).reshape(3, 4), device="toy:0")

    def run() -> Any:
        return rl.jit(lambda x: x.softmax(1).cumsum(0) * 2)(x).cpu().numpy()

    first, code = run(), dict(ToyBackend.code)
    ToyBackend.code.clear()
    program._programs.clear()
    monkeypatch.setattr(ToyBackend, "compile", None)  # it is not compiled again
    np.testing.assert_array_equal(run(), first)
    assert ToyBackend.code and ToyBackend.code.items() <= code.items()


def test_what_it_has_no_capability_for_goes_the_long_way() -> None:
    """Control flow runs on the host, transforms in NumPy, attention is written out."""
    x = np.random.default_rng(1).normal(size=(2, 2, 5, 4)).astype(np.float32)

    def both(place: str) -> list[Any]:
        t = rl.tensor(x, device=place)
        seen = nn.functional.scaled_dot_product_attention(t, t, t)
        total = rl.while_loop(lambda s: (s < 100).all(), lambda s: s * 2, t.abs().sum() + 1)
        spectrum = rl.fft.rfft(t).abs()
        return [part.cpu().numpy() for part in (seen, total, spectrum)]

    for got, wanted in zip(both("toy:0"), both("cpu")):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_errors_and_copies_are_those_of_any_device() -> None:
    table = rl.tensor(np.eye(3, dtype=np.float32), device="toy:0")
    with pytest.raises(IndexRangeError, match="3"):
        table[rl.tensor([0, 3], device="toy:0")].tolist()
    assert (table.to("toy:1") + 1).cpu().tolist() == (np.eye(3) + 1).tolist()
    assert (table.cpu() * 2).tolist() == (np.eye(3) * 2).tolist()
