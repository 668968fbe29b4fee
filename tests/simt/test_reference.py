"""The simulator against a tiny interpreter of the same text, over changed and random kernels."""

from __future__ import annotations

import random
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ridgeline.errors import RidgelineError
from ridgeline.simt.frontend.source import capture
from ridgeline.simt.kernel import SimtKernel, kernel, with_language
from ridgeline.simt.simulator.simulate import SimulationOptions
from tests.simt import cuda_samples, gpu_puzzles, rodinia
from tests.simt.labelled import CASES, Case
from tests.simt.mutants import Mutant, mutants
from tests.simt.reference import Outcome, Reference, Unsupported, every_schedule
from tests.simt.signal_programs import LAUNCH, signal_program
from tests.simt.test_races import FILES
from tests.simt.three_ways import Solved

WARNINGS = {"same-value race", "barrier after exit"}
MOST_THREADS = 130
assert FILES


@dataclass(frozen=True)
class Base:
    """A kernel and its launch, whatever list it is from."""

    kernel: SimtKernel
    grid: Any
    block: Any
    arguments: tuple[Any, ...]
    constants: dict[str, Any]

    @property
    def name(self) -> str:
        return self.kernel.__name__

    @property
    def text(self) -> str:
        lines = textwrap.dedent("\n".join(self.kernel.captured.source.lines))
        return lines[lines.index("def ") :]

    def reference(self, text: str) -> Reference:
        names = self.kernel.captured.names()
        return Reference(text, self.grid, self.block, self.arguments, self.constants, names)

    def errors(self, text: str) -> set[str] | None:
        """What the simulator reports of a text in place of the kernel's; None if it is refused."""
        try:
            made = SimtKernel(capture(with_language(text, self.kernel.captured.names())))
        except RidgelineError:
            return None
        options = SimulationOptions(limit=20_000)
        found = made.simulate(self.grid, self.block, *self.arguments, options=options,
                              **self.constants)  # fmt: skip
        return {finding.kind for finding in found.errors}


def _of_case(case: Case) -> Base:
    constants = {key: value for key, value in case.keywords.items() if key != "options"}
    return Base(case.kernel, case.grid, case.block, case.arguments, constants)


def _of_solved(solved: Solved) -> Base:
    return Base(solved.threads, solved.grid, solved.block, solved.arguments, solved.keywords)


def _bases() -> list[Base]:
    solved = [*rodinia.SOLVED, *gpu_puzzles.SOLVED, *cuda_samples.SOLVED]
    every = [*map(_of_case, CASES), *map(_of_solved, solved)]
    found = []
    for base in every:
        try:
            small = base.reference(base.text).launch.threads <= MOST_THREADS
        except (Unsupported, KeyError, ValueError):
            continue
        if small:
            found.append(base)
    return found


BASES = _bases()


def truth(reference: Reference, seeds: range) -> set[str]:
    """The mistakes that some of a few orders of the threads show."""
    kinds: set[str] = set()
    for seed in (None, *seeds):
        kinds |= reference.run(seed).kinds - WARNINGS
        if kinds:
            break
    return kinds


def disagreement(base: Base, mutant: Mutant) -> str | None:
    """How the simulator's verdict differs from the interpreter's, if it does."""
    try:
        reference = base.reference(mutant.text)
        wanted = truth(reference, range(5))
    except (Unsupported, NameError, TypeError, ValueError, ZeroDivisionError, AssertionError):
        return None
    found = base.errors(mutant.text)
    if found is None or bool(found) == bool(wanted):
        return None
    if found and truth(reference, range(5, 60)):
        return None  # a mistake that few orders show
    return f"{base.name}, {mutant.what}: {found or 'nothing'}, not {wanted}\n{mutant.text}"


def random_mutants(seed: int, many: int) -> list[str]:
    draw = random.Random(seed)
    found = []
    for _ in range(many):
        base = draw.choice(BASES)
        if changed := list(mutants(base.text)):
            found.append(disagreement(base, draw.choice(changed)))
    return [text for text in found if text]


@pytest.mark.parametrize("seed", range(4))
def test_changed_kernels(seed: int) -> None:
    assert not random_mutants(seed, 10)


@pytest.mark.slow
def test_many_changed_kernels() -> None:
    assert not random_mutants(100, 3000)


def check_signals(seed: int, most: int = 2000) -> None:
    """All orders of the threads of a random program, against three of the simulator's."""
    text = signal_program(seed)
    memory = [np.zeros(4, np.int32) for _ in range(3)]
    kinds: set[str] = set()
    outcomes: list[Outcome] = []
    for outcome in every_schedule(Reference(text, *LAUNCH, memory, {}), most):
        outcomes.append(outcome)
        kinds |= outcome.kinds
        if "global race" in kinds:
            break
    if "never ends" in kinds and "global race" not in kinds:
        return
    found = kernel(text).simulate(*LAUNCH, *memory)
    if "global race" in kinds:
        assert found.errors, text
    elif len(outcomes) < most:
        assert not found.errors, text


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_threads_that_signal(start: int) -> None:
    for seed in range(start, start + 10):
        check_signals(seed, 300)


@pytest.mark.slow
def test_many_threads_that_signal() -> None:
    for seed in range(40, 3000):
        check_signals(seed)


def racing(text: str, *arguments: Any) -> set[str]:
    return truth(Reference(text, 2, 4, arguments, {}), range(30))


def test_the_interpreter_itself() -> None:
    """Labels that follow from the rules of CUDA alone."""
    x, flag = np.zeros(8, np.int32), np.zeros(1, np.int32)
    head = 'def k(x: inout[i32["n"]], f: inout[i32["m"]]):\n    t = threadIdx.x\n'
    shared_read = (head + "    s = shared(4, i32)\n    s[t] = t\n    {}\n"
                   "    x[blockIdx.x * 4 + t] = s[3 - t]")  # fmt: skip
    assert racing(shared_read.format("pass"), x, flag) == {"shared race"}
    assert not racing(shared_read.format("syncthreads()"), x, flag)
    assert not racing(shared_read.format("syncwarp()"), x, flag)
    assert racing(head + "    x[8] = 1", x, flag) == {"out of bounds"}
    assert racing(head + "    s = shared(4, i32)\n    x[t] = s[t]", x, flag) >= {"uninitialised"}
    assert racing(head + "    if t == 1:\n        syncthreads()", x, flag) == {"divergent barrier"}
    assert not racing(head + "    f[0] = 1", x, flag)  # all write the same
    last = (head + "    x[blockIdx.x] = 7\n    {}\n    if t == 0 and atomic_add(f[0], 1) == 1:\n"
            "        {}\n        x[7] = x[0] + x[1]")  # fmt: skip
    assert racing(last.format("pass", "pass"), x, flag) == {"global race"}
    assert racing(last.format("threadfence()", "threadfence()"), x, flag) == {"global race"}
    one = last.replace("x[blockIdx.x] = 7", "if t == 0:\n        x[blockIdx.x] = 7")
    assert not racing(one.format("threadfence()", "threadfence()"), x, flag)
    assert racing(one.format("threadfence_block()", "threadfence()"), x, flag) == {"global race"}
