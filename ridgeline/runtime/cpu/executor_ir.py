"""The plan executor as LLVM IR: `execute` runs a plan's steps, two Python functions call it.

The words that it reads are described in `plan_words`.
"""

from __future__ import annotations

from ridgeline.runtime.cpu.plan_words import Head, load_head
from ridgeline.runtime.cpu.pool_ir import CALLS, HOT, pool_ir
from ridgeline.runtime.cpu.python_entry import PYTHON_SYMBOLS, python_entry
from ridgeline.runtime.cpu.region_ir import region_ir


def executor_ir() -> str:
    """The whole module: pool, executor, and the functions Python calls."""
    stack = "alloca i64, i64 %size"
    run = python_entry("run", 2, stack, "%times = inttoptr i64 0 to ptr" + _RUN)
    profile = python_entry("profile", 3, stack, "%times = inttoptr i64 %fixed.2 to ptr" + _RUN)
    return pool_ir() + region_ir() + _EXECUTE + PYTHON_SYMBOLS + run + profile


# Slots are on the stack; the GIL is released for the whole run.
_RUN = """
  %thread = call ptr @PyEval_SaveThread()
  call void @ridgeline_execute(ptr %plan, ptr %slots, i64 %fixed.1, ptr %times)
  call void @PyEval_RestoreThread(ptr %thread)
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
"""

# %slots has its first words filled in; %times is null, or receives nanoseconds for each step.
_EXECUTE = f"""
define void @ridgeline_execute(ptr %plan, ptr %slots, i64 %arena, ptr %times) {{
entry:
  {load_head("pool.word", Head.POOL)}
  %pool = inttoptr i64 %pool.word to ptr
  {load_head("steps", Head.STEPS)}
  {load_head("pairs", Head.ARENA)}
  {load_head("widest", Head.WIDEST)}
  {load_head("parallel", Head.PARALLEL)}
  %args = alloca ptr, i64 %widest
  %estimate.at = getelementptr i64, ptr %plan, i64 {int(Head.ESTIMATE)}
  %calls = getelementptr i8, ptr %pool, i64 {CALLS}
  atomicrmw add ptr %calls, i64 1 monotonic
  %pairs.at.first = getelementptr i64, ptr %plan, i64 {int(Head.WORDS)}
  br label %temporaries
temporaries:
  %pair = phi i64 [ 0, %entry ], [ %pair.next, %place ]
  %cursor = phi ptr [ %pairs.at.first, %entry ], [ %cursor.next, %place ]
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
  br label %temporaries
placed:
  %any = icmp sgt i64 %parallel, 0
  br i1 %any, label %ask, label %steps.begin
ask:
  %estimate.old = load atomic i64, ptr %estimate.at monotonic, align 8
  %answer = call i32 @enter(ptr %pool, i64 %estimate.old)
  br label %steps.begin
steps.begin:
  %mode = phi i32 [ 0, %placed ], [ %answer, %ask ]
  %pool.bit = and i32 %mode, 2
  %pooled = icmp ne i32 %pool.bit, 0
  %measure.bit = and i32 %mode, 1
  %measure = icmp ne i32 %measure.bit, 0
  %timed = icmp ne ptr %times, null
  br label %head
head:
  %index = phi i64 [ 0, %steps.begin ], [ %index.next, %next ]
  %step = phi ptr [ %cursor, %steps.begin ], [ %step.next, %next ]
  %estimate = phi i64 [ 0, %steps.begin ], [ %estimate.next, %next ]
  %more = icmp slt i64 %index, %steps
  br i1 %more, label %read, label %finish
read:
  %function = load ptr, ptr %step
  %tasks.at = getelementptr i64, ptr %step, i64 1
  %tasks = load i64, ptr %tasks.at
  %grain.at = getelementptr i64, ptr %step, i64 2
  %grain = load i64, ptr %grain.at
  %count.at = getelementptr i64, ptr %step, i64 3
  %count = load i64, ptr %count.at
  %names = getelementptr i64, ptr %step, i64 4
  %step.next = getelementptr i64, ptr %names, i64 %count
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
  %clocked = or i1 %timed, %measure
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
  %time.at = getelementptr i64, ptr %times, i64 %index
  store i64 %elapsed, ptr %time.at
  br label %next
next:
  %estimate.next = phi i64 [ %estimate, %ran ], [ %estimate.more, %clock.again ],
    [ %estimate.more, %write ]
  %index.next = add i64 %index, 1
  br label %head
finish:
  br i1 %measure, label %learn, label %leave
learn:
  store atomic i64 %estimate, ptr %estimate.at monotonic, align 8
  br label %leave
leave:
  br i1 %pooled, label %cool, label %done
cool:
  %hot = getelementptr i8, ptr %pool, i64 {HOT}
  atomicrmw sub ptr %hot, i32 1 monotonic
  br label %done
done:
  ret void
}}
"""
