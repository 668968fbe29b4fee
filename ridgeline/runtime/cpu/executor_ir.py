"""The plan executor as LLVM IR: `execute` runs a plan's `steps`, two Python functions call it.

The words that it reads are described in `control_words`. A *watched* run looks between steps, now
and then, whether Python has a signal to handle, and ends early if its handler raises.
"""

from __future__ import annotations

from ridgeline.runtime.cpu.control_ir import control_ir
from ridgeline.runtime.cpu.control_words import AWAIT, LOOP, POST, STOP
from ridgeline.runtime.cpu.dict_versions import DICT_VERSIONS_IR
from ridgeline.runtime.cpu.mailbox_ir import MAILBOX_IR
from ridgeline.runtime.cpu.pool_ir import CALLS, HOT, LOOK, pool_ir, region_ir
from ridgeline.runtime.cpu.support_ir import PYTHON_SYMBOLS, Head, load_head, python_entry

LOOK_NS = 50_000_000  # between two looks for signals
MEASURED, POOLED, WATCHED = 1, 2, 4  # the bits of a mode


def executor_ir() -> str:
    """The whole module: pool, executor, and the functions Python calls."""
    run = _entry("run", 2, "0", 0)
    watched = _entry("watched", 2, "0", WATCHED)
    profile = _entry("profile", 3, "%fixed.2", 0)
    steps = _PLACE + _INTERRUPTED + MAILBOX_IR + _STEPS + control_ir() + _EXECUTE
    entries = run + watched + profile + DICT_VERSIONS_IR
    return pool_ir() + region_ir() + steps + PYTHON_SYMBOLS + entries


def deployed_executor_ir() -> str:
    """Pool and executor without Python: `execute` for processes that have none."""
    steps = _PLACE + _UNINTERRUPTED + MAILBOX_IR + _STEPS + control_ir() + _EXECUTE
    return pool_ir(deployed=True) + region_ir() + steps


def _entry(name: str, fixed: int, times: str, watched: int) -> str:
    """A function of Python's. Slots are on the stack; the GIL is released for the whole run."""
    action = f"""%times = inttoptr i64 {times} to ptr
  %thread = call ptr @PyEval_SaveThread()
  %broken = call i1 @execute(ptr %plan, ptr %slots, i64 %fixed.1, ptr %times, i32 {watched})
  call void @PyEval_RestoreThread(ptr %thread)
  br i1 %broken, label %error, label %ran
ran:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
"""
    return python_entry(name, fixed, "alloca i64, i64 %size", action)


# True where a handler raised; its exception is set then. Only Python's main thread handles signals
# and runs watched, so there is one time of the next look.
_INTERRUPTED = f"""
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()

define internal i1 @interrupted(ptr %pool) {{
entry:
  %look = getelementptr i8, ptr %pool, i64 {LOOK}
  %next = load i64, ptr %look
  %time = call i64 @now()
  %due = icmp sge i64 %time, %next
  br i1 %due, label %check, label %go
check:
  %later = add i64 %time, {LOOK_NS}
  store i64 %later, ptr %look
  %held = call i32 @PyGILState_Ensure()
  %status = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %held)
  %raised = icmp ne i32 %status, 0
  ret i1 %raised
go:
  ret i1 false
}}
"""

_UNINTERRUPTED = """
define internal i1 @interrupted(ptr %pool) {
  ret i1 false
}
"""

# %slots has its first words filled in; %times is null, or receives nanoseconds for each step. True
# where a watched run was interrupted.
_EXECUTE = f"""
define void @ridgeline_execute(ptr %plan, ptr %slots, i64 %arena, ptr %times) {{
  %broken = call i1 @execute(ptr %plan, ptr %slots, i64 %arena, ptr %times, i32 0)
  ret void
}}

define internal i1 @execute(ptr %plan, ptr %slots, i64 %arena, ptr %times, i32 %watched) {{
entry:
  {load_head("pool.word", Head.POOL)}
  %pool = inttoptr i64 %pool.word to ptr
  {load_head("parallel", Head.PARALLEL)}
  %estimate.at = getelementptr i64, ptr %plan, i64 {int(Head.ESTIMATE)}
  %calls = getelementptr i8, ptr %pool, i64 {CALLS}
  %call = atomicrmw add ptr %calls, i64 1 monotonic
  call void @place(ptr %plan, ptr %slots, i64 %arena)
  %any = icmp sgt i64 %parallel, 0
  br i1 %any, label %ask, label %begin
ask:
  %estimate.old = load atomic i64, ptr %estimate.at monotonic, align 8
  %answer = call i32 @enter(ptr %pool, i64 %estimate.old, i64 %call)
  br label %begin
begin:
  %asked = phi i32 [ 0, %entry ], [ %answer, %ask ]
  %mode = or i32 %asked, %watched
  %estimate = call i64 @steps(ptr %plan, ptr %slots, ptr %pool, i32 %mode, ptr %times)
  %broken = icmp slt i64 %estimate, 0
  %measure.bit = and i32 %mode, {MEASURED}
  %measuring = icmp ne i32 %measure.bit, 0
  %whole = xor i1 %broken, true
  %measure = and i1 %measuring, %whole
  br i1 %measure, label %learn, label %leave
learn:
  store atomic i64 %estimate, ptr %estimate.at monotonic, align 8
  br label %leave
leave:
  %pool.bit = and i32 %mode, {POOLED}
  %pooled = icmp ne i32 %pool.bit, 0
  br i1 %pooled, label %cool, label %done
cool:
  %hot = getelementptr i8, ptr %pool, i64 {HOT}
  atomicrmw sub ptr %hot, i32 1 monotonic
  br label %done
done:
  ret i1 %broken
}}
"""

