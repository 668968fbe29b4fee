"""What a tensor shows of itself: printing, conversion, random numbers, stubs, origins."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline.functions.registry import TABLE
from ridgeline.graph.origins import origins_of
from ridgeline.record.values import read
from ridgeline.tensors import stubs
from ridgeline.values import philox

SHOWN = [
    [1, 2, 3], [1.0, 2.5, -3.25], [[1.0, 2.0], [3.0, 4.5]], [True, False], 3.5, 7, [],
    [0.0001, 1000.0], [1e10, 1.0], [float("nan"), float("inf"), 1.0], [[[1, 2], [3, 4]]],
    [1e-6, 2e-6],
]  # fmt: skip


@pytest.mark.parametrize("values", SHOWN, ids=str)
def test_repr_is_torchs(values):
    assert repr(rl.tensor(values)) == repr(torch.tensor(values))


def test_repr_of_large_and_tracked_tensors():
    assert repr(rl.arange(3000)) == repr(torch.arange(3000))
    big = np.arange(4000.0, dtype=np.float32).reshape(40, 100)
    assert repr(rl.tensor(big)) == repr(torch.tensor(big))
    assert "requires_grad=True" in repr(rl.ones(2, requires_grad=True))
    assert "grad_fn" in repr(rl.ones(2, requires_grad=True) * 2)
    assert repr(rl.ones(2, dtype=rl.float64)) == "tensor([1., 1.], dtype=ridgeline.float64)"
    assert f"{rl.tensor(1.234):.1f}" == "1.2"


def test_sizes():
    x = rl.ones(2, 3)
    assert x.shape == (2, 3) and repr(x.shape) == "ridgeline.Size([2, 3])"
    assert x.size() == (2, 3) and x.size(1) == x.shape[-1] == 3
    assert x.numel() == x.nelement() == 6 and x.dim() == x.ndim == 2 and len(x) == 2
    assert x.stride() == (3, 1) and x.t().stride() == (1, 3)
    assert x.is_contiguous() and not x.t().is_contiguous() and x.t().contiguous().is_contiguous()
    assert x.nbytes == 24 and x.element_size() == 4


def test_python_values():
    assert rl.tensor(2.5).item() == 2.5 and isinstance(rl.tensor(3).item(), int)
    assert rl.tensor(True).item() is True
    assert float(rl.tensor(2.5)) == 2.5 and int(rl.tensor(7.9)) == 7
    assert [10, 20, 30][rl.tensor(1)] == 20
    assert rl.tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert [row.tolist() for row in rl.tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    assert 3 in rl.tensor([1, 2, 3]) and 5 not in rl.tensor([1, 2, 3])
    assert rl.ones(2, dtype=rl.bfloat16).tolist() == [1.0, 1.0]
    assert hash(rl.ones(2)) != hash(rl.ones(2))


def test_numpy_both_ways():
    x = rl.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(np.asarray(x), [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(x.t().numpy(), [[0, 3], [1, 4], [2, 5]])
    assert np.asarray(x, dtype=np.float32).dtype == np.float32
    assert (x + np.ones((2, 3), np.int64)).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert isinstance(np.float64(2.0) * rl.ones(2), rl.Tensor)
    with pytest.raises(rl.RidgelineError, match="detach"):
        rl.ones(2, requires_grad=True).numpy()


def test_philox_known_answers():
    # from the Random123 distribution's kat_vectors for philox4x32-10
    assert [hex(w) for w in philox.blocks(np.uint64(0), np.array([0], np.uint64))[0]] == [
        "0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8",
    ]  # fmt: skip


def test_random_streams():
    rl.manual_seed(7)
    first, second = rl.rand(5), rl.rand(5)
    rl.manual_seed(7)
    unused = rl.rand(5)
    again = rl.rand(5)
    assert again.tolist() == second.tolist() != first.tolist()
    assert unused.tolist() == first.tolist()
    generator = rl.Generator().manual_seed(3)
    state = generator.get_state()
    draw = rl.randn(4, generator=generator).tolist()
    generator.set_state(state)
    assert rl.randn(4, generator=generator).tolist() == draw


def test_random_numbers_agree_in_every_tier():
    draws = []
    for tier in ("interpreter", "compiled"):
        with rl.config.override(tier=tier):
            rl.manual_seed(11)
            draws.append([rl.rand(7).tolist(), rl.randint(0, 100, (9,)).tolist()])
    assert draws[0] == draws[1]


def test_distributions():
    rl.manual_seed(0)
    uniform = rl.rand(20000).numpy()
    assert uniform.min() >= 0 and uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.01 and abs(uniform.var() - 1 / 12) < 0.005
    normal = rl.randn(20000, dtype=rl.float64).numpy()
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.03
    assert abs((normal**4).mean() - 3) < 0.3
    dice = rl.randint(1, 7, (12000,)).numpy()
    assert dice.min() == 1 and dice.max() == 6
    assert np.abs(np.bincount(dice)[1:] - 2000).max() < 250
    assert abs(rl.bernoulli(rl.full((10000,), 0.3)).mean().item() - 0.3) < 0.02
    filled = rl.empty(10000).uniform_(-2, 3)
    assert filled.min().item() >= -2 and filled.max().item() < 3
    assert abs(rl.empty(10000).normal_(5, 2).mean().item() - 5) < 0.1
    assert rl.rand(3, 4).shape == (3, 4) and rl.randn_like(filled).shape == filled.shape


def test_dropout():
    rl.manual_seed(0)
    x = rl.ones(10000)
    kept = rl.dropout(x, 0.25).numpy()
    assert set(np.unique(kept)) == {0.0, np.float32(1 / 0.75)}
    assert abs((kept == 0).mean() - 0.25) < 0.02
    assert rl.dropout(x, 0.25, training=False).tolist() == x.tolist()


def test_nodes_remember_where_they_were_made():
    x = rl.ones(2)
    y = x.softmax(0)
    line = inspect.currentframe().f_lineno - 1
    inner = read(y)
    while inner.op.name != "exp":
        inner = inner.inputs[0]
    for node in (read(y), inner):
        (origin,) = origins_of(node)
        assert (origin.line, origin.function) == (line, "test_nodes_remember_where_they_were_made")
        assert origin.file == __file__ and "softmax" in origin.source


def test_errors_name_the_place_where_an_equal_tensor_was_made_last():
    earlier = [rl.ones(2), rl.ones(3)]
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(rl.RidgelineError) as caught:
        rl.ones(2) + rl.ones(3)
    assert f"test_surface.py:{line}" in caught.value.note and len(earlier) == 2


def test_views_remember_where_they_were_made():
    x = rl.ones(6)

    def check(shown, first):
        total = shown + 1  # the line of the reader is not that of the view
        node = read(total)
        while node.op.name != "slice":
            node = node.inputs[0]
        assert origins_of(node)[0].line == first

    part = x[1::2]
    line = inspect.currentframe().f_lineno - 1
    check(part, line)
    x += 1  # the memory has another value, so the view is another node
    check(part, line)
    x = x * 2
    check(x[::2], inspect.currentframe().f_lineno)

    def function(x):
        part = x[1::2]
        return part * 2

    jitted = rl.jit(function)
    jitted(rl.ones(6))
    first = function.__code__.co_firstlineno + 1
    assert f"test_surface.py:{first}" in jitted.passes("simplify")


def test_gradients_inherit_origins():
    w = rl.ones(2, requires_grad=True)
    y = (w.exp() * 3).sum()
    line = inspect.currentframe().f_lineno - 1
    y.backward()
    lines = {origin.line for origin in origins_of(read(w.grad))}
    assert line in lines


def test_stubs_are_current():
    for path, text in stubs.files().items():
        assert (Path(rl.__file__).parent / path).read_text() == text, path


def test_every_entry_is_documented_and_reachable():
    for entry in TABLE.values():
        assert entry.body.__doc__, entry.name
        if entry.function and not entry.namespace:
            assert callable(getattr(rl, entry.name))
        if entry.method:
            assert hasattr(rl.Tensor, entry.name)
