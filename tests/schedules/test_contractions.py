"""Contractions of every transposition and shape, and the schedules chosen for many machines."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.codegen.llvm.addresses import AHEAD, after, ahead_of
from ridgeline.codegen.llvm.emit import module_text
from ridgeline.compiler import CompiledKernel, lower_graph
from ridgeline.functions.linear import einsum
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.loops import ir
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.ir import Alloc, For, Load, Store, Var, statements
from ridgeline.loops.text.printer import print_kernel
from ridgeline.ops.contract import ContractAttrs, axis, contract
from ridgeline.schedules import panels
from ridgeline.schedules.machine import Machine
from tests.loops.validation import run_native

WIDE = Machine(64, 32, 2, 32 << 10, 1 << 20, 32 << 20)
NARROW = Machine(32, 16, 2, 32 << 10, 512 << 10, 16 << 20)
MANY = Machine(64, 32, 16, 48 << 10, 2 << 20, 64 << 20)
FORMS = {"NN": "ik,kj->ij", "NT": "ik,jk->ij", "TN": "ki,kj->ij", "TT": "ki,jk->ij"}


def scheduled(form: str, left: tuple[int, ...], right: tuple[int, ...], machine: Machine) -> (
    tuple[CompiledKernel, list[Node]]
):  # fmt: skip
    """The one kernel of a contraction, as scheduled for a machine."""
    inputs = [leaf(TensorType(shape, dtypes.float32)) for shape in (left, right)]
    (compiled,) = lower_graph(Graph([einsum(form, *inputs)], inputs), machine).kernels
    return compiled, inputs


def shapes(form: str, m: int, n: int, k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    sizes = {"i": m, "j": n, "k": k}
    left, right = form.split("->")[0].split(",")
    return tuple(sizes[c] for c in left), tuple(sizes[c] for c in right)


@pytest.mark.parametrize("kind,machine", [
    ("NT", WIDE), ("NT", NARROW),
])  # fmt: skip
def test_packed_panels_mean_the_plain_loops(
    kind: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panels, "_LEAST_STRIP", 64)
    monkeypatch.setattr(panels, "_LEAST_REUSE", 2)
    monkeypatch.setattr(panels, "_LEAST_BLOCK", 8)
    form = FORMS[kind]
    left, right = shapes(form, 8, 36, 17)
    compiled, inputs = scheduled(form, left, right, machine)
    source = np.random.default_rng(0)
    arrays = [source.integers(-4, 5, shape).astype(np.float32) for shape in (left, right)]
    order = dict(zip(inputs, arrays))
    slots = compiled.group.loops.slots
    result = np.zeros((8, 36), np.float32)
    memory = {i: order.get(node, result) for i, node in enumerate(slots)}
    assert "_read[" in print_kernel(compiled.kernel)
    interpret(compiled.kernel, memory, {}, order="shuffled")
    np.testing.assert_array_equal(result, np.einsum(form, *arrays))


def test_an_operand_in_the_wrong_order_is_turned_in_registers() -> None:
    compiled, _ = scheduled(FORMS["NT"], (512, 768), (3072, 768), WIDE)
    kinds = {s.name: s.kind for s in statements(compiled.kernel.body) if isinstance(s, For)}
    assert kinds["k.side"] == "transpose"
    text = module_text([compiled.kernel], 64)
    assert "shufflevector" in text and "masked.gather" not in text
    copy = (
        "b1_read[k.square * 16 + k.side, n.1.square * 16 + n.1] = "
        "b1[n.0 * 64 + (n.1.square * 16 + n.1), k.square * 16 + k.side]"
    )
    loops = print_kernel(compiled.kernel)
    assert copy in loops
    assert loops.index("for n.1.square < 4") < loops.index("for k.square < 48"), "few lines at once"


@pytest.mark.parametrize("m,n,k", [(4096, 16, 1024), (64, 64, 16384), (512, 64, 512)])
def test_what_lies_in_strips_already_is_not_packed(m: int, n: int, k: int) -> None:
    compiled, _ = scheduled(FORMS["NN"], (m, k), (k, n), WIDE)
    text = print_kernel(compiled.kernel)
    assert "_read[" not in text and f"for n < {n} vector" in text


@pytest.mark.parametrize("size", [256, 512, 1024, 2048, 4096])
def test_every_core_has_an_equal_share(size: int) -> None:
    compiled, _ = scheduled(FORMS["NN"], (size, size), (size, size), MANY)
    tasks, body = 1, compiled.kernel.body
    while isinstance(body, For) and body.kind == "parallel":
        tasks, body = tasks * int(body.extent.value), body.body  # type: ignore[attr-defined]
    rounds = -(-tasks // MANY.threads)
    assert rounds * MANY.threads / tasks < 1.15


def test_a_matrix_read_once_is_read_from_end_to_end() -> None:
    compiled, _ = scheduled(FORMS["NN"], (1, 4096), (4096, 4096), WIDE)
    text = print_kernel(compiled.kernel)
    assert "acc0: float32[128, 1, 16] reg" in text, "the sums of a run stay in the cache"
    assert text.index("for k.0 < 512 reduce:") < text.index("for k.1 < 8 reduce unroll:")


def test_loops_that_walk_all_memory_as_one_are_one() -> None:
    compiled, _ = scheduled("oc,chw->ohw", (128, 64), (64, 7, 7), WIDE)
    loops = {s.name for s in statements(compiled.kernel.body) if isinstance(s, For)}
    assert any(name.startswith("n0n1") for name in loops), loops


def test_the_tile_of_wide_elements_fits_the_registers() -> None:
    inputs = [leaf(TensorType((256, 256), dtypes.float64)) for _ in range(2)]
    (compiled,) = lower_graph(Graph([einsum("ik,kj->ij", *inputs)], inputs), WIDE).kernels
    found = [s for s in statements(compiled.kernel.body) if isinstance(s, Alloc)]
    accumulators = [b.buffer for b in found if b.buffer.scope == "reg"]
    elements = prod(int(size.value) for size in accumulators[0].shape)  # type: ignore[union-attr]
    assert 16 <= elements // WIDE.lanes(8) < WIDE.registers


@pytest.mark.parametrize("stride,dilation,groups", [(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 1, 4)])
def test_convolutions_and_both_gradients_are_exact_on_small_integers(
    stride: int, dilation: int, groups: int
) -> None:
    torch = pytest.importorskip("torch")
    source = np.random.default_rng(3)
    image = source.integers(-3, 4, (2, 32, 14, 14)).astype(np.float32)
    weight = source.integers(-3, 4, (48, 32 // groups, 3, 3)).astype(np.float32)
    settings = {"stride": stride, "dilation": dilation, "padding": 1, "groups": groups}
    a, b = (torch.from_numpy(v).requires_grad_() for v in (image, weight))
    expected = torch.nn.functional.conv2d(a, b, **settings)
    outer = source.integers(-3, 4, expected.shape).astype(np.float32)
    expected.backward(torch.from_numpy(outer))

    @rl.jit
    def compute(x: rl.Tensor, w: rl.Tensor, g: rl.Tensor) -> tuple[rl.Tensor, ...]:
        result = rl.nn.functional.conv2d(x, w, **settings)
        return result, *rl.autograd.grad([result], [x, w], [g])

    x, w = (rl.tensor(v, requires_grad=True) for v in (image, weight))
    for found, wanted in zip(compute(x, w, rl.tensor(outer)), (expected, a.grad, b.grad)):
        np.testing.assert_array_equal(found.detach().numpy(), wanted.detach().numpy())


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(FORMS)), *[st.sampled_from([1, 2, 7, 16, 33, 64, 130, 257])] * 3)
def test_products_are_exact_on_small_integers(kind: str, m: int, n: int, k: int) -> None:
    left, right = shapes(FORMS[kind], m, n, k)
    source = np.random.default_rng(m * n + k)
    arrays = [source.integers(-4, 5, shape).astype(np.float32) for shape in (left, right)]
    compute = rl.jit(lambda a, b: rl.einsum(FORMS[kind], a, b))
    result = compute(*map(rl.tensor, arrays)).numpy()
    np.testing.assert_array_equal(result, np.einsum(FORMS[kind], *arrays))


@pytest.mark.parametrize("form,left,right", [
    ("ik,jk->ij", (512, 768), (1024, 768)), ("ik,kj->ij", (1, 2048), (2048, 1024)),
    ("ik,kj->ij", (3, 1024), (1024, 1536)), ("bik,bjk->bij", (6, 128, 64), (6, 128, 64)),
    ("bki,bkj->bij", (4, 100, 60), (4, 100, 70)), ("ki,jk->ij", (500, 300), (350, 500)),
])  # fmt: skip
def test_large_products_stay_within_the_error_of_their_length(
    form: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    source = np.random.default_rng(1)
    arrays = [source.standard_normal(shape, np.float32) for shape in (left, right)]
    result = rl.jit(lambda a, b: rl.einsum(form, a, b))(*map(rl.tensor, arrays)).numpy()
    exact = np.einsum(form, *(a.astype(np.float64) for a in arrays))
    scale = np.einsum(form, *(np.abs(a.astype(np.float64)) for a in arrays))
    depth = left[form.index("k")]
    assert np.all(np.abs(result - exact) <= 2.0**-24 * depth * scale)


def test_columns_of_a_large_matrix_are_asked_for_ahead() -> None:
    down, _ = scheduled(FORMS["TN"], (2048, 1536), (2048, 384), WIDE)
    assert "llvm.prefetch" in module_text([down.kernel], 64)
    along, _ = scheduled(FORMS["NT"], (1536, 2048), (384, 2048), WIDE)
    assert "llvm.prefetch" not in module_text([along.kernel], 64)
    near, _ = scheduled(FORMS["TN"], (256, 96), (256, 96), WIDE)
    assert "llvm.prefetch" not in module_text([near.kernel], 64)


def test_every_line_of_a_step_is_asked_for_once() -> None:
    loop = For("k", ir.index(256), ir.Seq(()))
    buffer = ir.Buffer("x", (ir.index(1024), ir.index(1024)), dtypes.float32, slot=0)
    total = ir.Buffer("y", (ir.index(40),), dtypes.float32, slot=1)
    k, n = Var.make("k"), Var.make("n")
    read = Load.make(buffer, (k, n + ir.index(3)))
    lanes = For("n", ir.index(40), Store(total, (n,), read), kind="vector")
    (found,) = ahead_of(replace(loop, body=lanes), 1 << 20)
    assert found.offsets == (0, 64, 128, 156)
    assert found.load.index == (k + ir.index(AHEAD), ir.index(3))
    assert not list(ahead_of(replace(loop, extent=ir.index(100), body=lanes), 1 << 20))


@pytest.mark.parametrize("row,read,asked", [
    (64, 4, (0, 12)), (64, 32, (0, 64, 124)), (64, 64, None), (32, 4, None), (384, 6, (0, 20)),
])  # fmt: skip
def test_lines_that_follow_one_another_are_not_asked_for(
    row: int, read: int, asked: tuple[int, ...] | None
) -> None:
    """A loop down `read` columns of rows of `row` numbers."""
    buffer = ir.Buffer("x", (ir.index(1 << 14), ir.index(row)), dtypes.float32, slot=0)
    total = ir.Buffer("y", (ir.index(64),), dtypes.float32, slot=1)
    k, n = Var.make("k"), Var.make("n")
    lanes = For("n", ir.index(read), Store(total, (n,), Load.make(buffer, (k, n))), kind="vector")
    found = list(ahead_of(For("k", ir.index(1 << 14), lanes), 1 << 19))
    assert [f.offsets for f in found] == ([] if asked is None else [asked])


def test_what_a_sum_is_joined_with_is_asked_for_before_it() -> None:
    far = ir.Buffer("x", (ir.index(1024), ir.index(1024)), dtypes.float32, slot=0)
    near = ir.Buffer("z", (ir.index(1024),), dtypes.float32, slot=1)
    total = ir.Buffer("y", (ir.index(2), ir.index(32)), dtypes.float32, "reg")
    j, m, n = map(Var.make, "jmn")
    read = Load.make(far, (j + m, n)) + Load.make(near, (n,))
    lanes = For("n", ir.index(32), Store(total, (m, n), read), kind="vector")
    behind = For("m", ir.index(2), lanes, kind="unroll")
    loop = For("k", ir.index(64), ir.Reduce((total,), (), "sum", (ir.const(1, dtypes.float32),)))
    (found,) = after(loop, [behind, behind], 1 << 20)
    assert found.load.index == (j, ir.index(0))
    assert found.offsets == (0, 64, 4096, 4160, 4220)
    assert not list(after(replace(loop, extent=ir.index(63)), [behind], 1 << 20))
    assert not list(after(loop, [replace(behind, kind="serial")], 1 << 20))


@pytest.mark.parametrize("channels,result,order", [
    (256, 64, ("b", "p", "n")), (64, 256, ("b", "n", "p")),
])  # fmt: skip
def test_what_no_cache_holds_is_read_once(
    channels: int, result: int, order: tuple[str, ...]
) -> None:
    """Images under a 1×1 window: the larger of operand and result decides what runs outside."""
    given = [
        leaf(TensorType(shape, dtypes.float32))
        for shape in ((8, channels, 3136), (result, channels))
    ]
    maps = tuple(map(axis, (0, 3, 2))), tuple(map(axis, (1, 3)))
    product = contract(*given, ContractAttrs((8, result, 3136, channels), (0, 1, 2), *maps))
    (compiled,) = lower_graph(Graph([product], given), WIDE).kernels
    tasks = []
    body = compiled.kernel.body
    while isinstance(body, For) and body.kind == "parallel":
        tasks.append(body.name.partition(".")[0])
        body = body.body
    names = {"m0": "b", "m1": "p", "n": "n"}
    assert tuple(names[t] for t in tasks) == order


@pytest.mark.parametrize("m,n,k,packed", [
    (256, 256, 256, False),
    (1024, 1024, 1024, True),  # rows of 4096 bytes: all fall on a few sets of the cache
    (256, 264, 1024, True),  # rows that are no whole lines
    (512, 576, 1024, True),  # a strip that takes too much of the cache
    (4096, 256, 256, True),  # one that many tiles share
])  # fmt: skip
def test_a_strip_is_packed_unless_it_lies_well(m: int, n: int, k: int, packed: bool) -> None:
    compiled, _ = scheduled(FORMS["NN"], (m, k), (k, n), WIDE)
    assert ("_read[" in print_kernel(compiled.kernel)) == packed


def test_no_tile_takes_steps_of_a_batch_that_share_nothing() -> None:
    """Rows of 18 heads' parts, as in the backward pass of attention: one head at a time."""
    compiled, _ = scheduled("bhki,bkhj->bhij", (8, 6, 256, 256), (8, 256, 6, 64), WIDE)
    unrolled = {s.name for s in ir.statements(compiled.kernel.body) if isinstance(s, For)
                and s.kind == "unroll"}  # fmt: skip
    assert {name.partition(".")[0] for name in unrolled} == {"m"}


