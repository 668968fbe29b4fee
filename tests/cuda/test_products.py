"""Matrix products recognised in the graph: what cuBLASLt is told gives what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.runtime.cuda import cublaslt

from .fake_code import FakeCode
from .fake_libraries import FakeCublasLt, Launches

RNG = np.random.default_rng(0)
Function = Callable[..., rl.Tensor]
NARROW = (rl.bfloat16, rl.float16)


@pytest.fixture
def products(fake_code: FakeCode, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launches]:
    """GPUs that are not there, with a cuBLASLt that computes; what it was asked for."""
    made = FakeCublasLt(Launches(), fake_code.driver)
    monkeypatch.setattr(cublaslt, "library", lambda: made)
    yield made.launches


def values(*shape: int) -> np.ndarray:
    """Small integers: sums of their products are exact in every type."""
    return RNG.integers(-2, 3, shape).astype(np.float32)


def computed(
    function: Function, shapes: list[tuple[int, ...]], dtype: rl.DType = rl.float32
) -> None:
    """The result of a jitted function is that of the same function on the CPU."""
    arrays = [values(*shape) for shape in shapes]
    wanted = function(*(rl.tensor(a).to(dtype) for a in arrays))
    got = rl.jit(function)(*(rl.tensor(a, device="cuda:0").to(dtype) for a in arrays))
    assert got.dtype is wanted.dtype
    np.testing.assert_array_equal(got.cpu().float().numpy(), wanted.float().numpy())


_CASES: dict[str, tuple[Function, list[tuple[int, ...]], int]] = {
    "plain": (lambda a, b: a @ b, [(200, 250), (250, 300)], 1),
    "linear": (lambda a, w: rl.nn.functional.linear(a, w), [(200, 250), (300, 250)], 1),
    "left transposed": (lambda a, b: a.T @ b, [(250, 200), (250, 300)], 1),
    "both transposed": (lambda a, b: a.T @ b.T, [(250, 200), (300, 250)], 1),
    "a part of columns": (lambda a, b: a[:, 50:300] @ b, [(200, 350), (250, 300)], 1),
    "every other row": (lambda a, b: a[1::2] @ b, [(400, 250), (250, 300)], 1),
    "every other column": (lambda a, b: a[:, ::2] @ b, [(200, 500), (250, 300)], 1),
    "from behind": (lambda a, b: a.flip(0) @ b, [(200, 250), (250, 300)], 1),
    "batched linear": (
        lambda a, w: rl.nn.functional.linear(a, w), [(4, 50, 250), (300, 250)], 1
    ),
    "batches": (lambda a, b: a @ b.mT, [(2, 3, 150, 100), (2, 3, 200, 100)], 1),
    "heads inside rows": (
        lambda x: (
            x[:, :, :200].reshape(2, 250, 2, 100).transpose(1, 2)
            @ x[:, :, 200:400].reshape(2, 250, 2, 100).permute(0, 2, 3, 1)
        ),
        [(2, 250, 600)], 2,
    ),
    "heads back": (lambda a, b: a @ b.transpose(1, 2), [(2, 3, 100, 150), (2, 150, 3, 200)], 2),
    "one row": (lambda a, b: a @ b, [(1, 3000), (3000, 3000)], 1),
    "few rows": (lambda a, w: rl.nn.functional.linear(a, w), [(8, 1024), (1024, 1024)], 1),
    "outer": (lambda a, b: rl.einsum("ij,ik->jk", a, b), [(300, 200), (300, 250)], 1),
    "to another order": (
        lambda a, b: rl.einsum("bmk,bkn->mbn", a, b), [(4, 60, 300), (4, 300, 200)], 1
    ),
    "with itself": (lambda a: a @ a.T, [(300, 300)], 1),
    "with a bias": (
        lambda a, w, b: rl.nn.functional.linear(a, w, b), [(200, 250), (300, 250), (300,)], 1
    ),
    "of a sum": (lambda a, b: (a + 1) @ (b * 2), [(200, 250), (250, 300)], 1),
    "of padding": (
        lambda a, b: rl.nn.functional.pad(a, (0, 0, 1, 1)) @ b, [(198, 250), (250, 300)], 1
    ),
    "of parts": (lambda a, b, c: rl.cat([a, b]) @ c, [(90, 250), (110, 250), (250, 300)], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", _CASES)
def test_views_say_it_all(products: Launches, name: str) -> None:
    function, shapes, calls = _CASES[name]
    computed(function, shapes)
    assert len(products.lines) == calls


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
def test_widened_operands_are_read_as_they_are(products: Launches, dtype: rl.DType) -> None:
    """In 16 bits they are half the bytes, and what tensor cores multiply."""
    kind = {rl.float16: 2, rl.bfloat16: 14}[dtype]
    forms: list[Function] = [
        lambda a, b: a.float() @ b.float(),
        lambda a, b: a.float()[:, 16:48] @ b.float().T[16:48],
        lambda a, b: (a.T.float()[8:] @ b.T[:, 4:].float()) if a.shape[0] == 64 else a.float(),
    ]
    for form in forms:
        products.lines.clear()
        computed(form, [(64, 64), (64, 64)], dtype)
        (line,) = products.lines
        assert line.count(f"[{kind}, ") == 2 and "[0, " in line  # two operands, and the result


def test_narrow_products_are_rounded_once(products: Launches) -> None:
    computed(lambda a, b: a @ b, [(48, 64), (64, 56)], rl.bfloat16)
    assert len(products.lines) == 1


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda a, b: a @ b, [(40, 50), (50, 60)]),  # too small to pay
        (lambda a, b: rl.einsum("mij,nji->mn", a, b), [(40, 30, 20), (40, 20, 30)]),
        (lambda x, w: rl.nn.functional.conv2d(x, w), [(2, 4, 16, 16), (4, 4, 3, 3)]),
    ],
)
def test_what_is_no_product_is_left_alone(
    products: Launches, function: Function, shapes: list[tuple[int, ...]]
) -> None:
    computed(function, shapes)
    assert not products.lines


def test_training_with_products(products: Launches) -> None:
    """Gradients of a layer, with what is computed again for them, are the CPU's."""
    found = {}
    for place in ("cpu", "cuda:0"):
        x, w, v = (
            rl.tensor(a, device=place).requires_grad_()
            for a in (np.tanh(a) for a in (WIDE, TALL, TALL.T.copy()))
        )

        @rl.jit
        def step(x: rl.Tensor, w: rl.Tensor, v: rl.Tensor) -> list[rl.Tensor]:
            out = rl.relu(x @ w).tanh() @ v
            return list(rl.autograd.grad((out * out).mean(), [x, w, v]))

        found[place] = [part.cpu().numpy() for part in step(x, w, v)]
    assert len(products.lines) >= 4
    for got, wanted in zip(found["cuda:0"], found["cpu"]):
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-7)


