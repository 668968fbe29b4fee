"""Every public function against torch: values, element types, gradients, second gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ridgeline as rl
from tests.functions.reference import agree, numbers, same


def functional(library):
    return rl if library is rl else torch.nn.functional


UNARY = [
    "exp", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "erf", "abs", "sign", "floor",
    "ceil", "round", "trunc", "frac", "sigmoid", "relu", "square", "neg", "exp2", "reciprocal",
    "isnan", "isinf", "isfinite", "logical_not", "nan_to_num",
]  # fmt: skip
POSITIVE = ["sqrt", "rsqrt", "log", "log2", "log10", "log1p"]
ACTIVATIONS = [
    "relu6", "leaky_relu", "elu", "silu", "mish", "hardtanh", "softplus", "softsign", "gelu",
    "logsigmoid",
]  # fmt: skip
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "floor_divide", "remainder", "fmod"]
COMPARE = ["lt", "le", "gt", "ge", "eq", "ne", "logical_and", "logical_or", "logical_xor"]
SHAPES = [(), (1,), (3,), (2, 3), (2, 0, 3), (4, 1, 2)]
PAIRS = [((), ()), ((3,), ()), ((2, 3), (3,)), ((2, 1), (1, 3)), ((0,), (1,)), ((2, 3), (2, 3))]


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_unary(name, shape):
    agree(lambda lib, x: getattr(lib, name)(x), [numbers(shape)], second=True)
    agree(lambda lib, x: getattr(x, name)(), [numbers(shape)], gradients=False)


@pytest.mark.parametrize("name", POSITIVE)
def test_unary_of_positive(name):
    agree(lambda lib, x: getattr(lib, name)(x), [np.abs(numbers((2, 3)))], second=True)


@pytest.mark.parametrize("name", ["exp", "sqrt", "sin", "sigmoid", "floor", "abs", "square"])
@pytest.mark.parametrize("kind", ["int64", "uint8", "float32"])
def test_unary_types(name, kind):
    agree(lambda lib, x: getattr(lib, name)(x), [numbers((2, 3), kind=kind)], gradients=False)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    extremes = np.array([-90.0, -21.0, -3.0, -0.5, 0.0, 0.5, 3.0, 21.0, 90.0])
    second = name not in ("hardtanh", "relu6", "elu", "leaky_relu")
    agree(lambda lib, x: getattr(functional(lib), name)(x), [extremes], second=second)


def test_activation_parameters():
    x = numbers((3, 4))
    agree(lambda lib, x: functional(lib).gelu(x, approximate="tanh"), [x], second=True)
    agree(lambda lib, x: functional(lib).softplus(x, 2.0, 1.0), [x])
    agree(lambda lib, x: functional(lib).leaky_relu(x, 0.3), [x])
    agree(lambda lib, x: functional(lib).elu(x, 0.7), [x])


def test_sigmoid_is_accurate_in_the_tails():
    x = np.array([-700.0, -100.0, -40.0, 0.0, 40.0, 100.0])
    agree(lambda lib, x: lib.sigmoid(x), [x], second=True, tolerance=1e-12)
    agree(lambda lib, x: lib.log(lib.sigmoid(x)), [x[1:]])


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("shapes", PAIRS, ids=str)
def test_binary(name, shapes):
    arrays = [numbers(shapes[0], 1), numbers(shapes[1], 2)]
    smooth = name != "floor_divide"  # torch has no gradient for it
    agree(lambda lib, x, y: getattr(lib, name)(x, y), arrays, gradients=smooth, second=smooth)


@pytest.mark.parametrize("name", COMPARE)
@pytest.mark.parametrize("shapes", PAIRS[:4], ids=str)
def test_comparison(name, shapes):
    arrays = [numbers(shapes[0], 1, "int64"), numbers(shapes[1], 2, "int64")]
    agree(lambda lib, x, y: getattr(lib, name)(x, y), arrays)


KINDS = ["float32", "float64", "int64", "int32", "uint8", "bool"]


@pytest.mark.parametrize("left", KINDS)
@pytest.mark.parametrize("right", [*KINDS, 2, 2.5, True])
@pytest.mark.parametrize("scalar", [False, True])
def test_promotion(left, right, scalar):
    x = numbers(() if scalar else (3,), 1, left)
    if isinstance(right, str):
        arrays = [x, numbers((), 2, right)]
        agree(lambda lib, a, b: a * b, arrays, gradients=False)
        agree(lambda lib, a, b: b + a, arrays, gradients=False)
        agree(lambda lib, a, b: a / b, [x, np.ones((), right)], gradients=False)
    else:
        agree(lambda lib, a: a * right, [x], gradients=False)
        agree(lambda lib, a: right + a, [x], gradients=False)
        agree(lambda lib, a: a / right, [x], gradients=False)
        agree(lambda lib, a: a > right, [x], gradients=False)


@pytest.mark.parametrize("exponent", [2, 3, 0, 1, 0.5, -1, -2.0, 2.5, 4])
def test_powers(exponent):
    agree(lambda lib, x: x**exponent, [np.abs(numbers((3,)))], second=True)


def test_power_of_two_tensors_and_zero_bases():
    agree(lambda lib, x, y: lib.pow(x, y), [np.abs(numbers((2, 3), 1)), numbers((3,), 2)])
    agree(lambda lib, x, y: lib.pow(x, y), [np.zeros(3), np.array([0.0, 1.0, 2.0])])
    agree(lambda lib, x: 2.0**x, [numbers((3,))], second=True)
    agree(lambda lib, x: x**2, [numbers((3,), kind="int64")])


OPERATORS = {
    "radd": lambda lib, x: 2.5 + x,
    "rsub": lambda lib, x: 1 - x,
    "rdiv": lambda lib, x: 3.0 / x,
    "neg": lambda lib, x: -x,
    "mod": lambda lib, x: x % 0.7,
    "rmod": lambda lib, x: 2.0 % x,
    "floordiv": lambda lib, x: x // 0.3,
    "abs": lambda lib, x: abs(x),
    "div_floor": lambda lib, x: lib.div(x, 0.3, rounding_mode="floor"),
    "div_trunc": lambda lib, x: lib.div(x, 0.3, rounding_mode="trunc"),
    "add_alpha": lambda lib, x: lib.add(x, x, alpha=2.5),
    "sub_alpha": lambda lib, x: lib.sub(x, 3, alpha=2),
    "clamp": lambda lib, x: lib.clamp(x, -0.5, 0.8),
    "clamp_min": lambda lib, x: x.clamp(min=0.1),
    "clamp_max": lambda lib, x: x.clamp(max=0.1),
    "where": lambda lib, x: lib.where(x > 0, x * 2, 1.5),
    "masked_fill": lambda lib, x: x.masked_fill(x > 0, 3.0),
    "lerp": lambda lib, x: lib.lerp(x, x * 3, 0.3),
    "addcmul": lambda lib, x: lib.addcmul(x, x, x, value=0.5),
    "addcdiv": lambda lib, x: lib.addcdiv(x, x, x * x, value=0.5),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name):
    smooth = name not in ("rmod", "floordiv")  # torch has no gradient for them
    agree(OPERATORS[name], [numbers((2, 3))], gradients=smooth, second=smooth)


def test_integer_division_and_bits():
    x = np.array([-7, -3, 0, 3, 7, 250])
    y = np.array([2, -2, 3, 3, -4, 7])
    for rounding in ("floor", "trunc"):
        agree(lambda lib, a, b, r=rounding: lib.div(a, b, rounding_mode=r), [x, y])
    for program in (
        lambda lib, a, b: a & b,
        lambda lib, a, b: a | b,
        lambda lib, a, b: a ^ b,
        lambda lib, a, b: ~a,
        lambda lib, a, b: a << 2,
        lambda lib, a, b: a >> 1,
        lambda lib, a, b: a % b,
        lambda lib, a, b: lib.fmod(a, b),
    ):
        agree(program, [x, y])
    agree(lambda lib, a: a + 300, [np.array([1, 2], np.uint8)])


REDUCTIONS = {
    "sum": lambda lib, x: x.sum(),
    "sum_dim": lambda lib, x: x.sum(1),
    "sum_dims": lambda lib, x: lib.sum(x, dim=(0, 2), keepdim=True),
    "mean": lambda lib, x: x.mean(),
    "mean_dim": lambda lib, x: x.mean(-1, keepdim=True),
    "prod": lambda lib, x: x.prod(),
    "prod_dim": lambda lib, x: x.prod(1),
    "amax": lambda lib, x: x.amax((0, 1)),
    "amin": lambda lib, x: x.amin(2),
    "max": lambda lib, x: x.max(),
    "min": lambda lib, x: x.min(),
    "max_dim": lambda lib, x: x.max(1),
    "min_dim": lambda lib, x: x.min(-1, keepdim=True),
    "argmax": lambda lib, x: x.argmax(),
    "argmin_dim": lambda lib, x: x.argmin(1, keepdim=True),
    "var": lambda lib, x: x.var(),
    "var_dim": lambda lib, x: x.var((0, 1), unbiased=False),
    "var_correction": lambda lib, x: lib.var(x, 1, correction=2, keepdim=True),
    "std": lambda lib, x: x.std(1),
    "var_mean": lambda lib, x: lib.var_mean(x, 1),
    "norm": lambda lib, x: x.norm(),
    "norm_1": lambda lib, x: x.norm(1, 2),
    "norm_3": lambda lib, x: x.norm(3, 1),
    "norm_inf": lambda lib, x: x.norm(float("inf"), 1),
    "softmax": lambda lib, x: x.softmax(1),
    "log_softmax": lambda lib, x: lib.log_softmax(x, -1),
    "logsumexp": lambda lib, x: lib.logsumexp(x, (1, 2)),
    "any": lambda lib, x: (x > 1).any(1),
    "all": lambda lib, x: (x > -1).all(),
    "count_nonzero": lambda lib, x: lib.count_nonzero(x > 0, 1),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    second = name not in ("norm_inf", "amax", "amin", "max", "min")
    agree(REDUCTIONS[name], [numbers((2, 3, 4))], second=second, tolerance=1e-8)


@pytest.mark.parametrize("kind", ["int64", "int32", "uint8", "bool"])
def test_reduction_types(kind):
    x = numbers((3, 4), kind=kind)
    agree(lambda lib, x: (x.sum(), x.sum(1), x.prod(), x.any(), x.all(0)), [x])
    if kind != "bool":
        agree(lambda lib, x: (x.max(), *x.min(1), x.argmax(0)), [x])


def test_reductions_of_nothing_and_ties():
    agree(lambda lib, x: (x.sum(), x.sum(0), x.prod(1)), [np.zeros((0, 3))])
    agree(lambda lib, x: x.amax(1), [np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 2.0]])])
    agree(lambda lib, x: x.max(1), [np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 2.0]])])
    agree(lambda lib, x: x.prod(), [np.array([1.0, 0.0, 3.0])], second=True)
    agree(lambda lib, x: x.norm(), [np.zeros(3)])
    agree(lambda lib, x: lib.logsumexp(x, 0), [np.full(3, -np.inf)], gradients=False)
    with pytest.raises(rl.RidgelineError, match="no elements"):
        rl.zeros(0).max()


MOVEMENT = {
    "reshape": lambda lib, x: x.reshape(4, -1),
    "view": lambda lib, x: x.view(2, 12),
    "flatten": lambda lib, x: x.flatten(1),
    "unflatten": lambda lib, x: x.unflatten(2, (2, 2)),
    "permute": lambda lib, x: x.permute(2, 0, 1),
    "transpose": lambda lib, x: x.transpose(0, -1),
    "movedim": lambda lib, x: x.movedim(0, 2),
    "unsqueeze": lambda lib, x: x.unsqueeze(-2),
    "squeeze": lambda lib, x: x.unsqueeze(0).squeeze(),
    "expand": lambda lib, x: x.unsqueeze(1).expand(2, 5, -1, 4),
    "narrow": lambda lib, x: x.narrow(2, 1, 2),
    "select": lambda lib, x: x.select(1, -1),
    "split": lambda lib, x: x.split(2, 2),
    "split_sizes": lambda lib, x: x.split([1, 2], 1),
    "chunk": lambda lib, x: x.chunk(3, 2),
    "unbind": lambda lib, x: x.unbind(1),
    "cat": lambda lib, x: lib.cat([x, x * 2, x[:, :1]], 1),
    "stack": lambda lib, x: lib.stack([x, x * 2], -1),
    "vstack": lambda lib, x: lib.vstack([x, x]),
    "hstack": lambda lib, x: lib.hstack([x, x]),
    "repeat": lambda lib, x: x.repeat(2, 1, 1, 3),
    "tile": lambda lib, x: lib.tile(x, (2,)),
    "flip": lambda lib, x: x.flip(0, 2),
    "roll": lambda lib, x: x.roll(1, 2),
    "roll_flat": lambda lib, x: x.roll(-5),
    "tril": lambda lib, x: x.tril(-1),
    "triu": lambda lib, x: x.triu(1),
    "T": lambda lib, x: x[0].T,
    "mT": lambda lib, x: x.mT,
    "index_int": lambda lib, x: x[1],
    "index_mixed": lambda lib, x: x[:, None, 1, ..., ::2],
    "index_negative": lambda lib, x: x[-1, -2:, 1:-1],
    "index_empty": lambda lib, x: x[1:1],
    "index_ellipsis": lambda lib, x: x[..., 0],
}


@pytest.mark.parametrize("name", MOVEMENT)
def test_movement(name):
    agree(MOVEMENT[name], [numbers((2, 3, 4))], second=True)


def test_padding():
    x = numbers((2, 3, 4))
    for pads in ((1, 2), (0, 1, 2, 0), (-1, 1), (1, -2, 0, 0, 3, 0)):
        agree(lambda lib, x, p=pads: functional(lib).pad(x, p, value=1.5), [x])


MATRICES = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)), ((5, 1, 2, 3), (4, 3, 2)), ((5, 2, 3), (3,)),
    ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((1, 2, 3), (5, 3, 4)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", MATRICES, ids=str)
def test_matmul(shapes):
    arrays = [numbers(shapes[0], 1), numbers(shapes[1], 2)]
    agree(lambda lib, x, y: x @ y, arrays, second=True)


EQUATIONS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij->ji", [(2, 3)]), ("ii->i", [(3, 3)]), ("ii", [(3, 3)]),
    ("ij,ij->", [(2, 3), (2, 3)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 2)]),
    ("i,j->ij", [(2,), (3,)]), ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]), ("ijk->k", [(2, 3, 4)]), ("bhqd,bhkd->bhqk",
    [(2, 2, 3, 4), (2, 2, 5, 4)]), ("ij,j->i", [(2, 3), (3,)]), ("ab,cd->abcd", [(2, 2), (3, 1)]),
]  # fmt: skip


@pytest.mark.parametrize("equation,shapes", EQUATIONS, ids=[e for e, _ in EQUATIONS])
def test_einsum(equation, shapes):
    arrays = [numbers(shape, place) for place, shape in enumerate(shapes)]
    agree(lambda lib, *xs: lib.einsum(equation, *xs), arrays, second=True)


def test_other_products():
    a, b, v = numbers((2, 3), 1), numbers((3, 4), 2), numbers((3,), 3)
    agree(lambda lib, a, b: lib.mm(a, b), [a, b])
    agree(lambda lib, a, v: lib.mv(a, v), [a, v])
    agree(lambda lib, v: lib.dot(v, v * 2), [v])
    agree(lambda lib, v: lib.outer(v, v), [v])
    agree(lambda lib, a, b, c: lib.addmm(c, a, b, beta=0.5, alpha=2), [a, b, numbers((4,))])
    agree(lambda lib, a, b: lib.tensordot(a, b, 1), [a, b])
    agree(lambda lib, a, w, c: functional(lib).linear(a, w, c), [a, numbers((5, 3)), numbers((5,))])
    agree(
        lambda lib, x, w: functional(lib).linear(x, w), [numbers((2, 4, 3)), numbers((5, 3))],
        second=True,
    )  # fmt: skip


CONVOLUTIONS = [
    {}, {"stride": 2}, {"padding": 1}, {"padding": (1, 2), "stride": (2, 1)}, {"dilation": 2},
    {"groups": 2}, {"padding": "same"},
    {"stride": 3, "padding": 2, "dilation": (1, 2), "groups": 2},
]  # fmt: skip


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_conv2d(options):
    groups = options.get("groups", 1)
    arrays = [numbers((2, 4, 7, 8), 1), numbers((6, 4 // groups, 3, 2), 2), numbers((6,), 3)]
    agree(lambda lib, x, w, b: functional(lib).conv2d(x, w, b, **options), arrays, second=True,
          tolerance=1e-8)  # fmt: skip


def test_other_convolutions():
    agree(lambda lib, x, w: functional(lib).conv1d(x, w, padding=1, stride=2),
          [numbers((2, 3, 9)), numbers((4, 3, 3))])  # fmt: skip
    agree(lambda lib, x, w: functional(lib).conv3d(x, w, padding=1),
          [numbers((1, 2, 3, 4, 3)), numbers((2, 2, 2, 2, 2))], tolerance=1e-8)  # fmt: skip
    agree(
        lambda lib, x, w: functional(lib).conv2d(x, w), [numbers((3, 5, 5)), numbers((2, 3, 3, 3))]
    )


POOLS = [
    {"kernel_size": 2}, {"kernel_size": 3, "stride": 2}, {"kernel_size": (3, 2), "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, {"kernel_size": 2,
    "stride": 3}, {"kernel_size": 3, "ceil_mode": True},
]  # fmt: skip


@pytest.mark.parametrize("options", POOLS, ids=str)
def test_pooling(options):
    x = numbers((2, 3, 7, 8))
    agree(lambda lib, x: functional(lib).avg_pool2d(x, **options), [x], second=True)
    agree(lambda lib, x: functional(lib).max_pool2d(x, **options), [x])
    inner = {**options, "count_include_pad": False}
    agree(lambda lib, x: functional(lib).avg_pool2d(x, **inner), [x])


def test_pooling_of_other_ranks():
    agree(lambda lib, x: functional(lib).avg_pool2d(x, 2, divisor_override=3), [numbers((3, 4, 4))])
    agree(lambda lib, x: functional(lib).avg_pool1d(x, 3, 2, 1), [numbers((2, 3, 8))])
    agree(lambda lib, x: functional(lib).max_pool1d(x, 3, 2, 1), [numbers((2, 3, 8))])


def test_max_pool_gives_the_gradient_to_the_first_maximum():
    agree(lambda lib, x: functional(lib).max_pool2d(x, 3, 1, 1), [np.ones((1, 1, 4, 4))])


LOGITS, LABELS = numbers((5, 4)), np.array([0, 3, 1, 1, 2])
LOSSES = {
    "plain": {}, "sum": {"reduction": "sum"}, "none": {"reduction": "none"},
    "ignore": {"ignore_index": 1}, "smooth": {"label_smoothing": 0.1},
    "smooth_ignore": {"label_smoothing": 0.2, "ignore_index": 3},
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(name, weighted):
    options = LOSSES[name]
    weights = np.array([0.5, 1.0, 2.0, 0.1])

    def program(lib, x, y):
        weight = lib.tensor(weights) if weighted else None
        return functional(lib).cross_entropy(x, y, weight=weight, **options)

    agree(program, [LOGITS, LABELS], second=True)


def test_cross_entropy_of_other_shapes():
    entropy = lambda lib, x, y: functional(lib).cross_entropy(x, y)  # noqa: E731
    agree(entropy, [numbers((4,)), np.array(2)])
    agree(entropy, [numbers((2, 3, 4, 2)), np.random.default_rng(0).integers(0, 3, (2, 4, 2))])
    agree(entropy, [LOGITS, np.abs(numbers((5, 4), 3))])
    smooth = lambda lib, x, y: functional(lib).cross_entropy(x, y, label_smoothing=0.1)  # noqa: E731
    agree(smooth, [LOGITS, np.abs(numbers((5, 4), 3))])
    agree(lambda lib, x, y: functional(lib).nll_loss(x.log_softmax(1), y), [LOGITS, LABELS])


def test_other_losses():
    x, y, p = numbers((3, 4), 1), numbers((3, 4), 2), np.random.default_rng(0).random((3, 4))
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss"):
        for reduction in ("mean", "sum", "none"):
            agree(lambda lib, x, y, n=name, r=reduction: getattr(functional(lib), n)(
                x, y, reduction=r), [x, y])  # fmt: skip
    agree(lambda lib, x, y: functional(lib).binary_cross_entropy_with_logits(x, y), [x, p])
    agree(lambda lib, x, y: functional(lib).binary_cross_entropy(x, y), [p, p[::-1].copy()])


def test_norms():
    x, w, b = numbers((2, 3, 4)), numbers((3, 4), 1), numbers((3, 4), 2)
    agree(lambda lib, x, w, b: functional(lib).layer_norm(x, (3, 4), w, b), [x, w, b], second=True,
          tolerance=1e-7)  # fmt: skip
    agree(lambda lib, x: functional(lib).layer_norm(x, (4,), eps=0.1), [x])
    agree(lambda lib, x: functional(lib).rms_norm(x, (4,)), [x])
    agree(lambda lib, x: functional(lib).normalize(x), [x])
    agree(lambda lib, x, y: functional(lib).cosine_similarity(x, y), [x, numbers((2, 3, 4), 5)])


CREATION = {
    "zeros": lambda lib: lib.zeros(2, 3),
    "ones": lambda lib: lib.ones((2, 3), dtype=lib.int64),
    "full": lambda lib: lib.full((2,), 2.5),
    "full_int": lambda lib: lib.full((2,), 3),
    "arange": lambda lib: lib.arange(5),
    "arange_range": lambda lib: lib.arange(2, 11, 3),
    "arange_float": lambda lib: lib.arange(0.5, 2.0, 0.25),
    "arange_down": lambda lib: lib.arange(5, 0, -2),
    "linspace": lambda lib: lib.linspace(-1, 2, 7),
    "eye": lambda lib: lib.eye(3, 4),
    "zeros_like": lambda lib: lib.zeros_like(lib.ones(2, 3)),
    "full_like": lambda lib: lib.full_like(lib.ones(2), 7),
    "new_zeros": lambda lib: lib.ones(2, dtype=lib.int64).new_zeros(3),
    "tensor": lambda lib: lib.tensor([[1, 2], [3, 4]]),
    "tensor_float": lambda lib: lib.tensor([1.5, 2]),
    "tensor_bool": lambda lib: lib.tensor([True, False]),
    "tensor_empty": lambda lib: lib.tensor([]),
    "tensor_cast": lambda lib: lib.tensor([1.7, -1.2], dtype=lib.int64),
    "scalar": lambda lib: lib.tensor(3.5),
}


@pytest.mark.parametrize("name", CREATION)
def test_creation(name):
    same(CREATION[name](rl), CREATION[name](torch))


def test_casts():
    x = np.array([1.9, -1.9, 0.0, 300.5])
    for name in ("float", "double", "long", "int", "bool", "half"):
        ours, theirs = getattr(rl.tensor(x), name)(), getattr(torch.tensor(x), name)()
        same(ours.float() if name == "half" else ours, theirs.float() if name == "half" else theirs)
    agree(lambda lib, x: x.float().double() * 2, [x])
    assert rl.tensor(x).to(rl.float64) is not None
    same_type = rl.ones(2)
    assert same_type.to(rl.float32) is same_type


def test_spellings_of_axis():
    x = rl.tensor(numbers((2, 3)))
    assert x.sum(axis=1, keepdims=True).shape == (2, 1)
    assert rl.softmax(x, axis=0).shape == (2, 3)
