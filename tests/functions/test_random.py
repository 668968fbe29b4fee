"""Random numbers: published bits, one stream in every way to run, exact distributions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import ridgeline as rl
from ridgeline.values.philox import rounds, word

# philox4x32-10 in the known answers that Random123 publishes: counter, key, result
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000",
     "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
]  # fmt: skip


@pytest.mark.parametrize("counter, key, wanted", KNOWN)
def test_philox_gives_the_published_words(counter: str, key: str, wanted: str) -> None:
    words = tuple(np.array(int(w, 16), np.uint64) for w in counter.split())
    low, high = (int(w, 16) for w in key.split())
    found = rounds(np.array(low | high << 32, np.uint64), words)  # type: ignore[arg-type]
    assert " ".join(f"{int(w):08x}" for w in found) == wanted


def test_words_of_one_block_and_of_many() -> None:
    key, counter = (np.array(n, np.uint64) for n in (7, 3))
    places = np.arange(6, dtype=np.uint64)
    wanted = [word(key, counter, place) for place in places]
    np.testing.assert_array_equal(word(key, counter, places), wanted)
    np.testing.assert_array_equal(word(key, np.full(6, 3, np.uint64), places[2]), [wanted[2]] * 6)


# every way to draw, at small sizes
DRAWS: dict[str, Callable[[], rl.Tensor]] = {
    "rand": lambda: rl.rand(7),
    "rand float64": lambda: rl.rand(3, dtype=rl.float64),
    "rand bfloat16": lambda: rl.rand(5, dtype=rl.bfloat16),
    "randn": lambda: rl.randn(2, 3),
    "rand_like": lambda: rl.rand_like(rl.ones(3)),
    "randn_like": lambda: rl.randn_like(rl.ones(3)),
    "randint": lambda: rl.randint(-5, 100, (9,)),
    "randint_like": lambda: rl.randint_like(rl.ones(4), 9),
    "randperm": lambda: rl.randperm(11),
    "normal": lambda: rl.normal(rl.tensor([0.0, 5.0]), 2.0),
    "bernoulli": lambda: rl.bernoulli(rl.full((9,), 0.4)),
    "multinomial": lambda: rl.multinomial(rl.tensor([[0.1, 0.2, 0.7], [3.0, 1.0, 1.0]]), 2),
    "multinomial again": lambda: rl.multinomial(rl.tensor([0.1, 0.2, 0.7]), 9, replacement=True),
    "standard_gamma": lambda: rl.standard_gamma(rl.tensor([0.3, 1.0, 7.0])),
    "poisson": lambda: rl.poisson(rl.tensor([0.5, 5.0, 500.0])),
    "uniform_": lambda: rl.empty(5).uniform_(-1, 3),
    "normal_": lambda: rl.empty(5).normal_(1, 2),
    "bernoulli_": lambda: rl.empty(9).bernoulli_(0.3),
    "exponential_": lambda: rl.empty(5).exponential_(2.0),
    "cauchy_": lambda: rl.empty(5).cauchy_(1.0, 2.0),
    "log_normal_": lambda: rl.empty(5).log_normal_(),
    "geometric_": lambda: rl.empty(5).geometric_(0.3),
    "random_": lambda: rl.empty(5).random_(3, 50),
    "dropout": lambda: rl.dropout(rl.ones(12), 0.4),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_one_stream_in_every_way_to_run(name: str) -> None:
    def program() -> tuple[rl.Tensor, rl.Tensor]:
        DRAWS[name]()  # never looked at, but it takes its place in the stream
        return DRAWS[name](), rl.rand(3)

    found = {}
    for way in ("interpreter", "compiled", "eager", "jit"):
        tier = way if way in ("interpreter", "compiled") else "auto"
        with rl.config.override(tier=tier):
            rl.manual_seed(19)
            if way == "eager":
                with rl.eager():
                    values = program()
            else:
                values = rl.jit(program)() if way == "jit" else program()
            found[way] = [v.double().numpy() for v in values]
    for way, (drawn, after) in found.items():
        np.testing.assert_allclose(drawn, found["interpreter"][0], rtol=2e-6, err_msg=way)
        assert after.tolist() == found["interpreter"][1].tolist(), way


def kolmogorov(values: np.ndarray, distribution: Callable[[np.ndarray], np.ndarray]) -> float:
    """The largest distance between the sample's distribution and the exact one, times sqrt(n)."""
    ordered = np.sort(values.astype(np.float64))
    exact, n = distribution(ordered), len(ordered)
    above = (np.arange(1, n + 1) / n - exact).max()
    below = (exact - np.arange(n) / n).max()
    return float(max(above, below) * math.sqrt(n))


