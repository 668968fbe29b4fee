"""The C interface of every program file, as LLVM IR.

What a program is stands in tables (`tables.py`). An opened program is one block of memory: words,
its state, and what was computed from weights when it was opened. Runs may overlap: each has memory
of its own, and the last one's is kept for the next. Runs of a program that changes state go one
after the other. No call keeps anything for a thread, so errors are numbers with fixed texts.
"""

from __future__ import annotations

from ridgeline.deploy.evaluate_ir import EVALUATE
from ridgeline.deploy.half_ir import HALF
from ridgeline.deploy.processor_ir import PROCESSOR
from ridgeline.deploy.table_ir import each_row, set_word, table, word
from ridgeline.deploy.tables import (
    POOL,
    TABLE,
    Base,
    Case,
    Given,
    InstructionSet,
    Status,
    Table,
)
from ridgeline.runtime.cpu.executor_ir import deployed_executor_ir
from ridgeline.runtime.cpu.pool_ir import LIMIT, STATE_BYTES
from ridgeline.runtime.cpu.support_ir import Head

PREFIX = "rlx"
FUNCTIONS = (
    "version", "describe", "open", "run", "state", "instruction_set", "threads", "message", "close",
)  # fmt: skip

# The words of an opened program, and of the head of memory for runs.
_SET, _ALLOCATE, _RELEASE, _CONTEXT, _STATE, _HOISTED, _SPARE, _LOCK, _BYTES = range(9)
_PROGRAM_BYTES = 128
_RUN_HEAD = 256  # before the memory of a run: how many bytes there are
_ALIGNMENT, _HUGE = 256, 1 << 21
_MOST_BYTES = 1 << 46
_MADVISE, _GET_AFFINITY = 28, 204  # numbers of system calls
_WIPE_ON_FORK, _HUGE_PAGES = 18, 14


def runtime_ir() -> str:
    """The whole module."""
    return "".join(
        (
            deployed_executor_ir(),
            f'@"{POOL}" = global [{STATE_BYTES} x i8] zeroinitializer, align 4096\n',
            f'@"{TABLE}" = external global i64\n',
            _MEMORY, _rows(), EVALUATE, _RUN_CASE, PROCESSOR, _OPEN, _RUN, _SMALL, HALF,
        )
    )  # fmt: skip


def _rows() -> str:
    given = each_row("given", Given.WORDS, "ptr %pointers", """
  %pointer.at = getelementptr i64, ptr %pointers, i64 %k
  %pointer = load i64, ptr %pointer.at
  %low = sub i64 %w0, 1
  %rest = and i64 %pointer, %low
  %null = icmp eq i64 %pointer, 0
  %askew = icmp ne i64 %rest, 0
  %wrong = or i1 %null, %askew
  br i1 %wrong, label %refuse, label %next
refuse:
  %status = trunc i64 %w1 to i32
  ret i32 %status""")  # fmt: skip
    bind = each_row("bind", 2, "ptr %bases, ptr %slots", f"""
  %base.at = getelementptr i64, ptr %bases, i64 %w0
  %base = load i64, ptr %base.at
  %sum = add i64 %base, %w1
  %slot = getelementptr i64, ptr %slots, i64 %k
  store i64 %sum, ptr %slot
  %indirect = icmp sle i64 %w0, {int(Base.OUTPUTS)}
  br i1 %indirect, label %read, label %next
read:
  %where = inttoptr i64 %sum to ptr
  %given = load i64, ptr %where
  store i64 %given, ptr %slot
  br label %next""")  # fmt: skip
    copy = each_row("copy", 3, "ptr %slots", """
  %from.at = getelementptr ptr, ptr %slots, i64 %w0
  %from = load ptr, ptr %from.at
  %to.at = getelementptr ptr, ptr %slots, i64 %w1
  %to = load ptr, ptr %to.at
  call ptr @memmove(ptr %to, ptr %from, i64 %w2)
  br label %next""")  # fmt: skip
    count = each_row("counter", 2, "ptr %state", """
  %place = getelementptr i8, ptr %state, i64 %w0
  %before = load i64, ptr %place
  %after = add i64 %before, %w1
  store i64 %after, ptr %place
  br label %next""")  # fmt: skip
    check = each_row("check", 2, "ptr %registers", f"""
  %register.at = getelementptr i64, ptr %registers, i64 %w0
  %register = load i64, ptr %register.at
  %right = icmp eq i64 %register, %w1
  br i1 %right, label %next, label %refuse
refuse:
  ret i32 {int(Status.SIZES)}""")  # fmt: skip
    patch = each_row("patch", 2, "ptr %registers, ptr %image", """
  %value.at = getelementptr i64, ptr %registers, i64 %w1
  %value = load i64, ptr %value.at
  %word.at = getelementptr i64, ptr %image, i64 %w0
  store i64 %value, ptr %word.at
  br label %next""")  # fmt: skip
    return given + bind + copy + count + check + patch


