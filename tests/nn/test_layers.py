"""Every layer against torch's: keys, shapes, outputs, gradients and buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ridgeline import nn
from ridgeline.nn.functional.in_place import PLACES
from tests.nn.oracle import assert_as_good, compare, number, ours, wide

Inputs = Callable[[], tuple[Any, ...]]


def x(*shape: int) -> Inputs:
    """One input of normal numbers with a gradient."""
    return lambda: (torch.randn(*shape, requires_grad=True),)


def pair(*shape: int) -> Inputs:
    return lambda: (torch.randn(*shape, requires_grad=True), torch.randn(*shape))


def classes(*shape: int) -> Inputs:
    """Scores and class indices."""
    rest = (*shape[:1], *shape[2:])
    return lambda: (torch.randn(*shape, requires_grad=True), torch.randint(0, shape[1], rest))


CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], Inputs]] = {}


def case(name: str, inputs: Inputs, *args: Any, label: str = "", **kwargs: Any) -> None:
    key = f"{name}{'-' + label if label else ''}"
    assert key not in CASES, key
    CASES[key] = (name, args, kwargs, inputs)


for plain in ("ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardsigmoid", "Hardswish", "Sigmoid",
              "LogSigmoid", "Tanh", "Tanhshrink", "Softsign", "LeakyReLU", "ELU", "CELU", "GELU",
              "Hardtanh", "Hardshrink", "Softshrink", "Softplus", "GLU", "Identity", "PReLU",
              "Softmax2d", "Flatten"):  # fmt: skip
    case(plain, x(2, 4, 3, 6))
case("GELU", x(3, 5), "tanh", label="tanh")
case("LeakyReLU", x(3, 5), 0.2, label="slope")
case("ELU", x(3, 5), 0.7, label="alpha")
case("Softplus", x(3, 5), 2.0, 1.0, label="beta")
case("Threshold", x(3, 5), 0.1, 20.0)
case("PReLU", x(2, 4, 3), 4, label="channels")
case("Softmax", x(3, 5), 1)
case("Softmin", x(3, 5), 1)
case("LogSoftmax", x(3, 5), 1)
case("Linear", x(4, 3), 3, 5)
case("Linear", x(2, 4, 3), 3, 5, bias=False, label="batched")
case("Bilinear", lambda: (torch.randn(4, 3), torch.randn(4, 2)), 3, 2, 5)
case("Conv1d", x(2, 4, 9), 4, 6, 3, stride=2, padding=1)
case("Conv2d", x(2, 1, 8, 8), 1, 6, 3)
case("Conv2d", x(2, 4, 9, 8), 4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2),
     groups=2, label="grouped")  # fmt: skip
case("Conv2d", x(2, 3, 7, 7), 3, 2, 3, padding="same", bias=False, label="same")
case("Conv2d", x(3, 7, 7), 3, 2, 3, label="single")
case("Conv2d", x(2, 3, 7, 7), 3, 2, 3, padding=1, padding_mode="reflect", label="reflect")
case("Conv3d", x(1, 2, 4, 5, 6), 2, 3, 2)
case("ConvTranspose1d", x(2, 4, 5), 4, 6, 3, stride=2, padding=1, output_padding=1)
case("ConvTranspose2d", x(2, 4, 5, 4), 4, 6, 3, stride=2, groups=2, dilation=2)
case("ConvTranspose3d", x(1, 2, 3, 3, 3), 2, 3, 2)
case("AvgPool1d", x(2, 3, 9), 3, 2, 1)
case("AvgPool2d", x(2, 3, 8, 9), 2)
case("AvgPool2d", x(2, 3, 8, 9), 3, 2, 1, ceil_mode=True, count_include_pad=False, label="ceil")
case("AvgPool3d", x(1, 2, 4, 4, 4), 2)
case("MaxPool1d", x(2, 3, 9), 3, 2, 1)
case("MaxPool2d", x(2, 3, 8, 9), 2)
case("MaxPool2d", x(2, 3, 8, 9), 3, 2, 1, 2, label="dilated")
case("MaxPool3d", x(1, 2, 4, 4, 4), 2)
case("AdaptiveAvgPool2d", x(2, 3, 8, 6), (4, 3))
case("AdaptiveMaxPool2d", x(2, 3, 7, 5), (3, 2))
case("LayerNorm", x(3, 4, 5), (4, 5))
case("LayerNorm", x(3, 5), 5, elementwise_affine=False, label="plain")
case("RMSNorm", x(3, 5), 5)
case("GroupNorm", x(2, 6, 4), 3, 6)
case("BatchNorm1d", x(8, 3), 3)
case("BatchNorm2d", x(4, 3, 5, 5), 3)
case("BatchNorm2d", x(4, 3, 5, 5), 3, momentum=None, affine=False, label="average")
case("InstanceNorm2d", x(4, 3, 5, 5), 3, affine=True, track_running_stats=True)
case("LocalResponseNorm", x(2, 6, 3, 3), 3)
case("Embedding", lambda: (torch.randint(0, 7, (3, 4)),), 7, 5, padding_idx=2)
case("ZeroPad2d", x(1, 2, 3, 3), (1, 2, 0, 1))
case("ConstantPad1d", x(2, 3, 4), 2, 1.5)
case("ReflectionPad2d", x(1, 2, 4, 4), 2)
case("ReplicationPad1d", x(2, 3, 4), 2)
case("CircularPad2d", x(1, 2, 4, 4), 1)
case("PixelShuffle", x(1, 8, 3, 3), 2)
case("PixelUnshuffle", x(1, 2, 6, 6), 2)
case("Unflatten", x(2, 12), 1, (3, 4))
for loss in ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss"):
    case(loss, pair(4, 3))
    case(loss, pair(4, 3), reduction="sum", label="sum")
case("CrossEntropyLoss", classes(6, 5))
case("CrossEntropyLoss", classes(4, 5, 3), label_smoothing=0.1, label="smooth")
case("CrossEntropyLoss", classes(4, 5), reduction="none", ignore_index=2, label="ignore")
case("CrossEntropyLoss", lambda: (torch.randn(4, 5, requires_grad=True),
     torch.rand(4, 5).softmax(1)), label="probabilities")  # fmt: skip
case("NLLLoss", classes(6, 5))
case("BCEWithLogitsLoss", lambda: (torch.randn(4, 3, requires_grad=True), torch.rand(4, 3)))
case("KLDivLoss", lambda: (torch.randn(4, 3, requires_grad=True), torch.rand(4, 3)),
     reduction="batchmean")  # fmt: skip
case("SoftMarginLoss", lambda: (torch.randn(4, 3, requires_grad=True),
     torch.randn(4, 3).sign()))  # fmt: skip
case("PoissonNLLLoss", lambda: (torch.randn(4, 3, requires_grad=True), torch.rand(4, 3)))
case("MarginRankingLoss", lambda: (torch.randn(5, requires_grad=True), torch.randn(5),
     torch.randn(5).sign()), 0.3)  # fmt: skip
case("TripletMarginLoss", lambda: tuple(torch.randn(4, 3, requires_grad=True) for _ in range(3)))
for recurrent in ("RNN", "LSTM", "GRU"):
    case(recurrent, x(5, 2, 3), 3, 4)
    case(recurrent, x(2, 5, 3), 3, 4, num_layers=2, bidirectional=True, batch_first=True,
         label="deep")  # fmt: skip
    case(recurrent + "Cell", x(2, 3), 3, 4)
case("LSTM", x(5, 2, 3), 3, 4, proj_size=2, label="projected")
SELF = lambda: (torch.randn(4, 2, 6, requires_grad=True),) * 3  # noqa: E731
case("MultiheadAttention", SELF, 6, 3)
case("MultiheadAttention", SELF, 6, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True,
     label="extended")  # fmt: skip
case("MultiheadAttention", lambda: (torch.randn(4, 2, 6), torch.randn(5, 2, 3),
     torch.randn(5, 2, 4)), 6, 2, kdim=3, vdim=4, label="crossed")  # fmt: skip
case("TransformerEncoderLayer", x(4, 2, 6), 6, 2, 8, 0.0)
case("TransformerEncoderLayer", x(2, 4, 6), 6, 2, 8, 0.0, "gelu", batch_first=True,
     norm_first=True, label="first")  # fmt: skip
case("TransformerDecoderLayer", lambda: (torch.randn(4, 2, 6), torch.randn(5, 2, 6)), 6, 2, 8, 0.0)
case("Transformer", lambda: (torch.randn(4, 2, 6), torch.randn(5, 2, 6)), 6, 2, 1, 1, 8, 0.0)
case("LinearCrossEntropyLoss", lambda: (torch.randn(6, 5, requires_grad=True),
     torch.randint(0, 4, (6,))), 5, 4, bias=True)  # fmt: skip

case("Upsample", x(2, 3, 4, 5), scale_factor=2)
case("Upsample", x(2, 3, 4, 5), (7, 6), mode="bicubic", label="bicubic")
case("UpsamplingNearest2d", x(2, 3, 4, 5), scale_factor=2)
case("UpsamplingBilinear2d", x(2, 3, 4, 5), (7, 6))
case("Unfold", x(2, 3, 6, 5), (3, 2), padding=1, stride=2)
case("Fold", x(2, 18, 6), (6, 5), (3, 2), stride=2, padding=(1, 0))
case("CosineSimilarity", pair(3, 5))
case("PairwiseDistance", pair(3, 5), 3.0, keepdim=True)
case("TripletMarginWithDistanceLoss",
     lambda: tuple(torch.randn(4, 5, requires_grad=True) for _ in range(3)), swap=True)  # fmt: skip


@pytest.mark.parametrize("key", CASES)
def test_layer(key: str) -> None:
    name, args, kwargs, inputs = CASES[key]
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*args, **kwargs)
    layer = getattr(nn, name)(*args, **kwargs)
    compare(layer, theirs, *inputs())


def test_evaluation_uses_running_statistics() -> None:
    torch.manual_seed(1)
    theirs, layer = torch.nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    theirs(torch.randn(10, 3) * 2 + 1)
    compare(layer.eval(), theirs.eval(), torch.randn(4, 3, requires_grad=True))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest", "nearest-exact", "area"])
@pytest.mark.parametrize("sizes", [{"size": (7, 9)}, {"scale_factor": 1.7}, {"size": (3, 2)}])
def test_interpolate(mode: str, sizes: dict[str, Any]) -> None:
    image = torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(0))
    options = [{}]
    if mode in ("bilinear", "bicubic"):
        options += [{"align_corners": True}, {"antialias": True}]
    for extra in options:
        theirs, exact = (
            torch.nn.functional.interpolate(i, mode=mode, **sizes, **extra).numpy()
            for i in (image, image.double())
        )
        got = nn.functional.interpolate(ours(image), mode=mode, **sizes, **extra)
        assert_as_good(number(got), theirs, exact, f"{mode} {sizes} {extra}")


def test_windows_and_back() -> None:
    image = torch.randn(2, 3, 7, 6, requires_grad=True)
    for settings in ((3, 1, 0, 1), ((2, 3), 1, (1, 2), 2), (2, 2, 1, (1, 2))):
        columns = torch.nn.functional.unfold(image, *settings)
        mine = nn.functional.unfold(ours(image), *settings)
        assert (number(mine) == columns.detach().numpy()).all()
        back = torch.nn.functional.fold(columns, (7, 6), *settings)
        assert abs(number(nn.functional.fold(mine, (7, 6), *settings)) - number(back)).max() < 1e-5


@pytest.mark.parametrize("settings", [{}, {"is_causal": True}, {"enable_gqa": True}])
def test_attention(settings: dict[str, Any]) -> None:
    torch.manual_seed(2)
    heads = 2 if "enable_gqa" in settings else 4
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, heads, 6, 8), torch.randn(2, heads, 6, 3)
    attend = torch.nn.functional.scaled_dot_product_attention
    theirs, exact = attend(q, k, v, **settings), attend(*map(wide, (q, k, v)), **settings)
    mine = nn.functional.scaled_dot_product_attention(*map(ours, (q, k, v)), **settings)
    assert_as_good(number(mine), number(theirs), number(exact), "attention")


def test_a_row_that_attends_to_nothing_gives_zeros() -> None:
    q = torch.randn(1, 1, 2, 4)
    mask = torch.tensor([[True, False], [False, False]])
    mine = nn.functional.scaled_dot_product_attention(*[ours(q)] * 3, attn_mask=ours(mask))
    theirs = torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    assert abs(number(mine) - theirs.numpy()).max() < 1e-6


def test_unpooling_gives_back_the_maxima() -> None:
    pool, back = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)
    values = torch.randn(2, 3, 7, 6)
    kept, places = torch.nn.MaxPool2d(2, return_indices=True)(values)
    wanted = torch.nn.MaxUnpool2d(2)(kept, places, output_size=values.shape)
    found = back(*pool(ours(values)), output_size=values.shape)
    assert_as_good(number(found), wanted.numpy(), wanted.numpy(), "unpooled")


def test_embedding_bags() -> None:
    numbers, starts = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]), torch.tensor([0, 3, 4])
    for mode in ("sum", "mean", "max"):
        layer = nn.EmbeddingBag(10, 3, mode=mode, padding_idx=4)
        theirs = torch.nn.EmbeddingBag(10, 3, mode=mode, padding_idx=4)
        compare(layer, theirs, numbers, starts)


@pytest.mark.parametrize("name", sorted(PLACES.keys() - {"dropout3d", "rrelu"}))
def test_inplace_leaves_the_result_in_the_input(name: str) -> None:
    """Also where the input is used again afterwards, and in the gradient."""
    constants = {"threshold": (0.1, 20.0)}.get(name, ())
    results = []
    for lib, make in ((nn.functional, ours), (torch.nn.functional, lambda t: t)):
        torch.manual_seed(0)
        start = make(torch.randn(3, 5, 4, requires_grad=True))
        given = start * 2
        extra = {"training": False} if "dropout" in name else {}
        found = getattr(lib, name)(given, *constants, inplace=True, **extra)
        (found * given).sum().backward()
        results.append((number(found), number(given), number(start.grad)))
    for a, b in zip(*results):
        assert_as_good(a, b, b, name)
