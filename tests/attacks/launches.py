"""Attack: random kernels of threads, launched in every way, against Python's integers.

A kernel is phases of integer arithmetic between barriers, with shared memory, lanes that part,
loops of other lengths in each lane, and atomic sums. The same text is run by Python, thread after
thread. Blocks are no whole number of warps, lengths no whole number of blocks; arguments are
tensors, views, NumPy's arrays and results that are not computed yet. What reaches out of an array
is an error in every way, and the next launch is right.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Thread
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import simt
from ridgeline.scalars import Array
from ridgeline.simt.host.run import LaunchFault
from ridgeline.simt.kernel import SimtKernel
from tests.attacks.attack import Attack
from tests.fuzz.faults import Fault

PLACES = 8  # of the sums that all blocks share
WAYS = ("deferred", "eager", "jit", "threads")


@dataclass(frozen=True)
class Drawn:
    """A kernel's phases as lines of Python, and its launch."""

    phases: tuple[tuple[str, ...], ...]
    block: int
    blocks: int
    length: int

    @property
    def text(self) -> str:
        """The kernel."""
        lines = ['def drawn_kernel(x: i32["n"], h: inout[i32["m"]], y: out[i32["n"]]):']
        lines += [f"    s0, s1 = shared({self.block}, i32), shared({self.block}, i32)"]
        lines += ["    t, b = threadIdx.x, blockIdx.x", f"    i = b * {self.block} + t"]
        lines += ["    v = x.get(i, 3)", "    u = 0", "    s0[t] = v", "    s1[t] = t"]
        for phase in self.phases:
            lines += ["    syncthreads()", *("    " + line for line in phase)]
        return "\n".join([*lines, "    y.put(i, v)"])