_MEMORY = f"""
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare ptr @memmove(ptr, ptr, i64)

define internal ptr @allocate(ptr %context, i64 %bytes, i64 %alignment) {{
entry:
  %made = alloca ptr
  %large = icmp sge i64 %bytes, {_HUGE}
  %align = select i1 %large, i64 {_HUGE}, i64 %alignment
  %status = call i32 @posix_memalign(ptr %made, i64 %align, i64 %bytes)
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %there, label %none
there:
  %memory = load ptr, ptr %made
  br i1 %large, label %advise, label %done
advise:
  call i64 (i64, ...) @syscall(i64 {_MADVISE}, ptr %memory, i64 %bytes, i32 {_HUGE_PAGES})
  br label %done
done:
  ret ptr %memory
none:
  ret ptr null
}}

define internal void @release(ptr %context, ptr %memory, i64 %bytes) {{
  call void @free(ptr %memory)
  ret void
}}

define internal ptr @take(ptr %program, i64 %bytes) {{
entry:
  %sane = icmp ult i64 %bytes, {_MOST_BYTES}
  br i1 %sane, label %look, label %none
none:
  ret ptr null
look:
  %spare = getelementptr i64, ptr %program, i64 {_SPARE}
  %word = atomicrmw xchg ptr %spare, i64 0 acquire
  %kept = inttoptr i64 %word to ptr
  %there = icmp ne i64 %word, 0
  br i1 %there, label %measure, label %make
measure:
  %held = load i64, ptr %kept
  %enough = icmp sge i64 %held, %bytes
  br i1 %enough, label %use, label %drop
use:
  ret ptr %kept
drop:
  call void @let_go(ptr %program, ptr %kept)
  br label %make
make:
  {word("allocate", "%program", _ALLOCATE, "ptr")}
  {word("context", "%program", _CONTEXT, "ptr")}
  %all = add i64 %bytes, {_RUN_HEAD}
  %made = call ptr %allocate(ptr %context, i64 %all, i64 {_ALIGNMENT})
  %got = icmp ne ptr %made, null
  br i1 %got, label %head, label %none
head:
  store i64 %bytes, ptr %made
  ret ptr %made
}}

define internal void @give(ptr %program, ptr %memory) {{
entry:
  %spare = getelementptr i64, ptr %program, i64 {_SPARE}
  %new = ptrtoint ptr %memory to i64
  %word = atomicrmw xchg ptr %spare, i64 %new release
  %there = icmp ne i64 %word, 0
  br i1 %there, label %drop, label %done
drop:
  %old = inttoptr i64 %word to ptr
  call void @let_go(ptr %program, ptr %old)
  br label %done
done:
  ret void
}}

define internal void @let_go(ptr %program, ptr %memory) {{
  {word("release", "%program", _RELEASE, "ptr")}
  {word("context", "%program", _CONTEXT, "ptr")}
  %held = load i64, ptr %memory
  %all = add i64 %held, {_RUN_HEAD}
  call void %release(ptr %context, ptr %memory, i64 %all)
  ret void
}}
"""


