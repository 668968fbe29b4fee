"""Hooks around saving and loading, in torch's order; states loaded into lazy layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.nn.state_hooks import StateDictError

torch = pytest.importorskip("torch")


def watched(library: Any) -> list[Any]:
    """What hooks on a model and its first layer see."""
    model = library.nn.Sequential(library.nn.Linear(1, 1), library.nn.Linear(1, 1))
    seen: list[Any] = []
    for name, module in (("all", model), ("first", model[0])):
        module.register_state_dict_pre_hook(
            lambda m, prefix, keep, name=name: seen.append(("save", name, prefix, keep))
        )
        module.register_state_dict_post_hook(
            lambda m, state, prefix, meta, name=name: seen.append(("saved", name, len(state)))
        )
        module.register_load_state_dict_pre_hook(
            lambda m, state, prefix, *rest, name=name: seen.append(("load", name, prefix))
        )
        module.register_load_state_dict_post_hook(
            lambda m, keys, name=name: seen.append(("loaded", name, keys.missing_keys))
        )
    model.load_state_dict(model.state_dict())
    return seen


def test_order_is_torchs() -> None:
    mine, theirs = watched(rl), watched(torch)
    assert [s for s in mine if s[0] != "saved"] == [s for s in theirs if s[0] != "saved"]
    assert [s[:2] for s in mine if s[0] == "saved"] == [s[:2] for s in theirs if s[0] == "saved"]


def test_renaming_on_load() -> None:
    layer = nn.Linear(2, 2)

    def rename(module, state, prefix, *rest):
        state[prefix + "weight"] = state.pop(prefix + "kernel")

    handle = layer.register_load_state_dict_pre_hook(rename)
    model = nn.Sequential(layer)
    old = {"0.kernel": rl.ones(2, 2), "0.bias": rl.zeros(2)}
    model.load_state_dict(old)
    assert layer.weight.detach().numpy().sum() == 4 and "0.kernel" in old
    handle.remove()
    with pytest.raises(StateDictError, match="does not fit"):
        model.load_state_dict(old)


def test_keys_forgiven_and_refused() -> None:
    layer = nn.Linear(2, 2)
    layer.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    layer.load_state_dict({"weight": rl.ones(2, 2)})
    layer.register_load_state_dict_pre_hook(lambda *all: all[-1].append("too old"))
    with pytest.raises(StateDictError, match="refused"):
        layer.load_state_dict({"weight": rl.ones(2, 2)})


def test_saved_values_changed() -> None:
    layer = nn.Linear(2, 2)
    layer.register_state_dict_post_hook(lambda m, state, prefix, meta: state.pop(prefix + "bias"))
    assert list(nn.Sequential(layer).state_dict()) == ["0.weight"]


@pytest.mark.parametrize(
    ("lazy", "proper"),
    [
        (lambda: nn.LazyLinear(3), lambda: nn.Linear(5, 3)),
        (lambda: nn.LazyConv2d(4, 3, groups=2), lambda: nn.Conv2d(6, 4, 3, groups=2)),
        (lambda: nn.LazyConvTranspose1d(4, 3), lambda: nn.ConvTranspose1d(6, 4, 3)),
        (lambda: nn.LazyBatchNorm1d(), lambda: nn.BatchNorm1d(6)),
        (lambda: nn.LazyBatchNorm1d(affine=False), lambda: nn.BatchNorm1d(6, affine=False)),
    ],
)
def test_lazy_layers_take_their_size_from_a_state(lazy, proper) -> None:
    given = nn.Sequential(proper())
    model = nn.Sequential(lazy())
    model.load_state_dict(given.state_dict())
    assert type(model[0]) is type(given[0])
    for a, b in zip(model.state_dict().values(), given.state_dict().values()):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
