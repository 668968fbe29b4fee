"""Which variables are equal in all lanes of a warp: these are scalars in code for CPUs.

A variable is *varying* if a varying value is assigned to it, or if it is assigned where only some
lanes of the warp are active and others go on with its old value. Lanes that have returned go on
with nothing, so a `return` makes nothing varying.
"""

from __future__ import annotations

from ridgeline.simt import ir, traversal

WARP = 32
_SAME_FOR_ALL = ("ballot", "any", "all", "activemask", "sum", "min", "max", "and", "or", "xor")


class Uniformity:
    """The varying variables of a program for blocks of a shape, and the loops lanes leave apart."""

    def __init__(self, program: ir.ThreadProgram, block: tuple[int, int, int]) -> None:
        self._block = block
        self.varying: set[str] = set()
        self.divergent: set[int] = set()  # loops, by id
        self._loops: list[int] = []
        before = -1
        while before != len(self.varying) + len(self.divergent):
            before = len(self.varying) + len(self.divergent)
            self._visit(program.body, False)

    def varies(self, expr: ir.ThreadExpr) -> bool:
        """True for a value that may differ between lanes."""
        match expr:
            case ir.Variable():
                return expr.name in self.varying
            case ir.Builtin():
                return self._builtin_varies(expr)
            case ir.ElementRead() if expr.array.space == "local":
                return True
        return any(map(self.varies, traversal.operands(expr)))

    def _builtin_varies(self, expr: ir.Builtin) -> bool:
        if expr.name == "laneid":
            return True
        if expr.name != "threadIdx" or self._block[expr.axis] == 1:
            return False
        inner = 1
        for size in self._block[: expr.axis]:
            inner *= size
        return inner % WARP != 0  # whole warps have one coordinate along this axis

    def _assign(self, target: ir.Variable | None, varies: bool) -> None:
        if target is not None and varies:
            self.varying.add(target.name)

    def _visit(self, body: tuple[ir.ThreadStmt, ...], apart: bool) -> None:
        for statement in body:
            self._statement(statement, apart)

    def _statement(self, statement: ir.ThreadStmt, apart: bool) -> None:
        match statement:
            case ir.Assign():
                self._assign(statement.target, apart or self.varies(statement.value))
            case ir.IfElse():
                inner = apart or self.varies(statement.condition)
                self._visit(statement.then, inner)
                self._visit(statement.otherwise, inner)
            case ir.WhileLoop():
                self._loop(statement, apart, self.varies(statement.condition))
            case ir.ForRange():
                bounds = (statement.start, statement.stop, statement.step)
                varies = any(map(self.varies, bounds))
                self._assign(statement.target, varies)
                self._loop(statement, apart, varies)
            case ir.Break() | ir.Continue():
                if apart:
                    self.divergent.add(self._loops[-1])
            case ir.VectorRead():
                varies = apart or statement.array.space == "local"
                for target in statement.targets:
                    self._assign(target, varies or any(map(self.varies, statement.index)))
            case ir.WarpOp():
                same = statement.name in _SAME_FOR_ALL and statement.mask is None
                self._assign(statement.target, apart or not same)
            case ir.Barrier():
                self._assign(statement.target, apart)
            case ir.Atomic():
                self._assign(statement.target, True)

    def _loop(self, loop: ir.WhileLoop | ir.ForRange, apart: bool, varies: bool) -> None:
        if varies:
            self.divergent.add(id(loop))
        self._loops.append(id(loop))
        self._visit(loop.body, apart or id(loop) in self.divergent)
        self._loops.pop()
