"""Scans that are one kernel on a GPU: their loops interpreted, against the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.codegen.cuda import compile_all
from ridgeline.codegen.cuda.cheap_functions import few_steps
from ridgeline.loops.lowering.recurrence import TURN

from .fake_code import FakeCode
from .recurrences import ALONE, TOGETHER, Run, leaves, numbers, selective, selective_inputs

PLACE = "cuda:0"


def _loops(code: FakeCode) -> list[Any]:
    """The kernels that run a loop themselves."""
    kernels = {
        part.kernel.name: part.kernel for _, parts, _ in code.sources.values() for part in parts
    }
    return [kernel for kernel in kernels.values() if kernel.name.split("_")[-2] == "scan"]


def _compared(run: Run, arrays: list[Any]) -> None:
    wanted = leaves(run(*map(rl.tensor, arrays)))
    function, given = rl.jit(run), [rl.tensor(a, device=PLACE) for a in arrays]
    for _ in range(3):
        found = leaves(function(*given))
        for mine, truth in zip(found, wanted, strict=True):
            assert (mine.device, mine.dtype) == (PLACE, truth.dtype)
            close = 1e-2 if mine.dtype == rl.bfloat16 else 1e-5
            pair = [t.cpu().float().numpy() for t in (mine, truth)]
            np.testing.assert_allclose(*pair, rtol=close, atol=close)


@pytest.mark.parametrize("name", ALONE)
def test_one_kernel_runs_all_iterations(fake_code: FakeCode, name: str) -> None:
    run, arrays = ALONE[name]
    _compared(run, arrays)
    assert len(_loops(fake_code)) == 1


@pytest.mark.parametrize("name", TOGETHER)
def test_rows_that_need_each_other_are_launched_again(fake_code: FakeCode, name: str) -> None:
    run, arrays = TOGETHER[name]
    _compared(run, arrays)
    assert not _loops(fake_code)


def test_gradients_run_back_in_a_kernel_too(fake_code: FakeCode) -> None:
    def run(start: Any, xs: Any) -> Any:
        leaves = [t.detach().requires_grad_() for t in (start, xs)]
        last, all_ = rl.scan(lambda s, x: ((s * 0.5 + x).sin(),) * 2, *leaves)
        return rl.autograd.grad((last**2).sum() + all_.sum(), leaves)

    _compared(run, [numbers(5, 7), numbers(6, 5, 7)])
    assert len(_loops(fake_code)) == 2


def test_a_loop_in_a_loop_is_a_kernel_of_its_body(fake_code: FakeCode) -> None:
    def run(start: Any, xs: Any) -> Any:
        def outer(state: Any, rows: Any) -> Any:
            last, kept = rl.scan(lambda s, x: (s * 0.5 + x, s), state, rows)
            return last - last.mean(), kept.sum(0)

        return rl.scan(outer, start, xs)

    _compared(run, [numbers(9), numbers(3, 4, 9)])
    assert len(_loops(fake_code)) == 1


def test_the_same_memory_as_state_and_as_slices(fake_code: FakeCode) -> None:
    def run(xs: Any) -> Any:
        return rl.scan(lambda s, x: (s + x, s), xs, xs)

    _compared(run, [numbers(6, 6)])
    _compared(lambda x: rl.scan(lambda s, y: ((s[1], s[0] + y),) * 2, (x, x), x.expand(4, 6)),
              [numbers(6)])  # fmt: skip


def test_state_is_as_accurate_as_its_type(fake_code: FakeCode) -> None:
    """Results of 16 bits would hide the error of fast functions, but not what iterations add up."""

    def run(*given: Any) -> Any:
        return selective(*given)[1].to(rl.bfloat16)

    rl.jit(run)(*(rl.tensor(a, device=PLACE) for a in selective_inputs(4, 2, 33, 4)))
    (kernel,) = _loops(fake_code)
    assert not few_steps(kernel, kernel.body)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
def test_texts_compile(fake_code: FakeCode, arch: str) -> None:
    for run, arrays in ALONE.values():
        rl.jit(run)(*(rl.tensor(a, device=PLACE) for a in arrays))
    texts = [text for text in fake_code.sources if f"i_{TURN}" in text]
    assert len(texts) == len(ALONE)
    assert all(image.startswith(b"\x7fELF") for image in compile_all(texts, arch))
