"""Random schedules: any sequence of steps that is not refused keeps the meaning of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings, strategies as st

from ridgeline.loops import ir
from ridgeline.loops.ir import Alloc, For, Kernel
from ridgeline.loops.schedule import (
    CacheRead,
    CacheWrite,
    Cascade,
    ComputeAt,
    Fuse,
    Inline,
    Interleave,
    Offset,
    Online,
    Pipeline,
    Reorder,
    Rfactor,
    ScheduleError,
    SetKind,
    Split,
    Step,
    Tensorize,
    from_json,
    replay,
    to_json,
)
from tests.loops import kernels
from tests.loops.parser import parse_kernel
from tests.loops.step_kernels import ATTENTION, BLUR, LOGSUMEXP, SIGNED, SMALL
from tests.loops.validation import same_results

_TEXTS = [parse_kernel(text) for text in (SMALL, SIGNED, BLUR, LOGSUMEXP, ATTENTION)]
_PLAIN = [kernels.convolution(6, 3, 1), kernels.scan(5), kernels.argmax(3, 5), kernels.triangle(4)]


def _steps(draw: st.DrawFn, kernel: Kernel) -> Step:
    """Some step over names that the kernel has; most often one that is legal."""
    loops = [s for s in ir.statements(kernel.body) if isinstance(s, For)]
    names = st.sampled_from(list(dict.fromkeys(loop.name for loop in loops)))
    buffers = [p.name for p in kernel.params]
    buffers += [s.buffer.name for s in ir.statements(kernel.body) if isinstance(s, Alloc)]
    memory = st.sampled_from(buffers)
    axes = st.lists(names, min_size=1, max_size=3, unique=True).map(tuple)
    kinds = st.sampled_from(["unroll", "vector", "parallel"])
    tails = st.sampled_from(["peel", "branch", "guard", "repeat"])
    pairs = [
        (a.name, a.body.name) for a in loops if isinstance(a.body, For) and a.name != a.body.name
    ]
    options: Sequence[st.SearchStrategy[Step]] = [
        st.builds(Split, names, st.integers(1, 4), tails),
        st.builds(Reorder, axes),
        st.builds(SetKind, names, kinds),  # type: ignore[arg-type]
        st.builds(Rfactor, names),
        st.builds(Cascade, names, st.integers(1, 3)),
        st.builds(CacheRead, memory, names, axes),
        st.builds(Interleave, memory, names, axes, st.sampled_from([0, 2])),
        st.builds(Offset, memory, names),
        st.builds(CacheWrite, memory, names, axes),
        st.builds(Inline, memory),
        st.builds(ComputeAt, memory, names),
        st.builds(Online, names),
        st.builds(Pipeline, names, st.integers(2, 3)),
        st.builds(Tensorize, names, st.just("fma")),
        *([st.sampled_from(pairs).map(lambda pair: Fuse(*pair, divide=True))] if pairs else []),
    ]
    return draw(st.one_of(*options))


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Kernel, list[Step]]:
    """A kernel and up to six steps that were accepted one after another."""
    kernel = draw(st.sampled_from(_TEXTS + _PLAIN) | kernels.sound_kernels())
    start, taken = kernel, []
    for _ in range(draw(st.integers(1, 12))):
        if len(taken) == 6:
            break
        step = _steps(draw, kernel)
        try:
            kernel = step.apply(kernel)
        except ScheduleError:
            continue
        taken.append(step)
    return start, taken


@settings(max_examples=60, deadline=None)
@given(schedules())
def test_accepted_steps_keep_the_meaning(schedule: tuple[Kernel, list[Step]]) -> None:
    kernel, steps = schedule
    with np.errstate(all="ignore"):
        same_results(kernel, replay(kernel, steps), tolerance=1e-4)
    assert from_json(to_json(steps)) == steps
