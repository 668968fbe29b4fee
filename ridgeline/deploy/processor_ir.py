"""LLVM IR that detects the processor and picks the best of a file's instruction sets."""

from __future__ import annotations

from ridgeline.deploy.table_ir import table
from ridgeline.deploy.tables import InstructionSet, Table

_CPUID = (
    "call {{ i32, i32, i32, i32 }} "
    'asm sideeffect "cpuid", "={{ax}},={{bx}},={{cx}},={{dx}},{{ax}},{{cx}},~{{dirflag}},'
    '~{{fpsr}},~{{flags}}"(i32 {leaf}, i32 {sub})'
)


def _cpuid(name: str, leaf: int, sub: int = 0) -> str:
    registers = "\n".join(
        f"  %{name}.{register} = extractvalue {{ i32, i32, i32, i32 }} %{name}, {number}"
        for number, register in enumerate("abcd")
    )
    return f"%{name} = {_CPUID.format(leaf=leaf, sub=sub)}\n{registers}"


def _found(number: int, name: str) -> str:
    return f"""%found.{number} = getelementptr i32, ptr %found, i64 {number}
  store i32 {name}, ptr %found.{number}"""


# What the processor has, and its system saves: eight words in the order of `instruction_sets`.
PROCESSOR = f"""
define internal void @processor(ptr %found) {{
entry:
  store [8 x i32] zeroinitializer, ptr %found
  {_cpuid("zero", 0)}
  {_cpuid("one", 1)}
  {_found(0, "%one.c")}
  {_found(1, "%one.d")}
  {_cpuid("extended", 0x80000000 - (1 << 32))}
  {_cpuid("more", 0x80000001 - (1 << 32))}
  {_found(2, "%more.c")}
  %saves.bit = and i32 %one.c, {1 << 27}
  %saves = icmp ne i32 %saves.bit, 0
  br i1 %saves, label %ask, label %later
ask:
  %saved = call {{ i32, i32 }} asm sideeffect "xgetbv", "={{ax}},={{dx}},{{cx}}"(i32 0)
  %kinds = extractvalue {{ i32, i32 }} %saved, 0
  {_found(3, "%kinds")}
  br label %later
later:
  %has.seven = icmp uge i32 %zero.a, 7
  br i1 %has.seven, label %seven, label %done
seven:
  {_cpuid("wide", 7)}
  {_found(4, "%wide.b")}
  {_found(5, "%wide.c")}
  {_found(6, "%wide.d")}
  %has.sub = icmp uge i32 %wide.a, 1
  br i1 %has.sub, label %sub, label %done
sub:
  {_cpuid("wider", 7, 1)}
  {_found(7, "%wider.a")}
  br label %done
done:
  ret void
}}

define internal i1 @suits(ptr %set, ptr %found) {{
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %more = icmp slt i64 %k, 8
  br i1 %more, label %look, label %yes
look:
  %mask.at = getelementptr i64, ptr %set, i64 %k
  %mask.wide = load i64, ptr %mask.at
  %mask = trunc i64 %mask.wide to i32
  %has.at = getelementptr i32, ptr %found, i64 %k
  %has = load i32, ptr %has.at
  %both = and i32 %mask, %has
  %all = icmp eq i32 %both, %mask
  br i1 %all, label %next, label %no
next:
  %k.next = add i64 %k, 1
  br label %head
yes:
  ret i1 true
no:
  ret i1 false
}}

define internal ptr @best_set() {{
entry:
  %found = alloca [8 x i32]
  call void @processor(ptr %found)
  {table("sets", Table.INSTRUCTION_SETS, "ptr")}
  {table("count", Table.INSTRUCTION_SET_COUNT)}
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %look, label %none
look:
  %offset = mul i64 %k, {int(InstructionSet.WORDS)}
  %set = getelementptr i64, ptr %sets, i64 %offset
  %good = call i1 @suits(ptr %set, ptr %found)
  br i1 %good, label %use, label %next
next:
  %k.next = add i64 %k, 1
  br label %head
use:
  ret ptr %set
none:
  ret ptr null
}}
"""
