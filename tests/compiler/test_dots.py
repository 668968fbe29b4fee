"""Products of narrow numbers by dot-product instructions: chosen where they fit, and right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.compiler import CompiledKernel, lower_graph
from ridgeline.functions.linear import einsum
from ridgeline.graph.node import TensorType, leaf
from ridgeline.loops.printer import print_kernel
from ridgeline.schedules.machine import Machine
from tests.loops.validation import same_results

PLAIN = Machine(64, 32, 2, 32 << 10, 1 << 20, 32 << 20)
DOTS = replace(PLAIN, instructions=("vdpbf16ps",))
MANY = replace(DOTS, threads=16)


def scheduled(form: str, *shapes: tuple[int, ...], machine: Machine = DOTS) -> CompiledKernel:
    inputs = [leaf(TensorType(shape, dtypes.bfloat16)) for shape in shapes]
    (compiled,) = lower_graph([einsum(form, *inputs)], inputs, machine).kernels
    return compiled


@pytest.mark.parametrize("form,left,right", [
    ("mk,kn->mn", (200, 34), (34, 48)),
    ("mk,nk->mn", (170, 20), (64, 20)),
    ("bmk,bkn->bmn", (2, 150, 16), (2, 16, 32)),
])  # fmt: skip
def test_the_schedule_means_the_plain_loops(
    form: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    compiled = scheduled(form, left, right)
    assert "mma vdpbf16ps" in print_kernel(compiled.kernel)
    same_results(compiled.group.loops.kernel, compiled.kernel, tolerance=0.02)


@pytest.mark.parametrize("form,left,right", [
    ("mk,kn->mn", (64, 33), (33, 48)),  # an odd number of products
    ("mk,kn->mn", (64, 32), (32, 40)),  # no whole vectors
    ("km,kn->mn", (32, 64), (32, 64)),  # pairs of the left operand lie apart
    ("mk,kn->mn", (2, 512), (512, 64)),  # packing would cost more than it gives
])  # fmt: skip
def test_where_it_does_not_fit_there_is_a_plain_tile(
    form: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    assert "mma" not in print_kernel(scheduled(form, left, right).kernel)


def test_machines_without_the_instruction_have_a_plain_tile() -> None:
    shapes = (512, 512), (512, 512)
    assert "mma" not in print_kernel(scheduled("mk,kn->mn", *shapes, machine=PLAIN).kernel)


def test_every_core_has_a_share() -> None:
    text = print_kernel(scheduled("mk,kn->mn", (512, 512), (512, 256), machine=MANY).kernel)
    assert "for m.0 < 4 parallel" in text and "for n.0 < 4 parallel" in text


@pytest.mark.parametrize("form", ["nn", "nt"])
def test_products_against_float64(form: str) -> None:
    source = np.random.default_rng(0)
    m, n, k = 150, 96, 258
    x = rl.tensor(source.standard_normal((m, k), np.float32)).to(rl.bfloat16)
    shape = (k, n) if form == "nn" else (n, k)
    w = rl.tensor(source.standard_normal(shape, np.float32)).to(rl.bfloat16)
    bias = rl.tensor(source.standard_normal(n, np.float32)).to(rl.bfloat16)
    product = rl.jit(lambda x, w, b: rl.relu((x @ (w if form == "nn" else w.T)).float() + b))
    result = product(x, w, bias).numpy()
    a, b, c = (_double(t) for t in (x, w, bias))
    exact = a @ (b if form == "nn" else b.T)
    wanted = np.maximum(exact + c, 0)
    bound = 2.0**-8 * np.abs(exact) + k * 2.0**-23 * (
        np.abs(a) @ np.abs(b if form == "nn" else b.T)
    )
    assert np.all(np.abs(result - wanted) <= bound)


def _double(tensor: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    return torch.from_numpy(tensor.float().numpy()).double().numpy()