_RUN_CASE = f"""
define internal i32 @run_case(ptr %program, ptr %case, ptr %bases, ptr %registers) {{
entry:
  {word("run.register", "%case", Case.RUN_REGISTER)}
  {word("run.bytes", "%case", Case.RUN_BYTES)}
  {word("image", "%case", Case.IMAGE, "ptr")}
  {word("image.words", "%case", Case.IMAGE_WORDS)}
  {word("plan.offset", "%case", Case.PLAN)}
  {word("slot.count", "%case", Case.SLOTS)}
  %slots = alloca i64, i64 %slot.count, align 64
  %symbolic = icmp sge i64 %run.register, 0
  br i1 %symbolic, label %computed, label %room
computed:
  %bytes.at = getelementptr i64, ptr %registers, i64 %run.register
  %bytes.computed = load i64, ptr %bytes.at
  %image.bytes.rounded = mul i64 %image.words, 8
  %image.more = add i64 %image.bytes.rounded, 255
  %image.room = and i64 %image.more, -256
  %bytes.both = add i64 %bytes.computed, %image.room
  br label %room
room:
  %bytes = phi i64 [ %run.bytes, %entry ], [ %bytes.both, %computed ]
  %before = phi i64 [ 0, %entry ], [ %image.room, %computed ]
  %memory = call ptr @take(ptr %program, i64 %bytes)
  %got = icmp ne ptr %memory, null
  br i1 %got, label %place, label %none
none:
  ret i32 {int(Status.MEMORY)}
place:
  %content = getelementptr i8, ptr %memory, i64 {_RUN_HEAD}
  %arena.at = getelementptr i8, ptr %content, i64 %before
  %arena = ptrtoint ptr %arena.at to i64
  %run.base = getelementptr i64, ptr %bases, i64 {int(Base.RUN)}
  store i64 %arena, ptr %run.base
  br i1 %symbolic, label %own, label %bind
own:
  %image.bytes = mul i64 %image.words, 8
  call ptr @memcpy(ptr %content, ptr %image, i64 %image.bytes)
  {word("patches", "%case", Case.PATCHES, "ptr")}
  {word("patch.count", "%case", Case.PATCH_COUNT)}
  call i32 @each_patch(ptr %patches, i64 %patch.count, ptr %registers, ptr %content)
  br label %bind
bind:
  %here = phi ptr [ %image, %place ], [ %content, %own ]
  {word("binding.count", "%case", Case.BINDINGS)}
  call i32 @each_bind(ptr %here, i64 %binding.count, ptr %bases, ptr %slots)
  {word("extras.offset", "%case", Case.EXTRAS)}
  {word("extra.count", "%case", Case.EXTRA_COUNT)}
  %extras = getelementptr i64, ptr %here, i64 %extras.offset
  %own.slots = sub i64 %slot.count, %extra.count
  %further = getelementptr i64, ptr %slots, i64 %own.slots
  call i32 @each_bind(ptr %extras, i64 %extra.count, ptr %bases, ptr %further)
  %plan = getelementptr i64, ptr %here, i64 %plan.offset
  call i1 @execute(ptr %plan, ptr %slots, i64 %arena, ptr null, i32 0)
  br i1 %symbolic, label %learn, label %look
learn:
  %estimate.offset = add i64 %plan.offset, {int(Head.ESTIMATE)}
  %learnt.at = getelementptr i64, ptr %here, i64 %estimate.offset
  %learnt = load i64, ptr %learnt.at
  %estimate.at = getelementptr i64, ptr %image, i64 %estimate.offset
  store atomic i64 %learnt, ptr %estimate.at monotonic, align 8
  br label %look
look:
  {word("flag.slot", "%case", Case.FLAG)}
  %checked = icmp sge i64 %flag.slot, 0
  br i1 %checked, label %read, label %fine
read:
  %flag.at = getelementptr ptr, ptr %slots, i64 %flag.slot
  %flag.where = load ptr, ptr %flag.at
  %flag = load i8, ptr %flag.where
  %raised = icmp ne i8 %flag, 0
  br i1 %raised, label %wrong, label %fine
wrong:
  call void @give(ptr %program, ptr %memory)
  ret i32 {int(Status.INDEX)}
fine:
  {word("copies.offset", "%case", Case.COPIES)}
  {word("copy.count", "%case", Case.COPY_COUNT)}
  %copies = getelementptr i64, ptr %here, i64 %copies.offset
  call i32 @each_copy(ptr %copies, i64 %copy.count, ptr %slots)
  {word("counters.offset", "%case", Case.COUNTERS)}
  {word("counter.count", "%case", Case.COUNTER_COUNT)}
  %counters = getelementptr i64, ptr %here, i64 %counters.offset
  %state.at = getelementptr ptr, ptr %bases, i64 {int(Base.STATE)}
  %state = load ptr, ptr %state.at
  call i32 @each_counter(ptr %counters, i64 %counter.count, ptr %state)
  call void @give(ptr %program, ptr %memory)
  ret i32 0
}}

define internal void @set_bases(ptr %bases, ptr %program, ptr %inputs, ptr %outputs, ptr %sizes) {{
  {table("weights", Table.WEIGHTS)}
  {word("state", "%program", _STATE)}
  {word("hoisted", "%program", _HOISTED)}
  {set_word("%bases", Base.INPUTS, "ptr %inputs")}
  {set_word("%bases", Base.OUTPUTS, "ptr %outputs")}
  {set_word("%bases", Base.WEIGHTS, "i64 %weights")}
  {set_word("%bases", Base.STATE, "i64 %state")}
  {set_word("%bases", Base.HOISTED, "i64 %hoisted")}
  {set_word("%bases", Base.SIZES, "ptr %sizes")}
  ret void
}}
"""

