"""Calls that torch refuses: refused with an error of its kind, deferred, eager and under jit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import ridgeline as rl

Function = Callable[[Any, Any], Any]  # of a library and a tensor
FLOATS, INTS, BOOLS, COMPLEX = [1.0, 0.0], [1, 0], [True, False], [1 + 2j, 1j]

DRAWS: dict[str, tuple[list[Any], Function]] = {
    "multinomial of a negative weight": ([-1.0, 2.0], lambda L, x: L.multinomial(x, 1)),
    "multinomial of nan": ([float("nan"), 2.0], lambda L, x: L.multinomial(x, 1)),
    "multinomial of inf": ([float("inf"), 2.0], lambda L, x: L.multinomial(x, 1)),
    "multinomial of zeros": ([0.0, 0.0], lambda L, x: L.multinomial(x, 1)),
    "multinomial of zeros, again": ([0.0, 0.0], lambda L, x: L.multinomial(x, 3, True)),
    "bernoulli of 2": ([2.0], lambda L, x: L.bernoulli(x)),
    "bernoulli of nan": ([float("nan")], lambda L, x: x.bernoulli()),
    "bernoulli of a computed 2": ([1.0], lambda L, x: L.bernoulli(x + 1)),
    "bernoulli_ of a tensor of 2": ([2.0], lambda L, x: (x * 0).bernoulli_(x)),
    "poisson of -1": ([-1.0], lambda L, x: L.poisson(x)),
    "normal of width -1": ([-1.0], lambda L, x: L.normal(0.0, x)),
    "normal_ of width -1": ([1.0], lambda L, x: (x * 0).normal_(0.0, -1.0)),
    "uniform_ backwards": ([1.0], lambda L, x: (x * 0).uniform_(2.0, 1.0)),
}
TO: dict[str, tuple[list[Any], Function]] = {
    "to(two types)": (FLOATS, lambda L, x: x.to(L.float32, L.float64)),
    "to(device, two types)": (FLOATS, lambda L, x: x.to("cpu", L.float64, L.float32)),
    "to(type, dtype=)": (FLOATS, lambda L, x: x.to(L.float32, dtype=L.float64)),
    "to(tensor, type)": (FLOATS, lambda L, x: x.to(x, L.float64)),
    "to(two devices)": (FLOATS, lambda L, x: x.to("cpu", "cpu")),
    "to(device, device=)": (FLOATS, lambda L, x: x.to("cpu", device="cpu")),
    "to(type, three flags)": (FLOATS, lambda L, x: x.to(L.float64, True, True, True)),
}
TYPES: dict[str, tuple[list[Any], Function]] = {
    "where of floats": (FLOATS, lambda L, x: L.where(x, x, x)),
    "masked_fill of floats": (FLOATS, lambda L, x: x.masked_fill(x, 1.0)),
    "index of floats": (FLOATS, lambda L, x: x[x]),
    "addmm of two types": ([[1.0]], lambda L, x: L.addmm(x.double(), x, x)),
    "lerp of two types": (FLOATS, lambda L, x: L.lerp(x.double(), x, 0.5)),
    "cross of two types": ([1.0, 2.0, 3.0], lambda L, x: L.linalg.cross(x.double(), x)),
    "meshgrid of two types": (FLOATS, lambda L, x: L.meshgrid(x, x.double(), indexing="ij")),
    "floor of complex": (COMPLEX, lambda L, x: x.floor()),
    "relu of bools": (BOOLS, lambda L, x: x.relu()),
    "mse_loss of complex": (COMPLEX, lambda L, x: L.nn.functional.mse_loss(x, x)),
    "std with a number for a flag": (FLOATS, lambda L, x: x.std(0, 3)),
    "tril of a half": ([[1.0]], lambda L, x: x.tril(1.5)),
    "one_hot of nan classes": (INTS, lambda L, x: L.nn.functional.one_hot(x, float("nan"))),
    "histc up to nan": (FLOATS, lambda L, x: L.histc(x, 4, 0, float("nan"))),
    "scatter_add of a scalar": (
        [[1.0]], lambda L, x: x.scatter_add(0, L.zeros(1, 1, dtype=L.int64), x[0, 0])),
    "zeros of a dict": (FLOATS, lambda L, x: L.zeros({})),
    "LayerNorm of a half": (FLOATS, lambda L, x: L.nn.LayerNorm([1.5])),
    "Linear of an empty type": (FLOATS, lambda L, x: L.nn.Linear(1, 1, dtype="")),
    "max_pool1d over a half": ([[[1.0]]], lambda L, x: L.nn.functional.max_pool1d(x, [1.5])),
    "no device": (FLOATS, lambda L, x: L.zeros(1, device=1.5)),
    **{
        f"{name} of {kind}": (values, lambda L, x, name=name: getattr(L.nn.functional, name)(x))
        for name in ("gelu", "softplus", "logsigmoid", "hardswish", "hardsigmoid", "hardshrink",
                     "softshrink", "glu")
        for kind, values in (("ints", INTS), ("bools", BOOLS), ("complex", COMPLEX))
    },
    **{
        f"{name} of {kind}": (values, lambda L, x, name=name: getattr(L, name)(x, 0))
        for name in ("softmax", "log_softmax", "logcumsumexp")
        for kind, values in (("ints", INTS), ("bools", BOOLS))
    },
    "huber_loss of ints": (INTS, lambda L, x: L.nn.functional.huber_loss(x, x)),
    "nll_loss of ints": ([[1]], lambda L, x: L.nn.functional.nll_loss(x, x[0] * 0)),
    "dropout of ints": (INTS, lambda L, x: L.nn.functional.dropout(x, 0.5)),
    "group_norm of complex": ([COMPLEX], lambda L, x: L.nn.functional.group_norm(x, 1)),
    "layer_norm of complex": ([COMPLEX], lambda L, x: L.nn.functional.layer_norm(x, (2,))),
    "instance_norm of complex": ([[COMPLEX]], lambda L, x: L.nn.functional.instance_norm(x)),
    "local_response_norm of complex": (
        [[COMPLEX]], lambda L, x: L.nn.functional.local_response_norm(x, 2)),
    "index_put of another type": (
        FLOATS, lambda L, x: x.index_put((L.tensor([0]),), L.tensor([2], dtype=L.int64))),
    "index_put_ of a wider type": (
        FLOATS, lambda L, x: x.clone().index_put_((L.tensor([0]),), x[:1].double())),
    "masked_fill of bytes": (FLOATS, lambda L, x: x.masked_fill(x.to(L.uint8), 1.0)),
    "cross of a stretched vector": (
        [[1.0, 2.0, 3.0]], lambda L, x: L.cross(x, x[:, :1], dim=1)),
    "squeeze of text": ([[1.0]], lambda L, x: x.squeeze("")),
    "roll by bytes": (FLOATS, lambda L, x: x.roll(b"x", 0)),
    "movedim of a dict": ([[1.0]], lambda L, x: L.movedim(x, {}, {})),
    "pad by text": (FLOATS, lambda L, x: L.nn.functional.pad(x, "")),
    "pad by a dict": (FLOATS, lambda L, x: L.nn.functional.pad(x, {})),
    "windows of a half": (FLOATS, lambda L, x: x.unfold(0, 1.5, 1)),
    "fft along no axis": (FLOATS, lambda L, x: L.fft.fft(x, dim=None)),
    "rfft along text": (FLOATS, lambda L, x: L.fft.rfft(x, dim="")),
    "cosine_similarity along no axis": (
        [FLOATS], lambda L, x: L.nn.functional.cosine_similarity(x, x, None)),
    "nan_to_num by text": (FLOATS, lambda L, x: x.nan_to_num("")),
    "an axis given twice": ([FLOATS], lambda L, x: x.sum(dim=0, axis=1)),
    "axes given twice": ([FLOATS], lambda L, x: x.flip(0, dims=(1,))),
    "a maximum along two axes": ([FLOATS], lambda L, x: x.max(1, axis=0)),
    "more elements than there are numbers": (FLOATS, lambda L, x: x[:1].expand(1 << 70)),
    "a step beyond 64 bits": (FLOATS, lambda L, x: x.unfold(0, 1, 1 << 70)),
    "batch_norm of ints": ([[1]], lambda L, x: L.nn.functional.batch_norm(x, L.ones(1), L.ones(1))),
}  # fmt: skip
WAYS = ("deferred", "eager", "jit")


def _read(found: Any) -> None:
    for part in found if isinstance(found, tuple | list) else (found,):
        if hasattr(part, "tolist"):
            part.tolist()


def _refusal(library: Any, values: list[Any], call: Function, way: str) -> Exception | None:
    try:
        if way == "eager":
            with rl.eager():
                _read(call(library, library.tensor(values)))
        elif way == "jit":
            _read(rl.jit(lambda x: call(library, x))(library.tensor(values)))
        else:
            _read(call(library, library.tensor(values)))
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [*DRAWS, *TO, *TYPES])
def test_what_torch_refuses_is_refused(name: str, way: str) -> None:
    values, call = (DRAWS | TO | TYPES)[name]
    theirs, ours = _refusal(torch, values, call, "plain"), _refusal(rl, values, call, way)
    assert theirs is not None
    assert isinstance(ours, rl.RidgelineError), ours
    for kind in (IndexError, TypeError, NotImplementedError):
        assert not isinstance(theirs, kind) or isinstance(ours, kind), (theirs, ours)


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_checked_by_compiled_code(name: str) -> None:
    values, call = DRAWS[name]
    with rl.config.override(tier="compiled"):
        for way in WAYS:
            assert isinstance(_refusal(rl, values, call, way), rl.RidgelineError), way


def test_a_jitted_draw_is_checked_on_every_call() -> None:
    draw = rl.jit(lambda weights: rl.multinomial(weights, 1))
    assert draw(rl.tensor([0.0, 2.0])).tolist() == [1]
    with pytest.raises(rl.RidgelineError, match="weight of multinomial"):
        draw(rl.tensor([-1.0, 2.0])).tolist()
    assert draw(rl.tensor([3.0, 0.0])).tolist() == [0]


@pytest.mark.parametrize("call", [
    lambda L, x: x.to(L.float64), lambda L, x: x.to("cpu", L.float64, True, True),
    lambda L, x: x.to(L.float64, False, True), lambda L, x: x.to(None, L.float64),
    lambda L, x: x.to(x.double(), copy=True), lambda L, x: x.to(device="cpu", dtype=L.float16),
    lambda L, x: x.to("cpu", None),
    lambda L, x: L.softmax(x.long(), 0, dtype=L.float64),
    lambda L, x: x.nan_to_num(None), lambda L, x: x.roll(1, []), lambda L, x: x.all(dim=()),
    lambda L, x: x.reshape(2, 1).any(dim=[]), lambda L, x: x.reshape(1, 2).all([], keepdim=True),
    lambda L, x: L.linspace(1j, 2, 4), lambda L, x: L.logspace(0, 1j, 3),
])  # fmt: skip
def test_what_torch_takes_is_taken(call: Function) -> None:
    theirs, ours = call(torch, torch.tensor(FLOATS)), call(rl, rl.tensor(FLOATS))
    assert str(theirs.dtype).removeprefix("torch.") == ours.dtype.name
    assert theirs.shape == tuple(ours.shape)
    assert theirs.flatten().tolist() == pytest.approx(ours.flatten().tolist())


def test_weights_below_the_number_of_samples() -> None:
    """torch draws an index of weight 0 here, which its documentation rules out."""
    with pytest.raises(rl.RidgelineError, match="above 0: 1 is not ≥ 2"):
        rl.multinomial(rl.tensor([1.0, 0.0]), 2).tolist()
