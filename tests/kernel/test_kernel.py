"""`rl.loops`: one expression as loops that a user schedules by hand."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.errors import RidgelineError, ShapeError
from ridgeline.kernel import LoopsError, roofline
from ridgeline.loops.schedule import ScheduleError
from ridgeline.record.captures import CaptureError
from ridgeline.runtime.limits import BusyMachineError, Limits


def operands(m: int, k: int, n: int) -> tuple[rl.Tensor, rl.Tensor, rl.Tensor]:
    rng = np.random.default_rng(0)
    arrays = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (n,)))
    x, w, b = map(rl.tensor, arrays)
    return x, w, b


@pytest.mark.parametrize("shape", [(12, 20, 32), (37, 50, 41)], ids=["even", "ragged"])
def test_a_matrix_product_scheduled_by_hand(shape: tuple[int, int, int]) -> None:
    x, w, b = operands(*shape)
    k = rl.loops(lambda x, w, b: rl.gelu(x @ w + b), x, w, b)
    k = k.split("n", 16).split("m", 6).reorder("m.0", "n.0", "k", "m.1", "n.1")
    k = k.unroll("m.1").vectorize("n.1").parallel("m.0")
    assert "for m.0" in str(k) and "define void" in k.source()
    found = k(x, w, b)
    assert isinstance(found, rl.Tensor)
    expected = rl.gelu(x @ w + b).numpy()
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)
    m, depth, n = shape
    assert k.bytes == 4 * (m * depth + depth * n + n + m * n)
    assert k.flops == 2 * m * n * depth + 6 * m * n  # two sums, three products, erf
    assert k.intensity == k.flops / k.bytes
    assert "<pre>" in k._repr_html_() and "&lt;" in k._repr_html_()


def test_packing_and_a_pipeline_by_hand() -> None:
    x, w, b = operands(24, 40, 48)
    k = rl.loops(lambda x, w, b: x @ w + b, x, w, b)
    k = k.tile(m=6, n=16).split("k", 8)
    k = k.reorder("n.0", "m.0", "k.0", "k.1", "m.1", "n.1").unroll("m.1").vectorize("n.1")
    k = k.cache_read("b1", "k.1", "k.1", "n.1").pipeline("k.0").parallel("n.0")
    np.testing.assert_allclose(k(x, w, b).numpy(), (x @ w + b).numpy(), rtol=1e-5, atol=1e-5)  # type: ignore[union-attr]
    plain = rl.loops(lambda x, w, b: x @ w + b, x, w, b)
    assert plain.replay(k.trace).kernel == k.kernel


def test_logsumexp_in_one_pass() -> None:
    x = rl.tensor(np.random.default_rng(1).standard_normal((5, 1000)).astype(np.float32))
    k = rl.loops(lambda x: rl.logsumexp(x, 1), x)
    one_pass = k.split("c", 128).online("c.0").rfactor("c.1").vectorize("c.1").parallel("r")
    expected = rl.logsumexp(x, 1).numpy()
    np.testing.assert_allclose(one_pass(x).numpy(), expected, rtol=1e-6)  # type: ignore[union-attr]
    assert one_pass.flops == k.flops


def test_the_roofline_of_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = Limits(1e10, 1e11, "10 GB/s copied, 100 GFLOP/s, measured")
    monkeypatch.setattr(roofline, "limits", lambda place, float64: quiet)
    x, w, b = operands(64, 64, 64)
    roof = rl.loops(lambda x, w, b: x @ w + b, x, w, b).default().roofline()
    assert roof.flops == 2 * 64**3 + 64**2 and roof.bytes == 4 * (3 * 64**2 + 64)
    assert roof.operations == {"mul": 64**3, "add": 64**3 + 64**2}
    assert roof.bound == "compute" and roof.seconds == roof.flops / 1e11
    assert roof.moved["global"] >= roof.bytes
    text = str(roof)
    assert "exact" in text and "measured" in text and "bound by" in text
    busy = dataclasses.replace(roof, limits=BusyMachineError("it was busy"))
    assert "it was busy" in str(busy) and "bound by" not in str(busy)
    with pytest.raises(BusyMachineError):
        print(busy.seconds)


def test_refusals_name_the_reason_and_change_nothing() -> None:
    x, w, b = operands(8, 8, 8)
    k = rl.loops(lambda x, w, b: x @ w + b, x, w, b)
    with pytest.raises(ScheduleError, match="depend on one another"):
        k.parallel("k")
    with pytest.raises(LoopsError, match="2 kernels"):
        rl.loops(lambda x, w, b: rl.cumsum(x @ w, 0), x, w, b)
    with pytest.raises(LoopsError, match="takes 3 tensors"):
        k(x, w)


def test_axes_bound_to_a_gpu_are_cuda_code_and_do_not_run_on_the_cpu() -> None:
    x = operands(64, 64, 8)[0]
    k = rl.loops(lambda x: rl.exp(x) * 2, x).bind("i0", "grid").bind("i1", "thread")
    assert "__global__" in k.source() and {"step": "bind", "axis": "i0", "kind": "grid"} in k.trace
    with pytest.raises(LoopsError, match="'i0' is bound to a GPU"):
        k(x)
    with pytest.raises(ScheduleError, match="powers of two"):
        rl.loops(lambda x: x + 1, x[:, :7]).bind("i1", "thread")


def test_views_constants_and_several_results() -> None:
    x, w, _ = operands(6, 8, 8)
    table = rl.tensor(np.linspace(0, 3, 8, dtype=np.float32))
    k = rl.loops(lambda x: (x * table, x + 1.0), x)
    first, second = k(x)
    np.testing.assert_allclose(first.numpy(), x.numpy() * table.numpy())
    np.testing.assert_allclose(second.numpy(), x.numpy() + 1)
    shown = w.T
    only = rl.loops(lambda w: w - 1, shown)
    np.testing.assert_allclose(only(shown).numpy(), shown.numpy() - 1)  # type: ignore[union-attr]


def test_constants_that_somebody_read_stay_constants() -> None:
    x = rl.tensor(np.ones((5, 4), np.float32))
    before = str(rl.loops(lambda x: x.sum(1) * rl.zeros(5), x))
    held = rl.zeros(5)
    shown = held + 0  # a graph that keeps the constant's node
    assert held.tolist() == [0.0] * 5
    assert str(rl.loops(lambda x: x.sum(1) * rl.zeros(5), x)) == before
    assert shown.tolist() == [0.0] * 5


def test_wrong_arguments_are_named() -> None:
    x = operands(4, 4, 4)[0]
    k = rl.loops(lambda x: x + 1, x)
    with pytest.raises(ScheduleError, match="not to 'blocks'"):
        k.bind("i0", "blocks")  # type: ignore[arg-type]
    with pytest.raises(LoopsError, match="not int"):
        k(1)  # type: ignore[arg-type]
    with pytest.raises(LoopsError, match="not float"):
        rl.loops(lambda x: x + 1, 3.0)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"made for float32\[4, 4\], not float32\[3\]"):
        k(rl.ones(3))


@pytest.mark.parametrize(
    "step, said",
    [
        (lambda k: k.split("q", 4), "no loop 'q'"),
        (lambda k: k.split("n", 2.5), "pieces of 2.5"),
        (lambda k: k.split("n", "16"), "pieces of '16'"),
        (lambda k: k.split("n", 0), "pieces of 0"),
        (lambda k: k.split("n", 5, "pad"), "one of peel, branch, guard, repeat, not 'pad'"),
        (lambda k: k.reorder("m", "m"), "named twice"),
        (lambda k: k.reorder(["n", "m"]), "no loop"),
        (lambda k: k.stream("b0"), "nothing writes 'b0'"),
        (lambda k: k.replay([{"a": 1}]), "no step of a schedule"),
        (lambda k: k.replay("text"), "no step of a schedule"),
        (lambda k: k.replay([{"step": "split", "by": 3}]), "has other values"),
    ],
)
def test_a_wrong_step_says_what_is_wrong(step: Any, said: str) -> None:
    k = rl.loops(lambda x, w, b: x @ w + b, *operands(6, 5, 4))
    with pytest.raises(ScheduleError, match=said):
        step(k)


def test_a_loop_of_many_iterations_is_not_copied() -> None:
    k = rl.loops(lambda x: x * 2, rl.ones(100_000))
    with pytest.raises(ScheduleError, match="100000 copies"):
        k.unroll("i0")
    assert k.split("i0", 8).unroll("i0.1") != k


@pytest.mark.parametrize(
    "function, said",
    [
        (lambda x: x, "computes nothing"),
        (lambda x: 3, "gives 3, not tensors"),
        (lambda x: rl.linalg.inv(x), "inverse is no nest of loops"),
        (lambda x: x + rl.rand(4, 4), "cannot draw random numbers"),
        (lambda x: rl.sort(x)[0], "kernels"),
        (3, "takes a function"),
    ],
)
def test_an_expression_that_is_not_one_kernel_says_why(function: Any, said: str) -> None:
    with pytest.raises(LoopsError, match=said):
        rl.loops(function, rl.eye(4))


def test_a_branch_on_a_value_is_refused() -> None:
    x = rl.tensor([1.0, -2.0])

    def chosen(x: rl.Tensor) -> rl.Tensor:
        return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(CaptureError, match=r"which rl\.loops does not have while it traces"):
        rl.loops(chosen, x)
    for use in (float, lambda t: t.item(), lambda t: t.tolist(), lambda t: t.numpy()):
        with pytest.raises(CaptureError, match=r"rl\.loops"):
            rl.loops(lambda x, use=use: x * np.float32(use(x.max())), x)  # type: ignore[misc]
    by_shape = rl.loops(lambda x: x * 2 if x.shape[0] == 2 else x, x)
    assert by_shape(x).tolist() == [2.0, -4.0]  # type: ignore[union-attr]
    known = rl.loops(lambda x: x * rl.tensor([3.0, 4.0]).sum().item(), x)
    assert known(x).tolist() == [7.0, -14.0]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.mul_(2),
        lambda x: x.zero_().sum(),
        lambda x: x.__setitem__(0, 5.0) or x * 2,
        lambda x: x.view(-1)[1:].add_(1) + 1,
    ],
)
def test_a_write_to_an_argument_is_refused_and_changes_nothing(write: Any) -> None:
    x = rl.tensor([1.0, 2.0, 3.0])
    with pytest.raises(LoopsError, match="writes to its argument 1"):
        rl.loops(write, x)
    assert x.tolist() == [1.0, 2.0, 3.0]


def test_other_effects_of_the_function() -> None:
    x, held = rl.tensor([1.0, 2.0, 3.0]), rl.zeros(3)
    with pytest.raises(RidgelineError, match=r"written to inside rl\.loops"):
        rl.loops(lambda x: held.add_(x), x)
    assert held.tolist() == [0.0] * 3
    own = rl.loops(lambda x: x.clone().mul_(2).add_(1), x)
    assert own(x).tolist() == [3.0, 5.0, 7.0] and x.tolist() == [1.0, 2.0, 3.0]  # type: ignore[union-attr]


def test_an_error_inside_the_function_leaves_nothing_behind() -> None:
    x = rl.tensor([1.0, 2.0])
    with pytest.raises(ZeroDivisionError):
        rl.loops(lambda x: x * (1 / 0), x)
    assert (x + 1).tolist() == [2.0, 3.0]


def test_one_tensor_given_twice() -> None:
    x = rl.tensor([1.0, 2.0])
    k = rl.loops(lambda a, b: a - 2 * b, x, x)
    assert k(x, rl.tensor([10.0, 20.0])).tolist() == [-19.0, -38.0]  # type: ignore[union-attr]


def _lines_of(function: Callable[..., Any], marked: str) -> str:
    lines, first = inspect.getsourcelines(function)
    place = next(n for n, line in enumerate(lines) if marked in line)
    return f"test_kernel.py:{first + place}"


def test_a_kernel_in_a_traced_function_is_named_with_its_line() -> None:
    x = rl.ones(8)
    k = rl.loops(lambda a: a * 2, x)

    def on_traced(a: rl.Tensor) -> rl.Tensor:
        return k(a + 1) + 1

    def on_outside(a: rl.Tensor) -> rl.Tensor:
        return a + k(x)

    def made_inside(a: rl.Tensor) -> rl.Tensor:
        return a * rl.loops(lambda b: b * 3, a).flops

    for function, marked in ((on_traced, "k("), (on_outside, "k("), (made_inside, "loops(")):
        with pytest.raises(CaptureError, match="jit has no values while it traces") as caught:
            rl.jit(function)(x)
        assert _lines_of(function, marked) in caught.value.note
    with pytest.raises(CaptureError, match="vmap has no values"):
        rl.vmap(k)(rl.ones(3, 8))
    with pytest.raises(CaptureError, match="loops has no values"):
        rl.loops(lambda a: k(a) + 1, x)
    assert k(x).tolist() == [2.0] * 8


def test_a_kernel_does_not_lose_gradients_in_silence() -> None:
    x = rl.ones(8)
    k = rl.loops(lambda a: a * 2, x)
    with pytest.raises(LoopsError, match="has no derivative"):
        rl.grad(lambda a: k(a).sum())(x)
    x.requires_grad_()
    with pytest.raises(LoopsError, match="has no derivative"):
        k(x)
    assert k(x.detach()).tolist() == [2.0] * 8
    with rl.no_grad():
        assert k(x).tolist() == [2.0] * 8