_OPEN = f"""
define i32 @{PREFIX}_open(ptr %options, ptr %result) {{
entry:
  %bases = alloca [{int(Base.COUNT)} x i64]
  store ptr null, ptr %result
  %set = call ptr @best_set()
  %suited = icmp ne ptr %set, null
  br i1 %suited, label %memory, label %unsuited
unsuited:
  ret i32 {int(Status.PROCESSOR)}
memory:
  %limit.at = getelementptr i8, ptr @"{POOL}", i64 {LIMIT}
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  %unset = icmp eq i64 %limit, 0
  br i1 %unset, label %count, label %choose
count:
  call i64 (i64, ...) @syscall(i64 {_MADVISE}, ptr @"{POOL}", i64 4096, i32 {_WIPE_ON_FORK})
  call i32 @{PREFIX}_threads(i32 0)
  br label %choose
choose:
  %given = icmp ne ptr %options, null
  br i1 %given, label %own, label %make
own:
  %own.allocate = load ptr, ptr %options
  {word("own.release", "%options", 1, "ptr")}
  {word("own.context", "%options", 2, "ptr")}
  br label %make
make:
  %allocate = phi ptr [ @allocate, %choose ], [ %own.allocate, %own ]
  %release = phi ptr [ @release, %choose ], [ %own.release, %own ]
  %context = phi ptr [ null, %choose ], [ %own.context, %own ]
  {table("state.bytes", Table.STATE_BYTES)}
  {word("hoisted.bytes", "%set", InstructionSet.HOISTED_BYTES)}
  %state.end = add i64 %state.bytes, {_PROGRAM_BYTES}
  %bytes = add i64 %state.end, %hoisted.bytes
  %program = call ptr %allocate(ptr %context, i64 %bytes, i64 {_ALIGNMENT})
  %got = icmp ne ptr %program, null
  br i1 %got, label %fill, label %none
none:
  ret i32 {int(Status.MEMORY)}
fill:
  %state = getelementptr i8, ptr %program, i64 {_PROGRAM_BYTES}
  %hoisted = getelementptr i8, ptr %program, i64 %state.end
  {set_word("%program", _SET, "ptr %set")}
  {set_word("%program", _ALLOCATE, "ptr %allocate")}
  {set_word("%program", _RELEASE, "ptr %release")}
  {set_word("%program", _CONTEXT, "ptr %context")}
  {set_word("%program", _STATE, "ptr %state")}
  {set_word("%program", _HOISTED, "ptr %hoisted")}
  {set_word("%program", _SPARE, "i64 0")}
  {set_word("%program", _LOCK, "i64 0")}
  {set_word("%program", _BYTES, "i64 %bytes")}
  {table("initial", Table.STATE, "ptr")}
  call ptr @memcpy(ptr %state, ptr %initial, i64 %state.bytes)
  {word("setup", "%set", InstructionSet.SETUP, "ptr")}
  %any = icmp ne ptr %setup, null
  br i1 %any, label %prepare, label %done
prepare:
  call void @set_bases(ptr %bases, ptr %program, ptr null, ptr null, ptr null)
  %status = call i32 @run_case(ptr %program, ptr %setup, ptr %bases, ptr null)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %done, label %failed
failed:
  call void @{PREFIX}_close(ptr %program)
  ret i32 %status
done:
  store ptr %program, ptr %result
  ret i32 0
}}
"""