class Draw:
    """Draws a kernel; what is read of shared memory is what the phase before has left there."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def kernel(self) -> Drawn:
        """Some phases, and a launch that does not fit the length."""
        draw = self.random
        block = draw.choice((1, 7, 31, 32, 33, 64, 96, 100, 128))
        blocks = draw.randint(1, 5)
        length = max(1, block * blocks - draw.randrange(block + 3))
        phases = [self._phase(number, block) for number in range(draw.randint(1, 4))]
        phases[-1] += (f"atomic_add(h[v & {PLACES - 1}], u ^ v)",)
        return Drawn(tuple(phases), block, blocks, length)

    def _phase(self, number: int, block: int) -> tuple[str, ...]:
        read, written = f"s{number % 2}", f"s{(number + 1) % 2}"
        lines: list[str] = []
        for _ in range(self.random.randint(1, 4)):
            lines += self._statement(read, block)
        return (*lines, f"{written}[t] = {self._number(read, block)}")

    def _statement(self, read: str, block: int) -> list[str]:
        draw, number = self.random, self._number
        kind = draw.choice(("set", "if", "else", "loop", "while", "atomic"))
        target = draw.choice("uv")
        change = f"{target} = {number(read, block)}"
        if kind == "set":
            return [change]
        if kind == "if":
            return [f"if {self._test(read, block)}:", f"    {change}"]
        if kind == "else":
            other = f"    v = {number(read, block)}"
            return [f"if {self._test(read, block)}:", f"    {change}", "else:", other]
        if kind == "loop":
            return [f"for o in range({draw.choice(('t % 5', 'b + 2', '3', '(v & 7)'))}):",
                    f"    {target} += {number(read, block)} ^ o"]  # fmt: skip
        if kind == "while":
            return ["w = (v & 15)", "while w > 0:", f"    {target} = {number(read, block)} + w",
                    f"    w -= {draw.randint(1, 4)}"]  # fmt: skip
        return [
            f"if {self._test(read, block)}:",
            f"    atomic_add(h[({number(read, block)}) & {PLACES - 1}], {number(read, block)})",
        ]

    def _number(self, read: str, block: int, depth: int = 2) -> str:
        draw = self.random
        if depth == 0 or draw.random() < 0.3:
            shared = f"{read}[(t + {draw.randrange(block)}) % {block}]"
            return draw.choice(("t", "b", "i", "u", "v", shared, str(draw.randint(-99, 99))))
        one, other = (self._number(read, block, depth - 1) for _ in range(2))
        kind = draw.choice(("+", "-", "*", "&", "|", "^", "//", "%", "<<"))
        if kind in ("//", "%"):
            return f"(({one} & 1023) {kind} {draw.randint(1, 37)})"
        if kind == "<<":
            return f"(({one} & 255) << ({other} & 7))"
        return f"({one} {kind} {other})"

    def _test(self, read: str, block: int) -> str:
        one = self._number(read, block, 1)
        return (
            f"({one} & 63) {self.random.choice(('<', '>', '==', '!='))} {self.random.randrange(64)}"
        )


def by_python(drawn: Drawn, x: Array, h: Array) -> tuple[Array, Array]:
    """The results and the sums, thread after thread in every phase."""
    codes = [compile("\n".join(phase), "<phase>", "exec") for phase in drawn.phases]
    y, sums = np.zeros(drawn.length, np.int64), h.astype(np.int64)

    def atomic_add(place: _Place, value: int) -> None:
        sums[place.index] = _wrapped(int(sums[place.index]) + value)

    for b in range(drawn.blocks):
        threads = []
        shared = ([0] * drawn.block, list(range(drawn.block)))
        for t in range(drawn.block):
            i = b * drawn.block + t
            v = int(x[i]) if i < len(x) else 3
            shared[0][t] = v
            names = {"t": t, "b": b, "i": i, "v": v, "u": 0}
            threads.append({**names, "h": _Places(), "atomic_add": atomic_add})
        for number, code in enumerate(codes):
            left = shared[(number + 1) % 2]
            for names in threads:
                written = [0] * drawn.block  # what the phase leaves is seen by the next one alone
                names |= {f"s{number % 2}": shared[number % 2], f"s{(number + 1) % 2}": written}
                exec(code, names)
                names["u"], names["v"] = _wrapped(names["u"]), _wrapped(names["v"])
                left[names["t"]] = _wrapped(written[names["t"]])
        for names in threads:
            if names["i"] < drawn.length:
                y[names["i"]] = names["v"]
    return y.astype(np.int32), sums.astype(np.int32)


class _Places:
    def __getitem__(self, index: int) -> _Place:
        return _Place(index)


@dataclass(frozen=True)
class _Place:
    index: int


def _wrapped(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def trial(seed: int) -> None:
    """One kernel, simulated and launched, and the same with an access out of bounds."""
    draw = Draw(seed)
    drawn = draw.kernel()
    random_numbers = np.random.default_rng(seed)
    x = random_numbers.integers(-(2**31), 2**31, drawn.length).astype(np.int32)
    h = random_numbers.integers(-9, 9, PLACES).astype(np.int32)
    kernel = simt.kernel(drawn.text)
    wanted = by_python(drawn, x, h)
    simulated = kernel.simulate(drawn.blocks, drawn.block, x, h.copy())
    assert not simulated.errors, [finding.text() for finding in simulated.errors]
    _same(drawn, "simulated", (simulated.outputs["y"], simulated.outputs["h"]), wanted)
    way = WAYS[seed % len(WAYS)]
    _launched(drawn, kernel, way, x, h, wanted, draw.random)
    if seed % 3 == 0:
        _out_of_bounds(drawn, way)


def _launched(
    drawn: Drawn, kernel: SimtKernel, way: str, x: Array, h: Array, wanted: Any, draw: random.Random
) -> None:
    def launch(given: Any, sums: Any) -> Any:
        return kernel[drawn.blocks, drawn.block](given, sums)

    if way == "threads":
        _from_threads(lambda: _twice(drawn, rl.jit(launch), x, h, wanted, draw))
        return
    call = rl.jit(launch) if way == "jit" else launch
    with rl.eager() if way == "eager" else nullcontext():
        _twice(drawn, call, x, h, wanted, draw)


def _twice(
    drawn: Drawn, call: Callable[[Any, Any], Any], x: Array, h: Array, wanted: Any, draw: Any
) -> None:
    """Three calls, each from the same sums: what a call finds of the one before shows."""
    sums = rl.tensor(h)
    for _ in range(3):
        given = _argument(x, draw.randrange(4))
        y = call(given, sums)
        _same(drawn, "launched", (y.numpy(), sums.numpy()), wanted)
        sums.copy_(rl.tensor(h))


def _argument(x: Array, form: int) -> Any:
    """The numbers as a tensor, a view, a result that is not computed yet, or over an array."""
    if form == 0:
        return rl.tensor(x)
    if form == 1:
        return rl.tensor(np.stack([x, ~x], 1))[:, 0]
    if form == 2:
        return rl.tensor(x ^ 5) ^ 5
    return rl.from_numpy(x.copy())


def _from_threads(run: Callable[[], None]) -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            run()
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def _out_of_bounds(drawn: Drawn, way: str) -> None:
    """The last thread reads behind the end: an error, and the next launch is right."""
    reach = drawn.block * drawn.blocks
    text = (
        'def reaching(x: i32["n"], y: out[i32["n"]], far: i32):\n'
        f"    i = blockIdx.x * {drawn.block} + threadIdx.x\n"
        "    y.put(i, x[i + far])"
    )
    kernel = simt.kernel(text)
    x = rl.arange(reach, dtype=rl.int32)

    def launch(x: rl.Tensor, far: int) -> Any:
        return kernel[drawn.blocks, drawn.block](x, far)

    call = rl.jit(launch) if way == "jit" else launch
    with rl.eager() if way == "eager" else nullcontext():
        for far in (0, 1, 0, reach, 0):
            try:
                found = call(x, far).tolist()
            except LaunchFault:
                assert far, "a launch inside of its arrays was refused"
            else:
                assert not far, "a read behind the end of an array went unnoticed"
                assert found == list(range(reach))


def _same(drawn: Drawn, what: str, found: tuple[Any, ...], wanted: tuple[Array, ...]) -> None:
    for name, got, known in zip(("results", "sums"), found, wanted):
        wrong = np.flatnonzero(np.asarray(got) != known)
        assert not wrong.size, (
            f"{what}: {len(wrong)} of the {name}, the first at {wrong[0]} is {got[wrong[0]]} "
            f"instead of {known[wrong[0]]}; {drawn.blocks} blocks of {drawn.block}\n{drawn.text}"
        )


ATTACK = Attack(
    "launches",
    "a launch gives what its threads compute, in every way to run, and reaches out of no array",
    trial,
    short=8,
    faults=(
        Fault(
            "reads out of bounds go on",
            "simt.host.accesses",
            "WarpAccesses.element",
            "self.report_outside(inside, expr.place)",
            "pass",
        ),
        Fault(
            "both sides of a branch are taken",
            "simt.host.statements",
            "WarpStatements._if_else",
            'self.apply("not", dtypes.bool_, condition)',
            "condition",
        ),
        Fault(
            "the last lane adds nothing",
            "simt.host.warp_ops",
            "WarpCollectives._in_turn",
            "icmp ult i32 {following}, {WARP}",
            "icmp ult i32 {following}, {WARP - 1}",
        ),
    ),
)