@pytest.mark.parametrize("kind,m,n,k", [("NT", 14, 32, 96), ("NT", 12, 32, 80)])
def test_strips_that_no_cache_holds_are_packed_in_pieces(
    kind: str, m: int, n: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("STRIP", 64), ("REUSE", 2), ("BLOCK", 8), ("PIECE", 8)):
        monkeypatch.setattr(panels, f"_LEAST_{name}", value)
    small = replace(WIDE, l2_bytes=8 << 10)
    left, right = shapes(FORMS[kind], m, n, k)
    compiled, inputs = scheduled(FORMS[kind], left, right, small)
    text = print_kernel(compiled.kernel)
    assert "_read[" in text and "acc0_write[" in text
    source = np.random.default_rng(0)
    arrays = [source.integers(-4, 5, shape).astype(np.float32) for shape in (left, right)]
    order = dict(zip(inputs, arrays))
    result = np.zeros((m, n), np.float32)
    memory = {i: order.get(node, result) for i, node in enumerate(compiled.group.loops.slots)}
    native = run_native(compiled.kernel, memory)
    wanted = np.einsum(FORMS[kind], *arrays)
    slot = next(i for i, node in enumerate(compiled.group.loops.slots) if node not in order)
    np.testing.assert_array_equal(native[slot], wanted)
    if k == 80:  # an uneven number of pieces
        interpret(compiled.kernel, memory, {}, order="shuffled")
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize(
    "equation", ["dc,bae,e,bdc->a", "ab,c,abc->c", "i,j,ijk,k->ij", "abc,d,abcd->ab", "a,b,c->abc"]
)
def test_products_that_sum_nothing_among_others(equation: str) -> None:
    """An outer product in a row of contractions gives no row of its own to fold."""
    sizes = dict(zip("abcdeijk", (3, 4, 5, 2, 6, 3, 4, 5)))
    rng = np.random.default_rng(0)
    operands = equation.split("->")[0].split(",")
    arrays = [rng.integers(-3, 4, [sizes[c] for c in o]).astype(np.float32) for o in operands]
    with rl.config.override(tier="compiled"):
        found = rl.einsum(equation, *[rl.tensor(a) for a in arrays]).numpy()
    np.testing.assert_array_equal(found, np.einsum(equation, *arrays))