_RUN = f"""
define i32 @{PREFIX}_run(ptr %program, ptr %inputs, ptr %outputs, ptr %sizes) {{
entry:
  %bases = alloca [{int(Base.COUNT)} x i64]
  %there = icmp ne ptr %program, null
  br i1 %there, label %look, label %absent
absent:
  ret i32 {int(Status.NO_PROGRAM)}
look:
  {table("input.rows", Table.INPUTS, "ptr")}
  {table("input.count", Table.INPUT_COUNT)}
  %input.status = call i32 @each_given(ptr %input.rows, i64 %input.count, ptr %inputs)
  %input.fine = icmp eq i32 %input.status, 0
  br i1 %input.fine, label %results, label %refuse.input
refuse.input:
  ret i32 %input.status
results:
  {table("output.rows", Table.OUTPUTS, "ptr")}
  {table("output.count", Table.OUTPUT_COUNT)}
  %output.status = call i32 @each_given(ptr %output.rows, i64 %output.count, ptr %outputs)
  %output.fine = icmp eq i32 %output.status, 0
  br i1 %output.fine, label %cases, label %refuse.output
refuse.output:
  ret i32 %output.status
cases:
  call void @set_bases(ptr %bases, ptr %program, ptr %inputs, ptr %outputs, ptr %sizes)
  %set = load ptr, ptr %program
  {word("case.rows", "%set", InstructionSet.CASES, "ptr")}
  {word("case.count", "%set", InstructionSet.CASE_COUNT)}
  br label %head
head:
  %k = phi i64 [ 0, %cases ], [ %k.next, %next ]
  %more = icmp slt i64 %k, %case.count
  br i1 %more, label %try, label %unfit
unfit:
  ret i32 {int(Status.SIZES)}
try:
  %offset = mul i64 %k, {int(Case.WORDS)}
  %case = getelementptr i64, ptr %case.rows, i64 %offset
  {word("count", "%case", Case.REGISTERS)}
  %registers = alloca i64, i64 %count
  {word("code", "%case", Case.CODE, "ptr")}
  call void @evaluate(ptr %code, i64 %count, ptr %registers, ptr %sizes)
  {word("checks", "%case", Case.CHECKS, "ptr")}
  {word("check.count", "%case", Case.CHECK_COUNT)}
  %status = call i32 @each_check(ptr %checks, i64 %check.count, ptr %registers)
  %fits = icmp eq i32 %status, 0
  br i1 %fits, label %run, label %next
next:
  %k.next = add i64 %k, 1
  br label %head
run:
  {table("writes", Table.WRITES)}
  %changes = icmp ne i64 %writes, 0
  br i1 %changes, label %turn, label %free
free:
  %free.status = call i32 @run_case(ptr %program, ptr %case, ptr %bases, ptr %registers)
  ret i32 %free.status
turn:
  %lock = getelementptr i64, ptr %program, i64 {_LOCK}
  %exchange = cmpxchg ptr %lock, i32 0, i32 1 acquire monotonic
  %ours = extractvalue {{ i32, i1 }} %exchange, 1
  br i1 %ours, label %locked, label %wait
wait:
  call void @yield_core()
  br label %turn
locked:
  %turn.status = call i32 @run_case(ptr %program, ptr %case, ptr %bases, ptr %registers)
  store atomic i32 0, ptr %lock release, align 4
  ret i32 %turn.status
}}
"""

