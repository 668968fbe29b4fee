"""Faults to plant, one at a time, in every part of the path: the fuzzer must find them.

A fault replaces a piece of one function's text. The function keeps its identity, so everybody who
imported it runs the changed code.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """In `function` of `module`, `old` becomes `new`."""

    name: str
    module: str
    function: str
    old: str
    new: str


FAULTS = (
    Fault("a permutation is read the other way round", "loops.lowering.iteration_space",
          "through_permute", "index[order.index(axis)]", "index[order[axis]]"),
    Fault("a split axis keeps no remainder", "loops.lowering.iteration_space", "_unflatten",
          "if position != real[0]:", "if False:"),
    Fault("the last element of a remainder is left out", "loops.steps.nest", "Split._split",
          "return sequence(pieces, piece(ir.index(whole * factor), rest))",
          "return sequence(pieces, piece(ir.index(whole * factor), max(rest - 1, 1)))"),
    Fault("the last partial sum is not joined", "loops.steps.rfactor", "Rfactor._factored",
          'after.append(ir.For(self.axis, ir.index(lanes), join, "reduce"))',
          'after.append(ir.For(self.axis, ir.index(max(lanes - 1, 1)), join, "reduce"))'),
    Fault("a maximum starts at zero", "loops.monoids", "_lowest", "-math.inf, dtype", "0.0, dtype"),
    Fault("places are counted along the first axis", "loops.lowering.lower",
          "GroupLowering._fold_values", "space.full_index[fold.attrs.axis]", "space.full_index[0]"),
    Fault("integer division rounds to zero", "codegen.llvm.scalar_ops",
          "ScalarEmitter._integer_division",
          'adjust = self.both(self._compare("ne", rest, zero), differ)',
          'adjust = self._compare("lt", zero, zero)'),
    Fault("the remainder has the dividend's sign", "codegen.llvm.scalar_ops",
          "ScalarEmitter._float_mod", "self.both(nonzero, differ)", "nonzero"),
    Fault("truth values widen with a sign", "codegen.llvm.scalar_ops", "ScalarEmitter.convert",
          '"sext" if source_kind == "int" else "zext"', '"sext"'),
    Fault("memory is reused one step early", "compiler.memory_plan", "plan_arena",
          "own.first <= ranges[i].last", "own.first < ranges[i].last"),
    Fault("a transposed value is taken for its memory", "fusion.materialize", "in_memory",
          "while node.op in (RESHAPE, STOP_GRADIENT, ALIAS)",
          'while node.op.name in ("reshape", "stop_gradient", "permute")'),
    Fault("programs are known without their attributes", "graph.graph", "structure_of",
          "rows += (node.op, attrs)", "rows += (node.op,)"),
    Fault("a changed global goes unnoticed", "tracing.reads.holds", "Guards.broken",
          "self.holds()", "True"),
    Fault("jit forgets what it drew", "tracing.executable", "Executable._note",
          "generator._offset + count", "generator._offset"),
    Fault("every scatter adds", "loops.lowering.own_loops", "_scatter",
          "_JOINS[node.attrs.mode]", '"sum"'),
    Fault("a scan from the end starts at the front", "loops.lowering.own_loops", "_along",
          "if reverse:", "if False:"),
    Fault("strides of a window are lost", "loops.lowering.lower", "mapped",
          "iteration[number] * coefficient", "iteration[number]"),
    Fault("a joined part begins one late", "loops.lowering.lower", "GroupLowering._pieces",
          "index[axis] < end", "index[axis] <= end"),
    Fault("random words in another order", "loops.math.philox", "philox",
          "((2, x2), (1, x1), (0, x0))", "((2, x1), (1, x2), (0, x0))"),
    Fault("the gradient of a choice goes to the other side", "ops.elementwise", "_chosen",
          "if i == 1 else", "if i == 2 else"),
    Fault("a write through a permuted view", "record.cells", "write_steps",
          "order.index(a) for a", "order[a] for a"),
    Fault("a slice is written one place late", "record.cells", "_write_slice",
          "between = tuple(s - 1 for s in steps)", "between = tuple(0 for s in steps)"),
)  # fmt: skip


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """Inside, the fault is there; nothing compiled before or inside is used on the other side."""
    function = _find(fault)
    before = function.__code__
    function.__code__ = _changed(function, fault)
    _forget_compiled()
    try:
        with _by_python():
            yield
    finally:
        function.__code__ = before
        _forget_compiled()


def _by_python() -> AbstractContextManager[None]:
    """Inside, no machine code is used that was made of the function before."""
    from ridgeline.config import config

    return config.override(native_tape=False)


def _find(fault: Fault) -> FunctionType:
    found: Any = importlib.import_module(f"ridgeline.{fault.module}")
    for part in fault.function.split("."):
        found = getattr(found, part)
    found = inspect.unwrap(found)  # a public function is behind the recorder's
    assert isinstance(found, FunctionType), fault.function
    return found


def _changed(function: FunctionType, fault: Fault) -> Any:
    text = textwrap.dedent(inspect.getsource(function))
    assert fault.old in text, f"{fault.name}: {fault.function} reads differently now"
    text = text[text.index("def ") :]
    names: dict[str, Any] = {}
    # annotations are not evaluated, and a closure (such as a cell of `super`) is not needed
    exec("from __future__ import annotations\n" + text.replace(fault.old, fault.new), names)
    return names[function.__name__].__code__


def _forget_compiled() -> None:
    from ridgeline.compiler import program
    from ridgeline.config import config
    from ridgeline.execution import tiers
    from ridgeline.runtime.cpu import backend

    with config.override():  # a tape is about the settings that it was recorded under
        pass
    program._programs.clear()
    backend.machine_code.clear()
    tiers._pieces.clear()
