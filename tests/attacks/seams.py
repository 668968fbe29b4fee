"""Device seams: programs over the host and two GPUs, with moves between, in every way to run.

The GPUs are pretended unless `--device cuda` says that there is one, which then stands for two.
"""

from __future__ import annotations

import os
import random
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import numpy as np

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.compiler import compile_graph
from ridgeline.errors import DeviceError
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import TensorType, leaf
from ridgeline.ops.elementwise import add
from ridgeline.runtime.buffer import space
from tests.attacks.attack import Attack
from tests.attacks.seam.program import Program, drawn_program
from tests.attacks.seam.run import (
    WAYS,
    Outcome,
    differences,
    outcome,
    ridgeline_outcome,
    thresholds,
)
from tests.cuda import machines
from tests.fuzz.faults import Fault

try:
    import torch
except ImportError:
    torch = None

PLACES = ("cpu", "cuda:0", "cuda:1")
_SIZES = ((5, 5), (17, 17), (5, 8))
_LARGE = ((5, 5), (3001, 3001), (5, 3001))  # of a real GPU
_TRIES = 50


class Wrong(AssertionError):
    """A program whose values are not those of the reference."""


def trial(seed: int) -> None:
    """Run one program in some ways; on both sides of every threshold in size."""
    real = os.environ.get("RIDGELINE_ATTACK_DEVICE") == "cuda"
    rng = random.Random(seed)
    program, wanted = _judged(rng, _LARGE if real else _SIZES)
    ways = [way for way in WAYS if way != "jit without gradients" or not program.differentiates]
    chosen = rng.sample(ways, 2)
    if not program.differentiates and rng.random() < 0.5:
        chosen[0] = "jit without gradients"  # what depends on state alone is hoisted
    if seed % 4 == 0:
        with _gpus(real):
            _refusals()
    small, tier = rng.random() < 0.7, rng.choice(("auto", "auto", "compiled"))
    for way in chosen:
        with _gpus(real), thresholds(small), rl.config.override(tier=tier):
            wrong = _wrong(program, wanted, way)
        if wrong:
            raise Wrong(f"{way}, tier {tier}, thresholds small: {small}\n{wrong}\n{program.text}")


def _refusals() -> None:
    """Programs of every place refuse memory of every other before they run."""
    memory = {place: space(place).take_in(np.ones(64, np.float32)) for place in PLACES}
    for place in PLACES:
        x = leaf(TensorType((64,), dtypes.float32, place))
        program = compile_graph(Graph([add(x, x)], [x]))
        for other, given in memory.items():
            try:
                program.run([given])
            except DeviceError:
                refused = True
            else:
                refused = False
            if refused != (other != place):
                raise Wrong(f"a program of {place} over memory of {other}: refused {refused}")


def _wrong(program: Program, wanted: Outcome, way: str) -> str:
    """What is wrong with a program in a way to run; an error as text, which holds no memory."""
    try:
        return differences(wanted, ridgeline_outcome(program, PLACES, way))
    except Exception:
        return traceback.format_exc()


def _judged(rng: random.Random, sizes: Sequence[tuple[int, int]]) -> tuple[Program, Outcome]:
    """A program that the reference can run, and what it gives."""
    for _ in range(_TRIES):
        program = drawn_program(rng, rng.choice(sizes))
        try:
            return program, _reference(program)
        except (RuntimeError, rl.RidgelineError):
            continue  # such as a write to what backward() will read
    raise AssertionError("no program can be judged")


def _reference(program: Program) -> Outcome:
    with rl.config.override(tier="interpreter"):
        return outcome(program, rl if torch is None else torch, ["cpu"] * len(PLACES))


@contextmanager
def _gpus(real: bool) -> Iterator[None]:
    if real:
        with machines.two_contexts():
            yield
        return
    with (
        TemporaryDirectory() as folder,
        machines.pretended_gpus() as driver,
        machines.pretended_code(driver, folder),
    ):
        yield


ATTACK = Attack(
    "seams",
    "a value is the same wherever it is computed, moved and read, and no code gets memory of "
    "another device",
    trial,
    short=12,
    faults=(
        Fault("what lies on another device is not copied", "execution.device_copies", "_reachable",
              "return memory if from_host else on(memory, device)", "return memory"),
        Fault("programs of the host take any address", "runtime.cuda.memory",
              "DeviceBuffer.__init__", "self.nbytes = nbytes",
              "self.nbytes = nbytes; type(self).address = property(lambda s: s.device_address)"),
        Fault("programs of a GPU take any address", "runtime.cuda.plan",
              "DevicePlan._numbers_among", "elif memory.device == self.device.name:", "elif True:"),
        Fault("a copy there and back is not waited for", "graph.passes.legalize.partition",
              "_waits", "return moves and", "return False and"),
        Fault("a pass drops copies", "graph.placement", "transfer",
              "node(TRANSFER, (source,), TransferAttrs(device))", "source"),
        Fault("a copy between GPUs copies nothing", "runtime.cuda.transfer", "copy_within",
              "if not size:", "if here is not there:"),
        Fault("a number on a GPU is not the host's", "runtime.cuda.plan", "_padded",
              "memory.nbytes)", "memory.nbytes)[:0]"),
        Fault("only the first chunk arrives", "runtime.cuda.transfer", "upload",
              "range(0, array.nbytes, CHUNK)", "range(0, min(array.nbytes, CHUNK), CHUNK)"),
    ),
)  # fmt: skip