# The temporaries of a plan: their slots become addresses in the arena.
_PLACE = f"""
define internal void @place(ptr %plan, ptr %slots, i64 %arena) {{
entry:
  {load_head("pairs", Head.ARENA)}
  %first = getelementptr i64, ptr %plan, i64 {int(Head.WORDS)}
  br label %head
head:
  %pair = phi i64 [ 0, %entry ], [ %pair.next, %place ]
  %cursor = phi ptr [ %first, %entry ], [ %cursor.next, %place ]
  %placing = icmp slt i64 %pair, %pairs
  br i1 %placing, label %place, label %placed
place:
  %slot = load i64, ptr %cursor
  %offset.at = getelementptr i64, ptr %cursor, i64 1
  %offset = load i64, ptr %offset.at
  %where = getelementptr i64, ptr %slots, i64 %slot
  %temporary = add i64 %arena, %offset
  store i64 %temporary, ptr %where
  %pair.next = add i64 %pair, 1
  %cursor.next = getelementptr i64, ptr %cursor, i64 2
  br label %head
placed:
  ret void
}}
"""

# The steps of a plan whose slots are filled in; the nanoseconds that parallel ones take one thread
# where the mode asks to measure, and -1 where a signal's handler raised. What the mode asks for are
# the bits above.
_STEPS = f"""
define internal i64 @steps(ptr %plan, ptr %slots, ptr %pool, i32 %mode, ptr %times) {{
entry:
  {load_head("steps", Head.STEPS)}
  {load_head("pairs", Head.ARENA)}
  {load_head("widest", Head.WIDEST)}
  %args = alloca ptr, i64 %widest
  %pairs.words = mul i64 %pairs, 2
  %head.words = add i64 %pairs.words, {int(Head.WORDS)}
  %first = getelementptr i64, ptr %plan, i64 %head.words
  %pool.bit = and i32 %mode, {POOLED}
  %pooled = icmp ne i32 %pool.bit, 0
  %measure.bit = and i32 %mode, {MEASURED}
  %measure = icmp ne i32 %measure.bit, 0
  %watch.bit = and i32 %mode, {WATCHED}
  %watched = icmp ne i32 %watch.bit, 0
  %timed = icmp ne ptr %times, null
  %clocked = or i1 %timed, %measure
  br label %head
head:
  %index = phi i64 [ 0, %entry ], [ %index.next, %next ], [ %index.next, %watch ]
  %step = phi ptr [ %first, %entry ], [ %step.next, %next ], [ %step.next, %watch ]
  %estimate = phi i64 [ 0, %entry ], [ %estimate.next, %next ], [ %estimate.next, %watch ]
  %more = icmp slt i64 %index, %steps
  br i1 %more, label %look, label %finish
look:
  %function = load ptr, ptr %step
  %tasks.at = getelementptr i64, ptr %step, i64 1
  %tasks = load i64, ptr %tasks.at
  %grain.at = getelementptr i64, ptr %step, i64 2
  %grain = load i64, ptr %grain.at
  %is.control = icmp eq ptr %function, null
  br i1 %is.control, label %control, label %read
control:
  %control.next = getelementptr i64, ptr %step, i64 %tasks
  switch i64 %grain, label %flow [ i64 {STOP}, label %stop
                                   i64 {POST}, label %posts
                                   i64 {AWAIT}, label %awaits ]
posts:
  call void @post(ptr %step, ptr %slots)
  br label %next
awaits:
  %await.begin = call i64 @now()
  %status = call i64 @await(ptr %step, ptr %slots, ptr %pool, i1 %watched)
  switch i64 %status, label %awaited [ i64 1, label %finish
                                       i64 -1, label %broken ]
awaited:
  %await.end = call i64 @now()
  %await.elapsed = sub i64 %await.end, %await.begin
  br i1 %timed, label %write, label %next
stop:
  %flag.name.at = getelementptr i64, ptr %step, i64 3
  %flag.name = load i64, ptr %flag.name.at
  %flag.at = getelementptr ptr, ptr %slots, i64 %flag.name
  %flag.where = load ptr, ptr %flag.at
  %flag = load i8, ptr %flag.where
  %raised = icmp ne i8 %flag, 0
  br i1 %raised, label %finish, label %next
flow:
  %control.begin = call i64 @now()
  %is.loop = icmp eq i64 %grain, {LOOP}
  br i1 %is.loop, label %loops, label %branches
loops:
  %loop.time = call i64 @loop(ptr %step, ptr %slots, ptr %pool, i32 %mode)
  br label %controlled
branches:
  %branch.time = call i64 @branch(ptr %step, ptr %slots, ptr %pool, i32 %mode)
  br label %controlled
controlled:
  %inner.time = phi i64 [ %loop.time, %loops ], [ %branch.time, %branches ]
  %control.end = call i64 @now()
  %control.elapsed = sub i64 %control.end, %control.begin
  %estimate.inner = add i64 %estimate, %inner.time
  %inner.broken = icmp slt i64 %inner.time, 0
  br i1 %inner.broken, label %broken, label %whole
whole:
  br i1 %timed, label %write, label %next
read:
  %count.at = getelementptr i64, ptr %step, i64 3
  %count = load i64, ptr %count.at
  %names = getelementptr i64, ptr %step, i64 4
  %read.next = getelementptr i64, ptr %names, i64 %count
  br label %gather
gather:
  %argument = phi i64 [ 0, %read ], [ %argument.next, %copy ]
  %gathering = icmp slt i64 %argument, %count
  br i1 %gathering, label %copy, label %gathered
copy:
  %name.at = getelementptr i64, ptr %names, i64 %argument
  %name = load i64, ptr %name.at
  %value.at = getelementptr i64, ptr %slots, i64 %name
  %value = load i64, ptr %value.at
  %args.at = getelementptr i64, ptr %args, i64 %argument
  store i64 %value, ptr %args.at
  %argument.next = add i64 %argument, 1
  br label %gather
gathered:
  %single = icmp sge i64 %grain, %tasks
  br i1 %clocked, label %clock, label %choose
clock:
  %before.read = call i64 @now()
  br label %choose
choose:
  %before = phi i64 [ 0, %gathered ], [ %before.read, %clock ]
  %several = xor i1 %single, true
  %shared = and i1 %several, %pooled
  br i1 %shared, label %spread, label %inline
spread:
  %alone = call i64 @region(ptr %pool, ptr %function, ptr %args, i64 %tasks, i64 %grain,
                            i1 %measure)
  br label %ran
inline:
  call void %function(ptr %args, i64 0, i64 %tasks)
  br label %ran
ran:
  %region.time = phi i64 [ %alone, %spread ], [ 0, %inline ]
  br i1 %clocked, label %clock.again, label %next
clock.again:
  %after = call i64 @now()
  %elapsed = sub i64 %after, %before
  %own = select i1 %shared, i64 %region.time, i64 %elapsed
  %counted = select i1 %several, i64 %own, i64 0
  %estimate.more = add i64 %estimate, %counted
  br i1 %timed, label %write, label %next
write:
  %written = phi i64 [ %elapsed, %clock.again ], [ %control.elapsed, %whole ],
    [ %await.elapsed, %awaited ]
  %written.next = phi ptr [ %read.next, %clock.again ], [ %control.next, %whole ],
    [ %control.next, %awaited ]
  %written.sum = phi i64 [ %estimate.more, %clock.again ], [ %estimate.inner, %whole ],
    [ %estimate, %awaited ]
  %time.at = getelementptr i64, ptr %times, i64 %index
  store i64 %written, ptr %time.at
  br label %next
next:
  %step.next = phi ptr [ %read.next, %ran ], [ %read.next, %clock.again ],
    [ %written.next, %write ], [ %control.next, %whole ], [ %control.next, %stop ],
    [ %control.next, %posts ], [ %control.next, %awaited ]
  %estimate.next = phi i64 [ %estimate, %ran ], [ %estimate.more, %clock.again ],
    [ %written.sum, %write ], [ %estimate.inner, %whole ], [ %estimate, %stop ],
    [ %estimate, %posts ], [ %estimate, %awaited ]
  %index.next = add i64 %index, 1
  br i1 %watched, label %watch, label %head
watch:
  %raised.now = call i1 @interrupted(ptr %pool)
  br i1 %raised.now, label %broken, label %head
broken:
  ret i64 -1
finish:
  ret i64 %estimate
}}
"""
