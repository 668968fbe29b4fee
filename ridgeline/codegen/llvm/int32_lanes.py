"""Integer arithmetic on 32-bit lanes, for the bits of floats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline import dtypes
from ridgeline.codegen.llvm.types import vector
from ridgeline.loops import ir

if TYPE_CHECKING:
    from ridgeline.codegen.llvm.scalar_ops import ScalarEmitter, Value


class Words:
    """Operations on words, and literals of them, in so many lanes."""

    def __init__(self, emit: ScalarEmitter, lanes: int) -> None:
        self.emit, self.lanes = emit, lanes

    def word(self, number: int) -> Value:
        """A literal in every lane."""
        return self.emit.widen(self.emit.constant(ir.const(number, dtypes.uint32)), self.lanes)

    def op(self, name: str, a: Value, b: Value) -> Value:
        """One operation; shifts are by literals that are in range."""
        if name in ("shl", "shr"):
            opcode = "shl" if name == "shl" else "lshr"
            kind = vector("i32", self.lanes)
            return self.emit.instruction(f"{opcode} {kind} {a.name}, {b.name}", a.dtype, a, b)
        return self.emit.apply(name, dtypes.uint32, a, b)
