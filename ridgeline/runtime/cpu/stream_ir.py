"""A stream as LLVM IR: a native thread that takes plans from a ring and runs them in order.

Two counters, of jobs submitted and jobs completed, are the whole protocol; there is one producer
at a time (Python holds a lock). Whoever is about to sleep announces it first and looks at the
counter again; whoever moves the counter does so first and looks for sleepers second.
"""

from __future__ import annotations

import mmap

from ridgeline.runtime.cpu.support_ir import PYTHON_SYMBOLS, Head, python_entry, system_ir

# Byte offsets; the first page is wiped in a forked child, where it reads as a stream not started.
SUBMITTED, COMPLETED, ASLEEP, SUBMIT_EPOCH, WAITERS, DONE_EPOCH, BORN = range(0, 7 * 64, 64)
EXECUTE = mmap.PAGESIZE
RING = 2 * mmap.PAGESIZE
CAPACITY = 1024
_ENTRY = 32  # bytes: plan, slots, arena, unused
STATE_BYTES = RING + CAPACITY * _ENTRY
SPIN_NS = 50_000


def stream_ir() -> str:
    """The consumer, and what Python calls: `enqueue` (true, or false: no thread) and `wait`."""
    enqueue = python_entry("enqueue", 4, "inttoptr i64 %fixed.3 to ptr", _ENQUEUE)
    return system_ir() + _CONSUMER + _SUBMIT + _WAIT + PYTHON_SYMBOLS + enqueue


# Given (plan, arena, stream, memory for the slots, address...).
_ENQUEUE = """%stream = inttoptr i64 %fixed.2 to ptr
  %accepted = call i1 @submit(ptr %stream, ptr %plan, ptr %slots, i64 %fixed.1)
  %answer = zext i1 %accepted to i64
  %result = call ptr @PyBool_FromLong(i64 %answer)
  ret ptr %result
"""


_CONSUMER = f"""
define internal ptr @consumer(ptr %stream) {{
entry:
  %submitted.at = getelementptr i8, ptr %stream, i64 {SUBMITTED}
  %completed.at = getelementptr i8, ptr %stream, i64 {COMPLETED}
  %asleep = getelementptr i8, ptr %stream, i64 {ASLEEP}
  %epoch = getelementptr i8, ptr %stream, i64 {SUBMIT_EPOCH}
  %waiters.at = getelementptr i8, ptr %stream, i64 {WAITERS}
  %done = getelementptr i8, ptr %stream, i64 {DONE_EPOCH}
  %ring = getelementptr i8, ptr %stream, i64 {RING}
  %execute.at = getelementptr i8, ptr %stream, i64 {EXECUTE}
  %execute = load ptr, ptr %execute.at
  %born = call i64 @now()
  br label %look
look:
  %number = phi i64 [ 0, %entry ], [ %number.next, %finish ], [ %number, %poll ],
    [ %number, %rise ]
  %since = phi i64 [ %born, %entry ], [ %after, %finish ], [ %since, %poll ], [ %risen, %rise ]
  %submitted = load atomic i64, ptr %submitted.at acquire, align 8
  %work = icmp slt i64 %number, %submitted
  br i1 %work, label %run, label %idle
run:
  %index = and i64 %number, {CAPACITY - 1}
  %offset = mul i64 %index, {_ENTRY}
  %entry.at = getelementptr i8, ptr %ring, i64 %offset
  %plan = load ptr, ptr %entry.at
  %slots.at = getelementptr i8, ptr %entry.at, i64 8
  %slots = load ptr, ptr %slots.at
  %arena.at = getelementptr i8, ptr %entry.at, i64 16
  %arena = load i64, ptr %arena.at
  %before = call i64 @now()
  call void %execute(ptr %plan, ptr %slots, i64 %arena, ptr null)
  %after = call i64 @now()
  %elapsed = sub i64 %after, %before
  %elapsed.at = getelementptr i64, ptr %plan, i64 {int(Head.ELAPSED)}
  store atomic i64 %elapsed, ptr %elapsed.at monotonic, align 8
  %number.next = add i64 %number, 1
  store atomic i64 %number.next, ptr %completed.at seq_cst, align 8
  %waiters = load atomic i32, ptr %waiters.at seq_cst, align 4
  %watched = icmp sgt i32 %waiters, 0
  br i1 %watched, label %tell, label %finish
tell:
  call void @atomic_notify(ptr %done, i32 2147483647)
  br label %finish
finish:
  br label %look
idle:
  call void @relax()
  %time = call i64 @now()
  %waited = sub i64 %time, %since
  %patient = icmp slt i64 %waited, {SPIN_NS}
  br i1 %patient, label %poll, label %sleep
poll:
  br label %look
sleep:
  %ticket = load atomic i32, ptr %epoch seq_cst, align 4
  store atomic i32 1, ptr %asleep seq_cst, align 4
  %submitted.now = load atomic i64, ptr %submitted.at seq_cst, align 8
  %still = icmp eq i64 %submitted.now, %number
  br i1 %still, label %wait, label %rise
wait:
  call void @atomic_wait(ptr %epoch, i32 %ticket, i64 -1)
  br label %rise
rise:
  store atomic i32 0, ptr %asleep seq_cst, align 4
  %risen = call i64 @now()
  br label %look
}}
"""

