"""The CUDA C++ of kernels: it compiles for every architecture, and reads as a person's."""

from __future__ import annotations

import pytest

from ridgeline import simt
from ridgeline.codegen.cuda.nvrtc import compile_source
from ridgeline.ops.kernel_launch import KERNEL_OPTIONS, ThreadLaunch
from ridgeline.simt.cuda.text import cuda_kernel
from ridgeline.simt.kernel import SimtKernel
from tests.simt import textbook

pytest.importorskip("cuda.bindings.nvrtc")


def body(kernel: SimtKernel) -> str:
    """The text of the function, without marks of lines."""
    text = cuda_kernel(kernel.program(), ThreadLaunch((1, 1, 1), textbook.ALL[kernel])).text
    lines = text[text.index('extern "C" __global__') :].splitlines()
    return "\n".join(line for line in lines[1:] if not line.startswith("#line"))


@pytest.mark.parametrize("kernel", textbook.ALL, ids=lambda k: k.__name__)
def test_every_text_compiles(kernel: SimtKernel) -> None:
    made = cuda_kernel(kernel.program(), ThreadLaunch((1, 1, 1), textbook.ALL[kernel]))
    for architecture in ("sm_75", "sm_90a"):
        assert compile_source(made.text, architecture, KERNEL_OPTIONS)


def test_a_scaled_sum_reads_as_it_was_written() -> None:
    assert body(textbook.axpy) == (
        "  const float a = *a_at;\n"
        "  const int i = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x;\n"
        "  if (i < n) {\n"
        "    z[i] = a * x[i] + y[i];\n"
        "  }\n"
        "}"
    )


def test_a_block_of_another_size_is_another_function() -> None:
    """Its text may be the same but for the bound on its threads, above which none is launched."""
    kernel = simt.kernel("def one(x: inout[f32['n']]):\n    x[blockIdx.x] += 1.0")
    launches = ThreadLaunch((4, 1, 1), (128, 1, 1)), ThreadLaunch((4, 1, 1), (256, 1, 1))
    first, second = [cuda_kernel(kernel.program(), launch) for launch in launches]
    assert "__launch_bounds__(256)" in second.text
    assert first.symbol != second.symbol


def test_lines_are_those_of_python() -> None:
    text = cuda_kernel(textbook.axpy.program(), ThreadLaunch((1, 1, 1), (256, 1, 1))).text
    assert f'#line {textbook.axpy.captured.source.first + 2} "{textbook.__file__}"' in text


def test_numbers_that_may_wrap_and_quotients_of_negative_numbers_say_so() -> None:
    kernel = simt.kernel(
        "def q(x: inout[i32['n']]):\n    v = x[0]\n    x[1] = v % 3 + v // 6\n"
        "    x[2] = v % 8 + v // 4\n"
        "    x[3] = threadIdx.x // 6"
    )
    text = cuda_kernel(kernel.program(), ThreadLaunch((1, 1, 1), (32, 1, 1))).text
    assert "rl_int_mod<int>(v, 3)" in text and "rl_int_floordiv<int>(v, 6)" in text
    assert "(v & 7)" in text and "(v >> 2)" in text  # bits are rounded down, as Python does
    assert "(int)threadIdx.x / 6" in text


def test_what_is_printed_reads_as_in_the_simulator() -> None:
    kernel = simt.kernel("def p(x: inout[i32['n']]):\n    print('x', x[0], f'is {x[0] > 1}')")
    text = cuda_kernel(kernel.program(), ThreadLaunch((1, 1, 1), (32, 1, 1))).text
    assert 'printf("x %lld is %s\\n", (long long)(x[0]), ((1 < x[0]) ? "True" : "False"));' in text