def normal_cdf(x: np.ndarray) -> np.ndarray:
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])


def gamma_cdf(shape: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: rl.special.gammainc(rl.full((len(x),), shape, dtype=rl.float64),
                                         rl.tensor(x)).numpy()  # fmt: skip


N = 20000
CONTINUOUS: dict[str, tuple[Callable[[], rl.Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "rand": (lambda: rl.rand(N), lambda x: x),
    "rand float64": (lambda: rl.rand(N, dtype=rl.float64), lambda x: x),
    "uniform_": (lambda: rl.empty(N).uniform_(-2, 3), lambda x: (x + 2) / 5),
    "randn": (lambda: rl.randn(N), normal_cdf),
    "randn float64": (lambda: rl.randn(N, dtype=rl.float64), normal_cdf),
    "normal": (lambda: rl.normal(3.0, 2.0, (N,)), lambda x: normal_cdf((x - 3) / 2)),
    "exponential_": (lambda: rl.empty(N).exponential_(2.0), lambda x: 1 - np.exp(-2 * x)),
    "cauchy_": (lambda: rl.empty(N).cauchy_(1.0, 2.0),
                lambda x: 0.5 + np.arctan((x - 1) / 2) / math.pi),
    "log_normal_": (lambda: rl.empty(N).log_normal_(1.0, 0.5),
                    lambda x: normal_cdf((np.log(x) - 1) / 0.5)),
    "gamma 0.4": (lambda: rl.standard_gamma(rl.full((N,), 0.4)), gamma_cdf(0.4)),
    "gamma 1": (lambda: rl.standard_gamma(rl.ones(N)), gamma_cdf(1.0)),
    "gamma 9": (lambda: rl.standard_gamma(rl.full((N,), 9.0)), gamma_cdf(9.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_distributions(name: str) -> None:
    draw, distribution = CONTINUOUS[name]
    rl.manual_seed(2025)
    values = draw().numpy()
    assert np.isfinite(values).all()
    assert kolmogorov(values, distribution) < 1.63  # the 1% point


@pytest.mark.parametrize("dtype", [rl.float32, rl.float64], ids=str)
def test_normal_neighbours_are_independent(dtype: rl.DType) -> None:
    """They are the two sides of one angle, at one distance."""
    rl.manual_seed(4)
    count = 1 << 16
    values = rl.randn(2 * count, dtype=dtype).numpy().astype(np.float64)
    for of in (np.array, np.abs, np.square):
        found = np.corrcoef(of(values[::2]), of(values[1::2]))[0, 1]
        assert abs(found) < 3 / math.sqrt(count)
    assert rl.randn(1, dtype=dtype).shape == (1,) and rl.randn(0, dtype=dtype).shape == (0,)


def _poisson(rate: float) -> Callable[[int], float]:
    return lambda k: math.exp(k * math.log(rate) - rate - math.lgamma(k + 1))


DISCRETE: dict[str, tuple[Callable[[], rl.Tensor], Callable[[int], float], range]] = {
    "randint": (lambda: rl.randint(-2, 5, (N,)), lambda k: 1 / 7, range(-2, 5)),
    "random_": (lambda: rl.zeros(N, dtype=rl.int8).random_(6), lambda k: 1 / 6, range(6)),
    "bernoulli": (lambda: rl.bernoulli(rl.full((N,), 0.3)), lambda k: (0.7, 0.3)[k], range(2)),
    "bernoulli bfloat16": (lambda: rl.zeros(N, dtype=rl.bfloat16).bernoulli_(0.301),
                           lambda k: (0.699, 0.301)[k], range(2)),
    "geometric_": (lambda: rl.empty(N).geometric_(0.3), lambda k: 0.3 * 0.7 ** (k - 1),
                   range(1, 20)),
    "poisson 0.7": (lambda: rl.poisson(rl.full((N,), 0.7)), _poisson(0.7), range(6)),
    "poisson 9.5": (lambda: rl.poisson(rl.full((N,), 9.5)), _poisson(9.5), range(1, 21)),
    "poisson 60": (lambda: rl.poisson(rl.full((N,), 60.0)), _poisson(60.0), range(38, 84)),
    "multinomial": (lambda: rl.multinomial(rl.tensor([1.0, 0.0, 2.0, 7.0]), N, True),
                    lambda k: (0.1, 0.0, 0.2, 0.7)[k], range(4)),
    "first without replacement": (
        lambda: rl.multinomial(rl.tensor([[1.0, 2.0, 7.0]]).expand(N, 3), 2)[:, 0],
        lambda k: (0.1, 0.2, 0.7)[k], range(3)),
    "second without replacement": (
        lambda: rl.multinomial(rl.tensor([[1.0, 2.0, 7.0]]).expand(N, 3), 2)[:, 1],
        lambda k: (0.2 / 8 + 0.7 / 3, 0.1 * 2 / 9 + 0.7 * 2 / 3, 0.1 * 7 / 9 + 0.2 * 7 / 8)[k],
        range(3)),
    "first of randperm": (
        lambda: rl.stack([rl.randperm(4) for _ in range(400)])[:, 0], lambda k: 0.25, range(4)),
}  # fmt: skip


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_distributions(name: str) -> None:
    draw, probability, values = DISCRETE[name]
    rl.manual_seed(7)
    drawn = draw().double().numpy()
    total, degrees = 0.0, -1
    for k in values:
        expected = probability(k) * len(drawn)
        found = float((drawn == k).sum())
        if expected == 0:
            assert found == 0
            continue
        total += (found - expected) ** 2 / expected
        degrees += 1
    # chi-squared, whose mean is its degrees of freedom and whose variance is twice that
    assert total < degrees + 3.2 * math.sqrt(2 * degrees) + 1
    assert np.array_equal(drawn, np.rint(drawn))


def test_moments_of_large_rates() -> None:
    rl.manual_seed(1)
    drawn = rl.poisson(rl.full((N,), 1e5, dtype=rl.float64)).numpy()
    assert abs(drawn.mean() - 1e5) < 4 * math.sqrt(1e5 / N)
    assert abs(drawn.var() / 1e5 - 1) < 4 * math.sqrt(2 / N)


def test_permutations_and_samples_hold_each_element_once() -> None:
    rl.manual_seed(0)
    assert sorted(rl.randperm(100).tolist()) == list(range(100))
    assert rl.randperm(0).shape == (0,) and rl.randperm(4, dtype=rl.int32).dtype is rl.int32
    rows = rl.multinomial(rl.rand(5, 8) + 0.1, 8)
    assert [sorted(row) for row in rows.tolist()] == [list(range(8))] * 5


def test_generators() -> None:
    generator = rl.Generator(device="cpu").manual_seed(3)
    assert generator.device == "cpu" and generator.initial_seed() == 3
    state = generator.get_state()
    copy = generator.clone_state()
    first = rl.randn(4, generator=generator).tolist()
    assert rl.randn(4, generator=copy).tolist() == first
    assert rl.randn(4, generator=generator).tolist() != first
    generator.set_state(state)
    assert rl.randn(4, generator=generator).tolist() == first
    assert rl.Generator().initial_seed() != rl.Generator().initial_seed()
    before = rl.get_rng_state()
    assert rl.rand(3, generator=generator).shape == (3,) and rl.get_rng_state() == before


def test_the_default_generator_can_be_kept_and_put_back() -> None:
    rl.manual_seed(5)
    state = rl.get_rng_state()
    first = rl.rand(4).tolist()
    rl.set_rng_state(state)
    assert rl.rand(4).tolist() == first and rl.initial_seed() == 5
    from ridgeline.random import fork_rng

    with fork_rng():
        inside = rl.rand(4).tolist()
    assert rl.rand(4).tolist() == inside


def test_seeded_layers_are_equal() -> None:
    from ridgeline import nn

    weights = []
    for _ in range(2):
        rl.manual_seed(9)
        weights.append(nn.Linear(3, 4).weight.tolist())
    assert weights[0] == weights[1]


def test_no_gradient_passes_through_a_draw() -> None:
    p = rl.full((3,), 0.5, requires_grad=True)
    assert rl.bernoulli(p).sum().item() in (0, 1, 2, 3)
    mean = rl.zeros(3, requires_grad=True)
    assert not rl.normal(mean, 1.0).requires_grad or rl.autograd.grad(
        rl.normal(mean, 1.0).sum(), mean, allow_unused=True)[0] is None  # fmt: skip


@pytest.mark.parametrize("call, message", [
    (lambda: rl.Generator("tpu"), "no device"),
    (lambda: rl.Generator().set_state("x"), "seed and a place"),
    (lambda: rl.manual_seed(1.5), "seed is an int"),
    (lambda: rl.rand(3, dtype=rl.int64), "floating type"),
    (lambda: rl.randint(5, 5, (2,)), "low < high"),
    (lambda: rl.randint("a", (2,)), "integers"),
    (lambda: rl.randperm(-1), "at least 0"),
    (lambda: rl.bernoulli(rl.ones(2), 1.5), "0…1"),
    (lambda: rl.bernoulli(rl.ones(2, dtype=rl.int64)), "floating"),
    (lambda: rl.multinomial(rl.ones(2, 2, 2), 1), "one row or several"),
    (lambda: rl.multinomial(rl.tensor([1.0, -1.0]), 1), "at least 0"),
    (lambda: rl.multinomial(rl.tensor([1.0, 0.0]), 2).tolist(), "above 0: 1 is not ≥ 2"),
    (lambda: rl.multinomial(rl.ones(3), 0), "at least 1"),
    (lambda: rl.poisson(rl.tensor([-1.0])), "at least 0"),
    (lambda: rl.empty(3).exponential_(-1.0), "above 0"),
    (lambda: rl.empty(3).geometric_(0.0), "above 0"),
    (lambda: rl.normal(0.0, 1.0), "size"),
    (lambda: rl.normal(0.0, -1.0, (2,)), "at least 0"),
])  # fmt: skip
def test_wrong_arguments(call: Callable[[], object], message: str) -> None:
    with pytest.raises(rl.RidgelineError, match=message):
        call()


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 1, exclude_min=True, exclude_max=True), st.integers(0, 2**63))
@example(1e-50, 0)  # no float32 is as small
@example(1 - 2.0**-40, 0)  # and none below 1 as large
@example(2.0**-24, 3)
def test_dropout_keeps_where_a_uniform_number_is_at_least_p(p: float, seed: int) -> None:
    rl.manual_seed(seed)
    found = rl.dropout(rl.ones(4096), p).numpy()
    rl.manual_seed(seed)
    kept = rl.rand(4096).numpy() >= np.float32(p)
    assert np.array_equal(found, np.where(kept, np.float32(1 / (1 - p)), np.float32(0)))