# Put a job in the ring, which has room, and start the thread if there is none; false when the
# system refuses one.
_SUBMIT = f"""
define internal i1 @submit(ptr %stream, ptr %plan, ptr %slots, i64 %arena) {{
entry:
  %born.at = getelementptr i8, ptr %stream, i64 {BORN}
  %born = load atomic i32, ptr %born.at monotonic, align 4
  %alive = icmp ne i32 %born, 0
  br i1 %alive, label %put, label %start
start:
  %started = call i1 @spawn(ptr @consumer, ptr %stream)
  br i1 %started, label %begun, label %refused
refused:
  ret i1 false
begun:
  store atomic i32 1, ptr %born.at monotonic, align 4
  br label %put
put:
  %submitted.at = getelementptr i8, ptr %stream, i64 {SUBMITTED}
  %submitted = load atomic i64, ptr %submitted.at monotonic, align 8
  %index = and i64 %submitted, {CAPACITY - 1}
  %offset = mul i64 %index, {_ENTRY}
  %ring = getelementptr i8, ptr %stream, i64 {RING}
  %entry.at = getelementptr i8, ptr %ring, i64 %offset
  store ptr %plan, ptr %entry.at
  %slots.at = getelementptr i8, ptr %entry.at, i64 8
  store ptr %slots, ptr %slots.at
  %arena.at = getelementptr i8, ptr %entry.at, i64 16
  store i64 %arena, ptr %arena.at
  %more = add i64 %submitted, 1
  store atomic i64 %more, ptr %submitted.at seq_cst, align 8
  %asleep.at = getelementptr i8, ptr %stream, i64 {ASLEEP}
  %asleep = load atomic i32, ptr %asleep.at seq_cst, align 4
  %sleeps = icmp ne i32 %asleep, 0
  br i1 %sleeps, label %wake, label %done
wake:
  %epoch = getelementptr i8, ptr %stream, i64 {SUBMIT_EPOCH}
  call void @atomic_notify(ptr %epoch, i32 1)
  br label %done
done:
  ret i1 true
}}
"""

# wait(stream, number, nanoseconds): true once `number` jobs are completed, false when time is up.
# It polls for a while first: sleeping and waking cost more than most short plans.
_WAIT = f"""
define i1 @ridgeline_wait(ptr %stream, i64 %number, i64 %nanoseconds) {{
entry:
  %completed.at = getelementptr i8, ptr %stream, i64 {COMPLETED}
  %waiters = getelementptr i8, ptr %stream, i64 {WAITERS}
  %done = getelementptr i8, ptr %stream, i64 {DONE_EPOCH}
  %begin = call i64 @now()
  br label %poll
poll:
  %seen = load atomic i64, ptr %completed.at acquire, align 8
  %reached = icmp sge i64 %seen, %number
  br i1 %reached, label %yes, label %again
again:
  call void @relax()
  %time = call i64 @now()
  %waited = sub i64 %time, %begin
  %patient = icmp slt i64 %waited, {SPIN_NS}
  br i1 %patient, label %poll, label %sleep
sleep:
  %ticket = load atomic i32, ptr %done seq_cst, align 4
  atomicrmw add ptr %waiters, i32 1 seq_cst
  %seen.now = load atomic i64, ptr %completed.at seq_cst, align 8
  %late = icmp slt i64 %seen.now, %number
  br i1 %late, label %wait, label %rise
wait:
  call void @atomic_wait(ptr %done, i32 %ticket, i64 %nanoseconds)
  br label %rise
rise:
  atomicrmw sub ptr %waiters, i32 1 seq_cst
  %seen.last = load atomic i64, ptr %completed.at acquire, align 8
  %ready = icmp sge i64 %seen.last, %number
  ret i1 %ready
yes:
  ret i1 true
}}
"""
