"""Ways through the thread IR: operands of expressions, expressions of statements, all below."""

from __future__ import annotations

from collections.abc import Iterator

from ridgeline.simt.ir import (
    ArrayFill,
    Assertion,
    Assign,
    AsyncCopy,
    Atomic,
    Barrier,
    Choose,
    Compute,
    Convert,
    ElementRead,
    ElementWrite,
    ForRange,
    FragmentFill,
    FragmentLoad,
    FragmentStore,
    IfElse,
    PrintOut,
    Reinterpret,
    ShortCircuit,
    ThreadExpr,
    ThreadStmt,
    VectorRead,
    VectorWrite,
    WarpOp,
    WhileLoop,
)


def operands(expr: ThreadExpr) -> tuple[ThreadExpr, ...]:
    """The direct operands of an expression, in the order of evaluation."""
    match expr:
        case Compute():
            return expr.operands
        case Convert() | Reinterpret():
            return (expr.value,)
        case Choose():
            return (expr.condition, expr.then, expr.otherwise)
        case ShortCircuit():
            return (expr.left, expr.right)
        case ElementRead():
            return (*expr.index, *(e for e in (expr.default, expr.peer) if e is not None))
    return ()


def expressions(statement: ThreadStmt) -> tuple[ThreadExpr, ...]:
    """The expressions a statement evaluates itself, in order; not those of statements in it."""
    match statement:
        case Assign():
            return (statement.value,)
        case ElementWrite():
            peer = () if statement.peer is None else (statement.peer,)
            return (*statement.index, *peer, statement.value)
        case VectorRead():
            return statement.index
        case VectorWrite():
            return (*statement.index, *statement.values)
        case IfElse() | WhileLoop() | Assertion():
            return (statement.condition,)
        case ForRange():
            return (statement.start, statement.stop, statement.step)
        case Barrier():
            return () if statement.value is None else (statement.value,)
        case WarpOp():
            parts = (statement.value, statement.argument, statement.mask)
            return tuple(e for e in parts if e is not None)
        case Atomic():
            return (
                *statement.index,
                *(e for e in (statement.compare, statement.value) if e is not None),
            )
        case AsyncCopy():
            return (*statement.target_index, *statement.source_index)
        case FragmentFill() | ArrayFill():
            return (statement.value,)
        case FragmentLoad() | FragmentStore():
            return (*statement.index, statement.stride)
        case PrintOut():
            return tuple(part for part in statement.parts if not isinstance(part, str))
    return ()


def walk(body: tuple[ThreadStmt, ...]) -> Iterator[ThreadStmt]:
    """All statements, parents first, in program order."""
    for statement in body:
        yield statement
        if isinstance(statement, IfElse):
            yield from walk(statement.then)
            yield from walk(statement.otherwise)
        elif isinstance(statement, (WhileLoop, ForRange)):
            yield from walk(statement.body)


def subexpressions(expr: ThreadExpr) -> Iterator[ThreadExpr]:
    """An expression and all below it, operands first."""
    for operand in operands(expr):
        yield from subexpressions(operand)
    yield expr
