"""A whole training step of a GPT on a GPU, without one: every kernel compiles, memory is small.

The step is traced on the CPU and compiled for a stated GPU as the backend would do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any

import pytest

import ridgeline as rl
import ridgeline.compiler
import ridgeline.runtime.cuda.backend
import ridgeline.tracing.executable
from ridgeline import nn
from ridgeline.codegen.cuda import generate
from ridgeline.codegen.cuda.types import literal
from ridgeline.compiler import Layout, Stages, lay_out, lower_graph, lowering
from ridgeline.compiler.memory_plan import KernelCall
from ridgeline.graph.graph import Graph, elements, nbytes
from ridgeline.loops import ir
from ridgeline.loops.math.tables.elementary import LN2_32
from ridgeline.loops.text.printer import print_kernel
from ridgeline.models.gpt2 import GPT2, GPT2Config
from ridgeline.record.values import read
from ridgeline.runtime.cuda import cublaslt
from ridgeline.runtime.cuda.backend import CudaBackend
from ridgeline.runtime.cuda.launches import KernelLaunch
from ridgeline.runtime.cuda.product import ProductLaunch
from ridgeline.schedules.gpu.machine import H200
from tests.cuda.stated import StatedGpu

BATCH, LENGTH, WIDTH, WORDS = 8, 256, 384, 65
Pairs = Sequence[tuple[int, int]]
Step = tuple[Graph, Pairs]


class Traced(Exception):
    """What was to be compiled."""


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that traces a training step; cuBLASLt counts as present from then on."""
    pytest.importorskip("cuda.bindings.nvrtc")
    monkeypatch.setattr(cublaslt, "library", lambda: object())

    def trace(narrow: bool, dropout: float, words: int = WORDS) -> Step:
        rl.manual_seed(0)
        model = GPT2(GPT2Config(
            vocab_size=words, n_positions=LENGTH, n_embd=WIDTH, n_layer=1, n_head=6,
            embd_pdrop=dropout, attn_pdrop=dropout, resid_pdrop=dropout,
        ))  # fmt: skip
        optimizer = rl.optim.AdamW(model.parameters(), lr=1e-3)
        tokens, targets = (rl.tensor([[3] * LENGTH] * BATCH) for _ in range(2))
        for parameter in model.parameters():
            parameter.detach().numpy()  # so that the step does not make the weights

        @rl.jit
        def step(tokens: rl.Tensor, targets: rl.Tensor) -> rl.Tensor:
            optimizer.zero_grad()
            with rl.autocast("cpu", dtype=rl.bfloat16) if narrow else nullcontext():
                scores = model(tokens).reshape(-1, words).float()
                loss = nn.functional.cross_entropy(scores, targets.reshape(-1))
            loss.backward()
            optimizer.step()
            return loss

        def stop(graph: Graph, pairs: Pairs, budget: int) -> None:
            raise Traced(graph, pairs)

        with monkeypatch.context() as patch, rl.config.override(tier="compiled"):
            patch.setattr(ridgeline.compiler, "compile_graph", stop)
            patch.setattr(ridgeline.tracing.executable, "is_library_call", StatedGpu().library_op)
            with pytest.raises(Traced) as found:
                step(tokens, targets)
        return found.value.args

    return trace


def laid_out(step: Step, target: CudaBackend) -> tuple[Stages, Layout]:
    """The kernels and their plan."""
    graph, pairs = step
    stages = lower_graph(graph, target=target, pairs=pairs)
    return stages, lay_out(stages, target)


def test_every_kernel_compiles(traced: Any) -> None:
    from ridgeline.codegen.cuda import compile_all

    stages, layout = laid_out(traced(narrow=True, dropout=0.1), StatedGpu())
    calls = [call for call in layout.calls if isinstance(call, KernelCall)]
    own = {call.symbol for call in calls if isinstance(call.launch, KernelLaunch)}
    own &= {k.kernel.name for k in stages.kernels}
    texts = {k.kernel.name: generate(k.kernel).text for k in stages.kernels if k.kernel.name in own}
    assert len(texts) == len(own) and len(layout.calls) > len(own)
    codes = compile_all(list(texts.values()), H200.arch)
    assert all(code.startswith(b"\x7fELF") for code in codes)


