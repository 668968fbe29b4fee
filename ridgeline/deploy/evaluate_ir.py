"""LLVM IR that evaluates size expressions: a stack machine over the code in a table."""

from __future__ import annotations

from ridgeline.deploy.tables import POOL, STACK, Operation
from ridgeline.runtime.cpu.pool_ir import LIMIT


def _binary(operation: Operation, work: str) -> str:
    name = operation.name.lower()
    return f"""
{name}:
  {work}
  br label %pushed.{name}
pushed.{name}:
  %{name}.depth = sub i64 %depth, 1
  %{name}.top = sub i64 %depth, 2
  %{name}.at = getelementptr i64, ptr %stack, i64 %{name}.top
  store i64 %{name}.value, ptr %{name}.at
  br label %next
"""


_BINARY = {
    Operation.ADD: "%add.value = add i64 %left, %right",
    Operation.MULTIPLY: "%multiply.value = mul i64 %left, %right",
    Operation.FLOOR_DIVIDE: """%zero.d = icmp eq i64 %right, 0
  %safe.d = select i1 %zero.d, i64 1, i64 %right
  %quotient = sdiv i64 %left, %safe.d
  %back = mul i64 %quotient, %safe.d
  %rest.d = sub i64 %left, %back
  %signs = xor i64 %rest.d, %safe.d
  %apart = icmp slt i64 %signs, 0
  %uneven = icmp ne i64 %rest.d, 0
  %below = and i1 %apart, %uneven
  %less.d = zext i1 %below to i64
  %floored = sub i64 %quotient, %less.d
  %floor_divide.value = select i1 %zero.d, i64 0, i64 %floored""",
    Operation.MODULO: """%zero.m = icmp eq i64 %right, 0
  %safe.m = select i1 %zero.m, i64 1, i64 %right
  %rest.m = srem i64 %left, %safe.m
  %signs.m = xor i64 %rest.m, %safe.m
  %apart.m = icmp slt i64 %signs.m, 0
  %uneven.m = icmp ne i64 %rest.m, 0
  %below.m = and i1 %apart.m, %uneven.m
  %more.m = select i1 %below.m, i64 %safe.m, i64 0
  %modulo.value = add i64 %rest.m, %more.m""",
    Operation.MINIMUM: """%smaller = icmp slt i64 %left, %right
  %minimum.value = select i1 %smaller, i64 %left, i64 %right""",
    Operation.MAXIMUM: """%larger = icmp sgt i64 %left, %right
  %maximum.value = select i1 %larger, i64 %left, i64 %right""",
    Operation.LESS: """%is.less = icmp slt i64 %left, %right
  %less.value = zext i1 %is.less to i64""",
    Operation.EQUAL: """%is.equal = icmp eq i64 %left, %right
  %equal.value = zext i1 %is.equal to i64""",
}
_OPERANDS = {
    Operation.CONSTANT: "%constant.value = add i64 %operand, 0",
    Operation.SIZE: """%size.from = getelementptr i64, ptr %sizes, i64 %operand
  %size.value = load i64, ptr %size.from""",
    Operation.REGISTER: """%register.from = getelementptr i64, ptr %registers, i64 %operand
  %register.value = load i64, ptr %register.from""",
    Operation.THREADS: f"""%threads.from = getelementptr i8, ptr @"{POOL}", i64 {LIMIT}
  %threads.value = load atomic i64, ptr %threads.from monotonic, align 8""",
}


def _unary(operation: Operation, work: str) -> str:
    name = operation.name.lower()
    return f"""
{name}:
  {work}
  %{name}.depth = add i64 %depth, 1
  %{name}.at = getelementptr i64, ptr %stack, i64 %depth
  store i64 %{name}.value, ptr %{name}.at
  br label %next
"""


# An operation is two words, of which few use the second. The stack has room for all there are.
EVALUATE = f"""
define internal void @evaluate(ptr %code, i64 %count, ptr %registers, ptr %sizes) {{
entry:
  %stack = alloca [{STACK} x i64]
  br label %next
next:
  %index = phi i64 [ 0, %entry ], [ %index, %binary ], [ %index.more, %end ]
    {"".join(f", [ %index, %{o.name.lower()} ]" for o in _OPERANDS)}
    {"".join(f", [ %index, %pushed.{o.name.lower()} ]" for o in _BINARY)}
  %depth = phi i64 [ 0, %entry ], [ %depth, %binary ], [ 0, %end ]
    {"".join(f", [ %{o.name.lower()}.depth, %{o.name.lower()} ]" for o in _OPERANDS)}
    {"".join(f", [ %{o.name.lower()}.depth, %pushed.{o.name.lower()} ]" for o in _BINARY)}
  %cursor = phi ptr [ %code, %entry ], [ %cursor.next, %binary ], [ %cursor.next, %end ]
    {"".join(f", [ %cursor.next, %{o.name.lower()} ]" for o in _OPERANDS)}
    {"".join(f", [ %cursor.next, %pushed.{o.name.lower()} ]" for o in _BINARY)}
  %more = icmp slt i64 %index, %count
  br i1 %more, label %step, label %done
step:
  %operation = load i64, ptr %cursor
  %operand.at = getelementptr i64, ptr %cursor, i64 1
  %operand = load i64, ptr %operand.at
  %cursor.next = getelementptr i64, ptr %cursor, i64 2
  %is.binary = icmp sge i64 %operation, {int(Operation.ADD)}
  br i1 %is.binary, label %operands, label %choose
choose:
  switch i64 %operation, label %end [
    {" ".join(f"i64 {int(o)}, label %{o.name.lower()}" for o in _OPERANDS)}
  ]
operands:
  %right.place = sub i64 %depth, 1
  %right.at = getelementptr i64, ptr %stack, i64 %right.place
  %right = load i64, ptr %right.at
  %left.place = sub i64 %depth, 2
  %left.at = getelementptr i64, ptr %stack, i64 %left.place
  %left = load i64, ptr %left.at
  switch i64 %operation, label %binary [
    {" ".join(f"i64 {int(o)}, label %{o.name.lower()}" for o in _BINARY)}
  ]
binary:
  br label %next
{"".join(_unary(o, work) for o, work in _OPERANDS.items())}
{"".join(_binary(o, work) for o, work in _BINARY.items())}
end:
  %result = load i64, ptr %stack
  %result.at = getelementptr i64, ptr %registers, i64 %index
  store i64 %result, ptr %result.at
  %index.more = add i64 %index, 1
  br label %next
done:
  ret void
}}
"""