_SMALL = f"""
declare i64 @llvm.ctpop.i64(i64)

define i32 @{PREFIX}_version() {{
  {table("version", Table.VERSION)}
  %number = trunc i64 %version to i32
  ret i32 %number
}}

define ptr @{PREFIX}_describe() {{
  {table("description", Table.DESCRIPTION, "ptr")}
  ret ptr %description
}}

define ptr @{PREFIX}_instruction_set(ptr %program) {{
entry:
  %open = icmp ne ptr %program, null
  br i1 %open, label %chosen, label %look
chosen:
  %own = load ptr, ptr %program
  br label %name
look:
  %best = call ptr @best_set()
  %any = icmp ne ptr %best, null
  br i1 %any, label %name, label %none
name:
  %set = phi ptr [ %own, %chosen ], [ %best, %look ]
  {word("text", "%set", InstructionSet.NAME, "ptr")}
  ret ptr %text
none:
  ret ptr null
}}

define ptr @{PREFIX}_state(ptr %program, i32 %number) {{
entry:
  {table("offsets", Table.STATE_OFFSETS, "ptr")}
  {table("count", Table.STATE_COUNT)}
  %index = zext i32 %number to i64
  %inside = icmp ult i64 %index, %count
  %there = icmp ne ptr %program, null
  %right = and i1 %inside, %there
  br i1 %right, label %find, label %none
find:
  %offset.at = getelementptr i64, ptr %offsets, i64 %index
  %offset = load i64, ptr %offset.at
  {word("state", "%program", _STATE, "ptr")}
  %place = getelementptr i8, ptr %state, i64 %offset
  ret ptr %place
none:
  ret ptr null
}}

define i32 @{PREFIX}_threads(i32 %wanted) {{
entry:
  %mask = alloca [128 x i64]
  %limit.at = getelementptr i8, ptr @"{POOL}", i64 {LIMIT}
  %given = icmp sgt i32 %wanted, 0
  br i1 %given, label %set, label %ask
ask:
  %filled = call i64 (i64, ...) @syscall(i64 {_GET_AFFINITY}, i64 0, i64 1024, ptr %mask)
  %words = sdiv i64 %filled, 8
  br label %head
head:
  %k = phi i64 [ 0, %ask ], [ %k.next, %add ]
  %sum = phi i64 [ 0, %ask ], [ %sum.next, %add ]
  %more = icmp slt i64 %k, %words
  br i1 %more, label %add, label %set
add:
  %word.at = getelementptr i64, ptr %mask, i64 %k
  %word = load i64, ptr %word.at
  %bits = call i64 @llvm.ctpop.i64(i64 %word)
  %sum.next = add i64 %sum, %bits
  %k.next = add i64 %k, 1
  br label %head
set:
  %found = phi i64 [ 0, %entry ], [ %sum, %head ]
  %wanted.wide = sext i32 %wanted to i64
  %number = select i1 %given, i64 %wanted.wide, i64 %found
  %none = icmp slt i64 %number, 1
  %limit = select i1 %none, i64 1, i64 %number
  %before = load atomic i64, ptr %limit.at monotonic, align 8
  store atomic i64 %limit, ptr %limit.at monotonic, align 8
  %shrinks = icmp slt i64 %limit, %before
  br i1 %shrinks, label %wake, label %done
wake:
  call void @ridgeline_pool_wake(ptr @"{POOL}", i32 2147483647)
  br label %done
done:
  %result = trunc i64 %limit to i32
  ret i32 %result
}}

define ptr @{PREFIX}_message(i32 %status) {{
entry:
  {table("messages", Table.MESSAGES, "ptr")}
  {table("count", Table.MESSAGE_COUNT)}
  %index = zext i32 %status to i64
  %known = icmp ult i64 %index, %count
  %safe = select i1 %known, i64 %index, i64 {int(Status.NO_PROGRAM)}
  %text.at = getelementptr ptr, ptr %messages, i64 %safe
  %text = load ptr, ptr %text.at
  ret ptr %text
}}

define void @{PREFIX}_close(ptr %program) {{
entry:
  %open = icmp ne ptr %program, null
  br i1 %open, label %drop, label %done
drop:
  {word("spare", "%program", _SPARE)}
  %any = icmp ne i64 %spare, 0
  br i1 %any, label %spared, label %own
spared:
  %memory = inttoptr i64 %spare to ptr
  call void @let_go(ptr %program, ptr %memory)
  br label %own
own:
  {word("release", "%program", _RELEASE, "ptr")}
  {word("context", "%program", _CONTEXT, "ptr")}
  {word("bytes", "%program", _BYTES)}
  call void %release(ptr %context, ptr %program, i64 %bytes)
  br label %done
done:
  ret void
}}
"""