def test_what_was_begun_while_kernels_were_scheduled_is_what_is_compiled(
    traced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []

    def begin(text: str, arch: str, options: object = ()) -> Future[bytes]:
        texts.append(text)
        made: Future[bytes] = Future()
        made.set_result(text.encode())
        return made

    target = StatedGpu()
    monkeypatch.setattr(ridgeline.runtime.cuda.backend, "begin", begin)
    monkeypatch.setattr(target, "load", lambda code, symbols: None)
    graph, pairs = traced(narrow=True, dropout=0.0, words=2048)
    stages = lower_graph(graph, target=target, pairs=pairs, ahead=True)
    joined = {part.kernel.name for parts in stages.together for part in parts}
    attention = [g for g in stages.library_calls if g.name != "product"]
    assert len(stages.begun) > len(attention) == 2 and not joined & set(stages.begun)
    own = list(stages.all_kernels())
    made = target.compile(own, stages.library_calls, stages.together, stages.begun)
    assert len(set(texts)) == len(texts)  # none was begun twice, or for nothing
    assert made == target.compile(own, stages.library_calls, stages.together)


def test_a_product_with_itself_is_written_to_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "library", lambda: object())
    x = rl.zeros(13, 13, 513).contiguous()
    x.numpy()  # an input, not a constant
    made = read(rl.einsum("abc,dec->abde", x, x))
    _, layout = laid_out((Graph([made], [read(x)]), ()), StatedGpu())
    (call,) = layout.calls
    assert isinstance(call, KernelCall) and isinstance(call.launch, ProductLaunch)
    of = call.launch.product
    places = [matrix.parameter for matrix in (of.left, of.right, of.result)]
    assert [call.slots[place] for place in places] == [0, 0, 1]


def test_every_kernel_in_float32_has_text(traced: Any) -> None:
    _, layout = laid_out(traced(narrow=False, dropout=0.1), StatedGpu())
    assert len(layout.calls) > 50


def test_memory_between_the_passes(traced: Any) -> None:
    graph = traced(narrow=True, dropout=0.0)
    _, plain = laid_out(graph, StatedGpu(recompute=False))
    stages, layout = laid_out(graph, StatedGpu())
    assert layout.arena_bytes < plain.arena_bytes
    stored = [v for g in stages.fusion.groups if g.lowered for v in g.loops.slots[g.loops.reads :]]
    assert not [v for v in stored if v.shape[-2:] == (LENGTH, LENGTH)]  # no scores


def test_where_memory_is_fullest_rows_are_written_over_others(
    traced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = traced(narrow=True, dropout=0.0, words=8192)
    _, apart = laid_out(graph, StatedGpu())
    monkeypatch.setattr(lowering, "LEAST_OVERLAID", 1 << 20)
    stages, layout = laid_out(graph, StatedGpu())
    scores = 2 * BATCH * LENGTH * 8192
    assert any(v.shape[-1] == 8192 and nbytes(v) == scores for v in stages.over)
    assert layout.arena_bytes <= apart.arena_bytes - scores // 2
    over = next(v for v in stages.over if v.shape[-1] == 8192)
    kernel = next(k for k in stages.kernels if over in k.group.values)
    text = generate(kernel.kernel).text
    assert (
        "__syncthreads();" in text[text.rindex(literal(ir.const(LN2_32[0], rl.float32))) :]
    )  # the score is read, then overwritten


def test_attention_reads_and_writes_projections_where_they_lie(traced: Any) -> None:
    stages, _ = laid_out(traced(narrow=True, dropout=0.0), StatedGpu())
    forward, backward = (g for g in stages.library_calls if g.name != "product")
    assert forward.views is not None and backward.views is not None
    read = [view.base.shape for view in (*forward.views, *backward.views[:3])]
    assert all(shape[:2] == (BATCH, LENGTH) and len(shape) == 3 for shape in read)
    out, ct = forward.values[0], backward.views[-1].base
    assert out.shape == (BATCH, LENGTH, 6, WIDTH // 6) and ct.shape == (BATCH, LENGTH, WIDTH)
    copies = [g.name for g in stages.fusion.groups if g.name in ("copy", "reshape", "permute")]
    assert not copies


def test_corrections_of_the_optimizer_are_computed_once(traced: Any) -> None:
    stages, _ = laid_out(traced(narrow=True, dropout=0.0, words=8192), StatedGpu())
    powers = [k for k in stages.kernels if "pow(" in print_kernel(k.kernel)]
    largest = max(max(map(elements, k.group.values)) for k in powers)
    assert largest < 8192 * WIDTH  # for the embedding a kernel of one thread computes them


def test_counters_are_read_side_by_side(traced: Any) -> None:
    """Every parameter has a count of steps: their kernels are small, each one launch."""
    stages, _ = laid_out(traced(narrow=True, dropout=0.0), StatedGpu())
    small = [k for k in stages.kernels if max(map(elements, k.group.values)) == 1]
    counters = [k for k in small if any(n.op.name == "add" for n in k.group.values)]
    assert len(counters) >= 8 and all(len(k.group.values) <= 8 for k in counters)
    assert all(len(generate(k.kernel).launches) == 1 for k in small if "sum" not in k.kernel.name)
