"""torch's own samples with one argument made wrong: an answer or a clear error, nothing else.

Where random arguments mostly fail at the first check, these reach far into a function: only one
thing is wrong with them.
"""

from __future__ import annotations

import random
import signal
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.record import recorder
from ridgeline.tensors import dispatch
from tests.functions.test_arguments import HUGE

conformance = pytest.importorskip("tests.functions.test_conformance")
torch = conformance.torch

PARTS = 8
LONGEST = 20  # seconds that a call may take on a busy machine
WRONG: list[Any] = [
    None, "a", "", 1.5, float("nan"), float("inf"), -1, 0, 1, -7, 100, True, 1j, slice(1), ...,
    b"x", [],
    [0], [-9], [1.5], ["a"], [None], (), (1,) * 9, {}, len, rl.float32, rl.bool, "cuda", *HUGE,
    [2**63], np.ones(3), np.array("x"), rl.ones(()), rl.zeros(0), rl.ones(7), rl.ones((1,) * 6),
    rl.full((3,), 99), rl.full((3,), -99), rl.ones(5, 5, dtype=rl.complex64),
    rl.ones(5, dtype=rl.bool), rl.full((5, 5), float("nan")), rl.ones(5, dtype=rl.float8_e5m2),
]  # fmt: skip


class Endless(BaseException):
    """A call that did not come back."""


@contextmanager
def limited() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise Endless

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def other_tensor(tensor: rl.Tensor, draw: random.Random) -> rl.Tensor:
    """A tensor like another, but of another type, rank or size, or with other values."""
    x = tensor.detach()
    kinds = [rl.int64, rl.bool, rl.complex64, rl.float64, rl.bfloat16, rl.uint8, rl.float8_e4m3fn]
    choices = [
        lambda: x.to(draw.choice(kinds)), lambda: x.unsqueeze(0), lambda: x.flatten(),
        lambda: x[..., :0] if x.dim() else x.reshape(1), lambda: x.reshape(-1)[:1].reshape(()),
        lambda: rl.cat([x, x], -1) if x.dim() else x,
        lambda: x + 1000 if x.dtype is rl.int64 else x,
    ]  # fmt: skip
    return draw.choice(choices)() if x.numel() else x.reshape(0)


def spoiled(value: Any, draw: random.Random) -> Any:
    """Another value in the place of one argument, or of one element of a list."""
    if isinstance(value, rl.Tensor) and draw.random() < 0.6:
        return other_tensor(value, draw)
    if isinstance(value, list | tuple) and value and draw.random() < 0.5:
        parts = list(value)
        place = draw.randrange(len(parts))
        parts[place] = spoiled(parts[place], draw)
        return type(value)(parts) if type(value) in (list, tuple) else parts
    return draw.choice(WRONG)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_one_wrong_argument(part: int) -> None:
    bad = []
    for op in conformance.entries()[part::PARTS]:
        if op.variant_test_name == "singular":  # its samples are not the function's arguments
            continue
        draw = random.Random(zlib.crc32(op.full_name.encode()))
        torch.manual_seed(0)
        samples = list(islice(conformance.samples(op, torch.float32), 6))
        for sample in draw.sample(samples, min(3, len(samples))):
            arguments = conformance.ORDER.get(op.name, list)([sample.input, *sample.args])
            try:
                values, named = conformance.translated([arguments, sample.kwargs], [])
            except conformance.Foreign:
                continue
            first = 0 if "." in op.name or op.name in dispatch.FUNCTIONS else 1  # x.method()
            places = [*range(first, len(values)), *named]
            if not places:
                continue
            place = draw.choice(places)
            holder = values if isinstance(place, int) else named
            holder[place] = spoiled(holder[place], draw)
            try:
                with limited():
                    conformance.found(rl, op.name)(*values, **named)
                    recorder.flush()
            except rl.RidgelineError:
                pass
            except (Exception, Endless) as error:
                bad.append(f"{op.full_name}({values}, {named}): {error!r}"[:600])
    assert not bad, "\n".join(bad[:10])
