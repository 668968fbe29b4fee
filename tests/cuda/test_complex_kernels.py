"""Complex programs and special functions as GPU kernels: interpreted loops, compiled text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ridgeline import dtypes, scalars
from ridgeline.codegen.cuda import generate
from ridgeline.codegen.cuda.nvrtc import compile_all
from ridgeline.graph.node import Node, TensorType, leaf, topological
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.ops.complex import imag
from ridgeline.ops.contract import matmul
from ridgeline.ops.elementwise import ROWS, add, apply, cast, mul
from ridgeline.ops.reduce import sum_
from ridgeline.ops.special import special
from ridgeline.schedules.gpu.machine import H200
from tests.compiler.passing import optimized
from tests.cuda.lowering import schedule

PROGRAMS: dict[str, tuple[Callable[..., Node], Callable[..., np.ndarray]]] = {
    "fused": (lambda a, b: add(mul(a, a), apply("exp", b)), lambda a, b: a * a + np.exp(b)),
    "log": (lambda a, b: apply("log", apply("div", a, b)), lambda a, b: np.log(a / b)),
    "sum": (lambda a, b: sum_(mul(a, b), (1,)), lambda a, b: (a * b).sum(1)),
    "product": (lambda a, b: matmul(a, b), lambda a, b: a @ b),
    "part": (lambda a, b: imag(apply("sqrt", add(a, b))), lambda a, b: np.sqrt(a + b).imag),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_complex_programs(name: str) -> None:
    program, numpy = PROGRAMS[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((32, 32, 2)) @ [1, 1j] for _ in range(2)]
    inputs = [leaf(TensorType((32, 32), dtypes.complex128, "cpu")) for _ in arrays]
    outputs = optimized(program(*inputs))
    values = dict(zip(inputs, arrays))
    texts = []
    for scheduled in schedule(outputs, inputs, H200):
        lowered, kernel = scheduled.lowered, scheduled.kernel
        memory = {
            i: values[n] if i < lowered.reads else np.zeros(n.shape, n.dtype.numpy)
            for i, n in enumerate(lowered.slots)
        }
        # memory is bytes: complex numbers are read as their parts
        parts = {p.slot: p.dtype.numpy for p in kernel.params}
        memory = {i: np.ascontiguousarray(m).view(parts.get(i, m.dtype)) for i, m in memory.items()}
        interpret(kernel, memory, {})
        values.update({n: memory[i] for i, n in enumerate(lowered.slots) if i >= lowered.reads})
        texts.append(generate(kernel).text)
    assert all(n.dtype.kind != "complex" for n in topological(outputs) if n.op.name in ROWS)
    wanted = numpy(*arrays)
    found = values[[n for n in values if n not in inputs][-1]]
    np.testing.assert_allclose(found.view(wanted.dtype).reshape(wanted.shape), wanted, rtol=1e-10)
    compile_all(texts, "sm_90a")


@pytest.mark.parametrize("dtype", [dtypes.float8_e4m3fn, dtypes.float8_e5m2], ids=str)
def test_eight_bit_floats(dtype: dtypes.DType) -> None:
    source = leaf(TensorType((256,), dtype, "cpu"))
    doubled = cast(mul(cast(source, dtypes.float32), cast(source, dtypes.float32)), dtype)
    (scheduled,) = schedule([doubled], [source], H200)
    assert all(compile_all([generate(scheduled.kernel).text], "sm_90a"))


def test_every_function_of_the_scalar_table_compiles() -> None:
    texts = []
    for name in ("atan2", "hypot", "fmod", "copysign", "asin", "sinh", "acosh", *scalars.SPECIAL):
        for dtype in (dtypes.float32, dtypes.float64):
            arity = scalars.TABLE[name].arity
            inputs = [leaf(TensorType((64,), dtype, "cpu")) for _ in range(arity)]
            made = special if name in scalars.SPECIAL else apply
            (scheduled,) = schedule([made(name, *inputs)], inputs, H200)
            texts.append(generate(scheduled.kernel).text)
    assert all(compile_all(texts, "sm_90a"))