WIDE, TALL = values(210, 200), values(200, 220)


FEW = [(1, 264, 1024), (2, 512, 1030), (4, 256, 2000)]
LEFT = [(8, 264, 1024), (1, 268, 1024), (1, 128, 2048), (3, 512, 512)]


@pytest.mark.parametrize(("rows", "depth", "columns"), [*FEW, *LEFT])
def test_few_rows_are_a_kernel_of_ours(
    products: Launches, rows: int, depth: int, columns: int
) -> None:
    """Of 16-bit weights that lie along the depth; with what follows in the same kernel."""
    x, w, b = values(rows, depth), values(columns, depth), values(columns)
    given = [rl.tensor(a, device="cuda:0", dtype=rl.bfloat16) for a in (x, w, b)]
    function = rl.jit(lambda x, w, b: rl.nn.functional.silu(rl.nn.functional.linear(x, w, b)))
    found = function(*given).cpu().float().numpy().astype(np.float64)
    exact = [t.cpu().float().numpy().astype(np.float64) for t in given]
    linear = exact[0] @ exact[1].T + exact[2]
    wanted = linear / (1 + np.exp(-linear))
    assert np.linalg.norm(found - wanted) < 4e-3 * np.linalg.norm(wanted)
    assert (not products.lines) == ((rows, depth, columns) in FEW)


def test_the_library_may_be_asked_for_few_rows(products: Launches) -> None:
    x, w = (
        rl.tensor(values(*s), device="cuda:0", dtype=rl.bfloat16) for s in ((2, 256), (1024, 256))
    )
    with rl.config.override(products="library"):
        rl.jit(lambda x, w: x @ w.T)(x, w).cpu().numpy()
    assert products.lines
    products.lines.clear()
    turned = rl.tensor(values(256, 1024), device="cuda:0", dtype=rl.bfloat16)
    rl.jit(lambda x, w: x @ w)(x, turned).cpu().numpy()  # lies along its columns
    assert products.lines
