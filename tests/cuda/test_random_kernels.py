"""Random bits on a GPU: the words of the definition, and the rounds once for all of a block."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.loops import ir
from ridgeline.loops.build import free_vars
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.ir import For, Kernel, OpExpr
from ridgeline.loops.legalize import with_short_indices
from ridgeline.ops.elementwise import apply, cast, full_like, scale
from ridgeline.ops.movement import permute
from ridgeline.ops.random import expand, random_bits
from ridgeline.schedules.gpu.machine import H200, T4, GpuMachine
from ridgeline.values import philox
from tests.cuda.lowering import SMALL_GPU, schedule

Memory = dict[int, np.ndarray]
KEY, OFFSET = 0x0123_4567_89AB_CDEF, (1 << 32) - 2  # the counter's low half runs over


def drawn(shape: tuple[int, ...], gpu: GpuMachine, turned: bool = False) -> tuple[Kernel, Memory]:
    """The scheduled loops of a draw, as it is or transposed, and what they read."""
    key, offset = (leaf(TensorType((), dtypes.uint64)) for _ in range(2))
    bits: Node = expand(random_bits(key, offset, shape), key, offset)
    if turned:
        bits = permute(bits, tuple(reversed(range(len(shape)))))
    (made,) = schedule([bits], [key, offset], gpu)
    given = {key: np.array(KEY, np.uint64), offset: np.array(OFFSET, np.uint64)}
    return made.kernel, {slot: given[made.lowered.slots[slot]] for slot in range(2)}


def expected(shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape))
    counters = np.uint64(OFFSET) + np.arange(-(-count // 4), dtype=np.uint64)
    return philox.blocks(np.uint64(KEY), counters).reshape(-1)[:count].reshape(shape)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shape", [(1,), (7,), (24, 40), (33, 5), (3, 1001), (2, 3, 4)])
def test_words_are_those_of_the_definition(shape: tuple[int, ...], turned: bool) -> None:
    wanted = expected(shape).T if turned else expected(shape)
    found = np.zeros(wanted.shape, np.uint32)
    kernel, memory = drawn(shape, SMALL_GPU, turned)
    interpret(kernel, {**memory, 2: found}, {})
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("shape", [(1 << 20,), (4096, 768), (64, 12, 128, 128)])
def test_a_block_is_computed_once_for_its_four_words(shape: tuple[int, ...]) -> None:
    body = with_short_indices(drawn(shape, H200)[0].body)
    (lane,) = {s.name for s in ir.statements(body) if isinstance(s, For) and s.kind == "vector"}
    calls = [
        e
        for s in ir.statements(body)
        for e in ir.subexpressions(*ir.expressions(s))
        if isinstance(e, OpExpr) and e.name == "philox"
    ]
    assert calls
    for call in calls:
        _, counter, place = call.args
        assert lane not in free_vars(counter) and free_vars(place) == {lane}


@pytest.mark.parametrize("gpu", [T4, H200], ids=lambda g: g.arch)
def test_draws_compile(gpu: GpuMachine) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from ridgeline.codegen.cuda import compile_source, generate

    for shape in ((7,), (1 << 20,), (33, 1001)):
        compile_source(generate(drawn(shape, gpu)[0]).text, gpu.arch)


def test_normal_numbers_need_no_path_for_large_angles() -> None:
    from ridgeline.codegen.cuda import generate

    streams = [leaf(TensorType((), dtypes.uint64)) for _ in range(2)]
    first, second = (expand(random_bits(*streams, (4096,), n), *streams) for n in (0, 1))
    unit = scale(cast(apply("shr", first, full_like(first, 8)), dtypes.float32), 2.0**-24)
    turned = apply("mul", cast(second, dtypes.float32), unit)
    texts = [
        generate(schedule([apply("cos", angle)], streams, H200)[0].kernel).text
        for angle in (scale(unit, 6.28), turned)
    ]
    kernels = [text.split('extern "C"')[1] for text in texts]
    assert "rl_cos_near(" in kernels[0] and "rl_cos(" in kernels[1]


def test_normal_numbers_take_the_logarithm_and_the_root_of_positive_numbers() -> None:
    from ridgeline.codegen.cuda import generate

    streams = [leaf(TensorType((), dtypes.uint64)) for _ in range(2)]
    bits = expand(random_bits(*streams, (4096,)), *streams)
    unit = scale(cast(apply("shr", bits, full_like(bits, 8)), dtypes.float32), 2.0**-24)
    texts = [
        generate(schedule([apply("sqrt", scale(value, -2.0))], streams, H200)[0].kernel).text
        for value in (
            apply("log", apply("sub", full_like(unit, 1), unit)),
            apply("log", unit),
            unit,
        )
    ]
    positive, maybe_zero, plain = (text.split('extern "C"')[1] for text in texts)
    infinity = "__int_as_float(0xff800000)"  # the logarithm of 0
    assert infinity not in positive and infinity in maybe_zero
    assert "rl_sqrt_near(" in positive and "rl_sqrt_near(" in maybe_zero
    assert "sqrtf(" in plain and "rl_sqrt_near(" not in plain


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1,), (7,), (1000, 3), (1 << 20,), (33, 5, 17)])
def test_a_gpu_draws_what_the_interpreter_draws(shape: tuple[int, ...]) -> None:
    def draws() -> list[np.ndarray]:
        rl.manual_seed(11)
        made = [
            rl.rand(*shape, device=device),
            rl.rand(*shape, dtype=rl.float64, device=device),
            rl.rand(*shape, dtype=rl.bfloat16, device=device).float(),
            rl.randint(-50, 1000, shape, device=device),
            rl.dropout(rl.ones(*shape, device=device), 0.4),
            rl.dropout(rl.ones(*shape, device=device, dtype=rl.bfloat16) * 3, 0.1).float(),
            rl.randn(*shape, device=device),
        ]
        return [value.cpu().numpy() for value in made]

    device = "cpu"
    with rl.config.override(tier="interpreter"):
        *wanted, normal = draws()
    device = "cuda"
    *found, also_normal = draws()
    for one, other in zip(found, wanted):
        assert np.array_equal(one, other)
    np.testing.assert_allclose(also_normal, normal, rtol=2e-6, atol=1e-6)
