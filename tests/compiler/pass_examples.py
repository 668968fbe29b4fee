"""For every pass of the compiler a graph that shows what it does; `passes.txt` has them printed.

`python -m tests.compiler.pass_examples` writes the file; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ridgeline import dtypes
from ridgeline.compiler import weight_packing
from ridgeline.compiler.backend import Libraries
from ridgeline.compiler.passes import Recorded
from ridgeline.compiler.pipeline import PIPELINE, check, compilation, lower, optimize, prepare
from ridgeline.compiler.show import show
from ridgeline.dtypes import DType
from ridgeline.functions.convolution import conv2d
from ridgeline.functions.linear import einsum
from ridgeline.functions.reductions import var
from ridgeline.graph.body import body
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.ops import elementwise as E, movement as M
from ridgeline.ops.attention import ATTENTION, attention
from ridgeline.ops.collectives import GroupName, all_reduce
from ridgeline.ops.contract import matmul
from ridgeline.ops.control.branch import cond
from ridgeline.ops.control.loop import loop
from ridgeline.ops.convolve import Way
from ridgeline.ops.gather import WIDE_ADD, gather, scatter
from ridgeline.ops.reduce import sum_
from ridgeline.ops.scan import scan
from ridgeline.ops.sort import sort
from ridgeline.ops.tracking import tag
from ridgeline.schedules.machine import Machine
from tests.compiler.passing import Stated
from tests.fusion.test_late import bent, step

FILE = Path(__file__).with_name("passes.txt")
MACHINE = Machine(32, 16, 2, 32 << 10, 512 << 10, 32 << 20)  # whatever this one is
_MOST = 24  # lines of a printed form that are kept
_GPU = 1 << 16  # bytes that a block shares


def given(*shape: int, dtype: DType = dtypes.float32) -> Node:
    """An input."""
    return leaf(TensorType(shape, dtype))


@dataclass(frozen=True, slots=True)
class Example:
    """Outputs over leaves, how they were recorded, and for what they are compiled."""

    outputs: Sequence[Node]
    computes: Callable[[Node], bool] = lambda node: False
    steady: Sequence[Node] = ()
    libraries: Libraries = field(default_factory=Libraries)
    shared_bytes: int = 0
    pairs: Sequence[tuple[int, int]] = ()
    recompute: bool = False
    budget: int = 0

    def texts(self) -> dict[str, tuple[str, str]]:
        """The printed forms before and after every pass."""
        graph = Graph.below(self.outputs)
        before, found = [show(graph)], {}

        def observe(each: Any, state: Any) -> None:
            after = show(state)
            found[each.name] = before[0], after
            before[0] = after

        steady = dict.fromkeys(self.steady, 1 << 20)
        with patch.object(weight_packing, "machine", lambda: MACHINE):
            graph = prepare(graph, Recorded("jit", self.computes, steady), observe)
        target = Stated(self.libraries, self.shared_bytes, self.recompute)
        to = compilation(graph, target, pairs=self.pairs, facts=MACHINE, budget=self.budget)
        graph, _ = check(graph, to, observe)
        lower(optimize(graph, to, observe), to, observe)
        return found


def _always(*about: Any) -> bool:
    return True


def _norm() -> Example:
    x, w, mean, variance = given(3, 5), given(5, 4), given(4), given(4)
    product = matmul(x, w)
    scale = E.apply("reciprocal", E.apply("sqrt", variance))
    centred = E.sub(product, M.broadcast(mean, product.shape, (1,)))
    root = E.mul(centred, M.broadcast(scale, product.shape, (1,)))
    return Example([root], steady=[w, mean, variance])


def _body_with_a_tag() -> Example:
    own = given(2)
    x, flag = given(2), given(dtype=dtypes.bool_)
    made = cond(flag, body([own], [E.mul(tag(own), own)]), body([own], [own]), [x])
    return Example(made)


def _loop(read: int) -> Example:
    """A loop that carries two values, of which one is read."""
    carried, other = given(3), given(3)
    step = body([carried, other], [E.add(carried, carried), E.mul(other, other)])
    made = loop(step, [given(3), given(3)], [], [], 4)
    return Example(made[read : read + 1])


def _relu(value: Node) -> Node:
    zero = E.full_like(value, 0)
    return E.select(E.apply("le", value, zero), zero, value)


def _convolved(rectified: bool = False) -> Example:
    x, w = given(2, 4, 6, 6), given(8, 4, 3, 3)
    made = conv2d(x, w, padding=1)
    libraries = Libraries(
        convolution=lambda attrs, node: Way.CHANNELS_LAST,
        convolution_with_relu=_always if rectified else None,
    )
    return Example([_relu(made) if rectified else made], libraries=libraries)


def _moments(deviations: bool = False) -> Example:
    x = E.cast(given(64, 8, dtype=dtypes.bfloat16), dtypes.float32)
    total = sum_(x, (0,))
    mean = E.div(total, E.full_like(total, 64))
    apart = E.sub(x, M.broadcast(mean, x.shape, (1,)))
    if deviations:  # their sum is zero
        total = sum_(apart, (0,))
        return Example([E.add(total, E.full_like(total, 1))], shared_bytes=_GPU)
    return Example([mean, sum_(E.mul(apart, apart), (0,))], shared_bytes=_GPU)


def _large() -> Example:
    """A value that is read for the last time where as much is written, and most is in use."""
    rows, columns = 1 << 12, 1 << 13
    value = matmul(given(rows, 64), given(64, columns))
    total = M.broadcast(sum_(value, (1,)), value.shape, (0,))
    return Example([matmul(E.div(value, total), given(columns, 8))])


def _kept() -> Example:
    """A large value is read twice, and two others as large are alive in between."""
    weight = given(512, 512)
    value = scan(given(64, 512), "sum", 1)
    other = sum_(matmul(matmul(value, weight), weight), (1,))
    last = scan(E.add(value, M.broadcast(other, value.shape, (0,))), "sum", 0)
    return Example([sum_(last, (0,))], budget=1_560_000)


def _chain() -> Example:
    x, y = given(4, 8), given(8)
    return Example([sum_(E.mul(E.apply("exp", x), M.broadcast(y, x.shape, (1,))), (1,))])


def _shared() -> Example:
    """A value that a kernel writes for two others, which could compute it from what they read."""
    x = given(512, 512)
    y = E.add(x, x)
    rows, columns = sum_(y, (1,)), sum_(y, (0,))
    last = E.mul(y, M.broadcast(E.apply("exp", rows), y.shape, (0,)))
    return Example([columns, last, rows], recompute=True)


def _reduced() -> Example:
    """A sum over ranks, and work that does not need it."""
    total = all_reduce(E.apply("exp", given(8, 8)), GroupName("world", "world", 2))
    return Example([E.mul(total, total), matmul(given(8, 8), given(8, 8))])


EXAMPLES: dict[str, Callable[[], Example]] = {
    "strip_autograd": lambda: Example([E.mul(tag(x := given(2)), x)]),
    "decompose": lambda: Example(
        [scatter(given(4, dtype=dtypes.bfloat16), given(2, dtype=dtypes.bfloat16),
                 [given(2, dtype=dtypes.int64)], (0,), "add")]
    ),
    "scale_results": lambda: Example(
        [matmul(given(2, 4), E.mul(E.cast(given(4, 3, dtype=dtypes.int8), dtypes.float32),
                                   M.broadcast(given(3), (4, 3), (1,))))]
    ),
    "lay_out_heads": lambda: Example(
        attention(*[M.permute(given(1, 8, 2, 4), (0, 2, 1, 3)) for _ in range(3)], None, 0.5,
                  False)[:1],
        computes=lambda node: node.op is ATTENTION,
    ),
    "prune_control_flow": lambda: _loop(0),
    "prepare_bodies": _body_with_a_tag,
    "fold_batch_norms": _norm,
    "winograd": lambda: Example(
        [conv2d(given(1, 64, 32, 32), w := given(64, 64, 3, 3), padding=1)], steady=[w]
    ),
    "pack_weights": lambda: Example([einsum("bk,ok->bo", given(80, 96), w := given(128, 96))],
                                    steady=[w]),
    "hoist": lambda: Example([matmul(given(2, 4), E.apply("exp", w := given(4, 3)))], steady=[w]),
    "check_indices": lambda: Example([gather(given(4, 3), [given(2, dtype=dtypes.int64)], (0,))]),
    "split_complex": lambda: Example([E.mul(z := given(2, dtype=dtypes.complex64), z)]),
    "simplify": lambda: Example(
        [M.permute(M.permute(E.neg(E.neg(given(2, 3))), (1, 0)), (1, 0)),
         M.slice_(M.slice_(given(20), (3,), (8,), (2,)), (1,), (2,), (3,))]
    ),
    "narrow_products": lambda: Example(
        [E.cast(matmul(*[E.cast(given(4, 4, dtype=dtypes.bfloat16), dtypes.float32)] * 2),
                dtypes.bfloat16)]
    ),
    "narrow_windows": lambda: Example(
        [M.slice_(conv2d(given(1, 2, 8, 8), given(3, 2, 3, 3), padding=1),
                  (0, 0, 1, 1), (1, 3, 6, 6), (1, 1, 1, 1))]
    ),
    "one_pass_moments": _moments,
    "precise_moments": lambda: Example([var(given(100, 8), 0)]),
    "widen_sums": lambda: Example(
        [scatter(given(4, dtype=dtypes.bfloat16), given(2, dtype=dtypes.bfloat16),
                 [given(2, dtype=dtypes.int64)], (0,), WIDE_ADD)], shared_bytes=_GPU
    ),
    "join_updates": lambda: Example(
        [scatter(given(8), given(100), [given(100, dtype=dtypes.int64)], (0,))], shared_bytes=_GPU
    ),
    "tile_sorts": lambda: Example(sort(given(600, dtype=dtypes.uint8), 0)[:1], shared_bytes=_GPU),
    "channels_last": _convolved,
    "fuse_relu": lambda: _convolved(rectified=True),
    "call_attention": lambda: Example(
        attention(*[given(1, 2, 8, 4, dtype=dtypes.bfloat16) for _ in range(3)], None, 0.5,
                  True)[:1],
        computes=lambda node: node.op is ATTENTION, libraries=Libraries(attention=_always),
    ),
    "fuse_bias": lambda: Example(
        [E.add(product := matmul(given(4, 8), given(8, 6)), M.broadcast(given(6), product.shape,
                                                                        (1,)))],
        libraries=Libraries(product_with_bias=lambda node: node.op.name == "contract"),
    ),
    "simplify_again": lambda: _moments(deviations=True),
    "fit_windows": lambda: Example(
        [M.slice_(conv2d(given(1, 2, 8, 8), given(3, 2, 3, 3), padding=1),
                  (0, 0, 1, 1), (1, 3, 6, 6), (1, 1, 1, 1))]
    ),
    "split_collectives": _reduced,
    "call_products": lambda: Example(
        [matmul(*[E.cast(given(8, 8, dtype=dtypes.bfloat16), dtypes.float32) for _ in range(2)])],
        libraries=Libraries(product=_always),
    ),
    "materialize": _chain,
    "rematerialize": lambda: Example(step(bent)[0]),
    "overwrite": lambda: Example([E.add(given(4), given(4))], pairs=[(0, 0)]),
    "group": _chain,
    "fuse": lambda: Example([E.add(y := E.apply("exp", given(4)), y), y]),
    "recompute": _shared,
    "order_kernels": lambda: Example(
        [E.add(x := given(8, 8), x), matmul(given(5, 8), x)], pairs=[(0, 0)]
    ),
    "overlap": _reduced,
    "schedule": lambda: Example([E.apply("exp", given(6, 40))]),
    "lower_bodies": lambda: _loop(0),
    "fit_memory": _kept,
    "fuse_iterations": lambda: replace(_loop(0), shared_bytes=_GPU),
    "join_launches": lambda: Example(
        [sum_(given(4, 8), (1,)), E.apply("exp", given(3))], shared_bytes=_GPU
    ),
    "reuse_memory": _large,
}  # fmt: skip


def short(text: str) -> str:
    """A printed form with at most so many lines; tags are numbered across a process."""
    lines = re.sub(r"number=-?\d+", "number=…", text).rstrip("\n").split("\n")
    more = [f"… {len(lines) - _MOST} more"] if len(lines) > _MOST else []
    return "\n".join([*lines[:_MOST], *more])


def printed() -> str:
    """Every pass with what it says of itself, and an example before and after it."""
    parts = []
    for each in PIPELINE:
        before, after = EXAMPLES[each.name]().texts()[each.name]
        shown = "(as it is)" if before == after else short(after)
        parts.append(f"==== {each.name}: {each.doc}\n{short(before)}\n---- becomes\n{shown}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    FILE.write_text(printed())
