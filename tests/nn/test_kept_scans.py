"""Iterations of recurrent layers that are kept: what they compute with other weights, when they are
traced again. The truth is torch in float64."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline.tracing import control_flow, kept_scans
from ridgeline.tracing.kept_bodies import KeptBodies

INPUT, HIDDEN, LENGTH, BATCH = 3, 4, 5, 2
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("RNN", {}),
    ("RNN", {"nonlinearity": "relu", "bias": False}),
    ("LSTM", {"num_layers": 2}),
    ("LSTM", {"proj_size": 2, "bidirectional": True}),
    ("GRU", {"bidirectional": True, "num_layers": 2}),
]


@pytest.fixture(autouse=True, params=["auto", "compiled", "interpreter"])
def tier(request: pytest.FixtureRequest) -> Iterator[str]:
    with rl.config.override(tier=request.param, background=False):
        yield request.param


@pytest.fixture(autouse=True)
def traces(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is traced in a test, which begins with nothing kept."""
    found: list[Any] = []
    plain = control_flow.iteration

    def counted(*given: Any) -> Any:
        found.append(given)
        return plain(*given)

    monkeypatch.setattr(kept_scans, "_kept", KeptBodies())
    monkeypatch.setattr(kept_scans, "iteration", counted)
    return found


def drawn(seed: int, shape: Any) -> Any:
    return np.random.default_rng(seed).normal(size=tuple(shape)) * 0.5


class Both:
    """The same layer here and in torch."""

    def __init__(self, name: str, seed: int = 0, **settings: Any) -> None:
        self.mine: Any = getattr(rl.nn, name)(INPUT, HIDDEN, **settings)
        self.theirs: Any = getattr(torch.nn, name)(INPUT, HIDDEN, **settings).double()
        self.weigh(seed)

    def weigh(self, seed: int) -> None:
        """Give both other weights."""
        for number, (a, b) in enumerate(zip(self.mine.parameters(), self.theirs.parameters())):
            value = drawn(100 * seed + number, a.shape)
            with rl.no_grad(), torch.no_grad():
                a.copy_(rl.tensor(value, dtype=rl.float32))
                b.copy_(torch.tensor(value))

    def agree(self, seed: int = 0, length: int = LENGTH, lengths: Any = None) -> None:
        """Outputs, states and gradients are equal."""
        results = []
        for library, layer, dtype in (
            (rl, self.mine, rl.float32),
            (torch, self.theirs, torch.float64),
        ):
            layer.zero_grad()
            x = library.tensor(drawn(seed, (length, BATCH, INPUT)), dtype=dtype)
            x.requires_grad_()
            packing = library.nn.utils.rnn
            given = x if lengths is None else packing.pack_padded_sequence(x, lengths)
            output, state = layer(given)
            if lengths is not None:
                output, _ = packing.pad_packed_sequence(output)
            parts = [output, *(state if isinstance(state, tuple) else [state])]
            sum((p * p).sum() for p in parts).backward()
            grads = [p.grad for p in layer.parameters() if p.requires_grad]
            results.append([p.detach() for p in (*parts, x.grad, *grads)])
        for a, b in zip(*results, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("name", "settings"), KINDS)
def test_other_weights_and_lengths(name: str, settings: Any, traces: list[Any]) -> None:
    both = Both(name, **settings)
    both.agree(1)
    count = len(traces)
    assert count == 1
    both.agree(2)
    both.weigh(3)
    both.agree(4, length=7)
    Both(name, 5, **settings).agree(6)
    assert len(traces) == count


def test_packed_batches(traces: list[Any]) -> None:
    both = Both("LSTM")
    both.agree(1, lengths=[5, 3])
    both.agree(1)
    both.agree(2, lengths=[4, 1])
    assert len(traces) == 2


def test_layers_of_one_form_share_a_body(traces: list[Any]) -> None:
    for name in ("GRU", "LSTM"):
        for settings in ({}, {"bias": False}, {"num_layers": 3}):
            Both(name, **settings).agree()
    assert len(traces) == 4


def test_frozen_weights_and_no_gradients(traces: list[Any]) -> None:
    both = Both("GRU")
    both.agree()
    for layer in (both.mine, both.theirs):
        layer.weight_hh_l0.requires_grad_(False)
    both.agree(1)
    for layer in (both.mine, both.theirs):
        layer.requires_grad_(False)
    both.agree(2)
    with rl.no_grad(), torch.no_grad():
        x = drawn(1, (LENGTH, BATCH, INPUT))
        mine, _ = both.mine(rl.tensor(x, dtype=rl.float32))
        wanted, _ = both.theirs(torch.tensor(x))
    assert not mine.requires_grad
    np.testing.assert_allclose(mine.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)
    for layer in (both.mine, both.theirs):
        layer.requires_grad_(True)
    both.agree(3)
    assert len(traces) == 4


def test_weights_that_are_constants_views_or_one_another() -> None:
    both = Both("RNN")
    square = drawn(8, (HIDDEN, HIDDEN))
    for kind in ("constant", "view", "computed", "detached"):
        for library, layer, dtype in (
            (rl, both.mine, rl.float32),
            (torch, both.theirs, torch.float64),
        ):
            del layer.weight_hh_l0
            value = library.tensor(np.stack([square, square]), dtype=dtype)
            layer.weight_hh_l0 = {
                "constant": library.zeros(HIDDEN, HIDDEN, dtype=dtype),
                "view": value[1],
                "computed": value.sum(0) * 0.5,
                "detached": value[0].clone().requires_grad_().detach(),
            }[kind]
        both.agree(1)
    other = Both("RNN", 3)
    other.agree()
    Both("RNN", 4).agree()


def test_one_weight_in_two_places() -> None:
    both = Both("LSTM", proj_size=2)
    for seed in (1, 2):
        for layer in (both.mine, both.theirs):
            layer.bias_ih_l0 = layer.bias_hh_l0
        both.agree(seed)
    Both("LSTM", 5, proj_size=2).agree()


def test_autocast_and_default_types_are_told_apart(traces: list[Any]) -> None:
    both = Both("GRU")
    both.agree()
    x = rl.tensor(drawn(1, (LENGTH, BATCH, INPUT)), dtype=rl.float32)
    for _ in range(2):
        plain = both.mine(x)[0]
        with rl.autocast("cpu", rl.bfloat16):
            narrow = both.mine(x)[0]
        assert plain.dtype is rl.float32
        assert (plain - narrow.float()).abs().max().item() > 0
    both.agree(2)


def test_eager_jit_and_transforms() -> None:
    both = Both("LSTM")
    both.agree()
    x = rl.tensor(drawn(1, (LENGTH, BATCH, INPUT)), dtype=rl.float32)
    wanted = both.theirs(torch.tensor(drawn(1, (LENGTH, BATCH, INPUT))))[0].detach().numpy()
    with rl.eager():
        found = [both.mine(x)[0]]
    found.append(rl.jit(lambda x: both.mine(x)[0])(x))
    found.append(rl.vmap(lambda x: both.mine(x)[0], 1, 1)(x))
    found.append(both.mine(x)[0])
    for one in found:
        np.testing.assert_allclose(one.detach().numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_threads() -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for number in range(3):
                with rl.config.override():
                    Both("GRU", seed).agree(number)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
