"""Collectives as steps of a plan, in LLVM IR: `post` one, `await` it, without Python.

A rank has a mailbox (`mailbox.py`): a ring of entries that plans fill and a thread beside them
empties, which talks to the other ranks. An entry's number is the ticket by which the plan later
waits for it. The thread sleeps on the *bell* while it has nothing to do; a plan sleeps until
something is *settled*, and rings first, so that the thread hurries.
"""

from __future__ import annotations

import mmap

from ridgeline.runtime.cpu.control_words import NOWHERE

# Byte offsets in the first page, words of several writers in cache lines of their own.
HEAD, BELL, ASLEEP, SETTLED = range(0, 4 * 64, 64)
AXES = 256  # nanoseconds waited and hidden, a pair for each of so many axes
MOST_AXES = 64
RING = mmap.PAGESIZE
ENTRIES, ENTRY_BYTES = 1 << 14, 128
MAILBOX_BYTES = RING + ENTRIES * ENTRY_BYTES
# An entry: its state and what was posted, the times of the clock of plans.
STATE, CONTEXT, CALL, AXIS, RESULT, OPERANDS, POSTED, DONE, WAITING = (
    0, 8, 16, 24, 32, 40, 64, 72, 80,
)  # fmt: skip
FREE, UNDER_WAY, OVER, FAILED = range(4)
# The context of a run: whether it failed and with which ticket, and its rank's mailbox.
HAS_FAILED, MAILBOX, FAILED_TICKET = 0, 8, 16
_POLLS = 64  # looks at an entry before the plan sleeps
_PATIENCE = 20_000_000  # nanoseconds between two looks whether a signal came


_RING = f"""
define internal void @ring(ptr %mailbox) {{
entry:
  %bell = getelementptr i8, ptr %mailbox, i64 {BELL}
  atomicrmw add ptr %bell, i32 1 seq_cst
  %asleep.at = getelementptr i8, ptr %mailbox, i64 {ASLEEP}
  %asleep = load atomic i32, ptr %asleep.at seq_cst, align 4
  %sleeps = icmp ne i32 %asleep, 0
  br i1 %sleeps, label %wake, label %done
wake:
  call void @atomic_notify(ptr %bell, i32 2147483647)
  br label %done
done:
  ret void
}}
"""

_ENTRY = f"""
define internal ptr @entry(ptr %mailbox, i64 %ticket) alwaysinline {{
  %place = and i64 %ticket, {ENTRIES - 1}
  %offset = mul i64 %place, {ENTRY_BYTES}
  %ring = getelementptr i8, ptr %mailbox, i64 {RING}
  %box = getelementptr i8, ptr %ring, i64 %offset
  ret ptr %box
}}
"""


def _word(name: str, place: int) -> str:
    return (
        f"  %{name}.at = getelementptr i64, ptr %step, i64 {place}\n"
        f"  %{name} = load i64, ptr %{name}.at\n"
    )


def _slot(name: str, number: str) -> str:
    return (
        f"  %{name}.slot = getelementptr ptr, ptr %slots, i64 %{number}\n"
        f"  %{name} = load ptr, ptr %{name}.slot\n"
    )


def _store(name: str, kind: str, value: str, offset: int) -> str:
    return (
        f"  %{name}.to = getelementptr i8, ptr %box, i64 {offset}\n"
        f"  store {kind} {value}, ptr %{name}.to\n"
    )


def _load(name: str, offset: int) -> str:
    return (
        f"  %{name}.from = getelementptr i8, ptr %box, i64 {offset}\n"
        f"  %{name} = load i64, ptr %{name}.from\n"
    )


_CONTEXT = (
    _word("context.number", 3)
    + _slot("context", "context.number")
    + f"  %mailbox.at = getelementptr i8, ptr %context, i64 {MAILBOX}\n"
    + "  %mailbox = load ptr, ptr %mailbox.at\n"
    + _word("ticket.number", 4)
    + _slot("ticket.where", "ticket.number")
)

# Words: context, ticket, call, axis, result, number of operands, operands.
_POST = f"""
define internal void @post(ptr %step, ptr %slots) {{
entry:
{_CONTEXT}{_word("call", 5)}{_word("axis", 6)}{_word("result.number", 7)}{_word("count", 8)}
  %operands = getelementptr i64, ptr %step, i64 9
  %head = getelementptr i8, ptr %mailbox, i64 {HEAD}
  %ticket = atomicrmw add ptr %head, i64 1 seq_cst
  store i64 %ticket, ptr %ticket.where
  %box = call ptr @entry(ptr %mailbox, i64 %ticket)
  br label %look
look:
  %state = load atomic i64, ptr %box acquire, align 8
  %free = icmp eq i64 %state, {FREE}
  br i1 %free, label %fill, label %full
full:
  call void @yield_core()
  br label %look
fill:
{_store("kept.context", "ptr", "%context", CONTEXT)}{_store("kept.call", "i64", "%call", CALL)}
{_store("kept.axis", "i64", "%axis", AXIS)}{_store("waiting", "i64", "0", WAITING)}
  %nowhere = icmp eq i64 %result.number, {NOWHERE}
  br i1 %nowhere, label %without, label %with
without:
  br label %placed
with:
{_slot("result.where", "result.number")}
  br label %placed
placed:
  %result = phi ptr [ null, %without ], [ %result.where, %with ]
{_store("kept.result", "ptr", "%result", RESULT)}
  %kept.operands = getelementptr i8, ptr %box, i64 {OPERANDS}
  br label %copy
copy:
  %operand = phi i64 [ 0, %placed ], [ %operand.next, %more ]
  %copying = icmp slt i64 %operand, %count
  br i1 %copying, label %more, label %ready
more:
  %number.at = getelementptr i64, ptr %operands, i64 %operand
  %number = load i64, ptr %number.at
{_slot("address", "number")}
  %address.to = getelementptr ptr, ptr %kept.operands, i64 %operand
  store ptr %address, ptr %address.to
  %operand.next = add i64 %operand, 1
  br label %copy
ready:
  %time = call i64 @now()
{_store("posted", "i64", "%time", POSTED)}
  store atomic i64 {UNDER_WAY}, ptr %box release, align 8
  call void @ring(ptr %mailbox)
  ret void
}}
"""

# 0 where it is over, 1 where it failed, which the context says then, and -1 where a signal's
# handler raised. The words: context, ticket.
_AWAIT = f"""
define internal i64 @await(ptr %step, ptr %slots, ptr %pool, i1 %watched) {{
entry:
{_CONTEXT}
  %ticket = load i64, ptr %ticket.where
  %box = call ptr @entry(ptr %mailbox, i64 %ticket)
  %settled = getelementptr i8, ptr %mailbox, i64 {SETTLED}
  %waiting.at = getelementptr i8, ptr %box, i64 {WAITING}
  %asked = call i64 @now()
  br label %look
look:
  %polls = phi i64 [ 0, %entry ], [ %polls.next, %poll ], [ {_POLLS}, %sleep ], [ {_POLLS}, %woken ]
  %state = load atomic i64, ptr %box acquire, align 8
  switch i64 %state, label %pending [ i64 {OVER}, label %over
                                      i64 {FAILED}, label %failed ]
pending:
  %patient = icmp slt i64 %polls, {_POLLS}
  br i1 %patient, label %poll, label %tell
poll:
  call void @relax()
  %polls.next = add i64 %polls, 1
  br label %look
tell:
  %told = atomicrmw xchg ptr %waiting.at, i64 1 seq_cst
  %first = icmp eq i64 %told, 0
  br i1 %first, label %hurry, label %sleep
hurry:
  call void @ring(ptr %mailbox)
  br label %sleep
sleep:
  %seen = load atomic i32, ptr %settled seq_cst, align 4
  %state.now = load atomic i64, ptr %box seq_cst, align 8
  %still = icmp eq i64 %state.now, {UNDER_WAY}
  br i1 %still, label %wait, label %look
wait:
  call void @atomic_wait(ptr %settled, i32 %seen, i64 {_PATIENCE})
  br i1 %watched, label %signals, label %woken
signals:
  %raised = call i1 @interrupted(ptr %pool)
  br i1 %raised, label %broken, label %woken
woken:
  br label %look
broken:
  ret i64 -1
over:
  %got = call i64 @now()
  %exposed = sub i64 %got, %asked
{_load("posted", POSTED)}{_load("done", DONE)}{_load("axis", AXIS)}
  %end = call i64 @llvm.smin.i64(i64 %done, i64 %asked)
  %before = sub i64 %end, %posted
  %none = icmp slt i64 %before, 0
  %hidden = select i1 %none, i64 0, i64 %before
  %axes = getelementptr i8, ptr %mailbox, i64 {AXES}
  %pair = shl i64 %axis, 4
  %exposed.at = getelementptr i8, ptr %axes, i64 %pair
  %hidden.at = getelementptr i8, ptr %exposed.at, i64 8
  atomicrmw add ptr %exposed.at, i64 %exposed monotonic
  atomicrmw add ptr %hidden.at, i64 %hidden monotonic
  store atomic i64 {FREE}, ptr %box release, align 8
  ret i64 0
failed:
  %ticket.to = getelementptr i8, ptr %context, i64 {FAILED_TICKET}
  store i64 %ticket, ptr %ticket.to
  %flag = getelementptr i8, ptr %context, i64 {HAS_FAILED}
  store i64 1, ptr %flag
  store atomic i64 {FREE}, ptr %box release, align 8
  ret i64 1
}}
"""

# The thread's side. It sleeps unless the bell has rung since it was `heard`, and says how often
# it has rung by now: whatever was posted before that is there.
_THREAD = f"""
define i32 @ridgeline_mailbox_sleep(ptr %mailbox, i32 %heard, i64 %patience) {{
entry:
  %bell = getelementptr i8, ptr %mailbox, i64 {BELL}
  %asleep = getelementptr i8, ptr %mailbox, i64 {ASLEEP}
  store atomic i32 1, ptr %asleep seq_cst, align 4
  %before = load atomic i32, ptr %bell seq_cst, align 4
  %quiet = icmp eq i32 %before, %heard
  br i1 %quiet, label %wait, label %awake
wait:
  call void @atomic_wait(ptr %bell, i32 %heard, i64 %patience)
  br label %awake
awake:
  store atomic i32 0, ptr %asleep seq_cst, align 4
  %rung = load atomic i32, ptr %bell seq_cst, align 4
  ret i32 %rung
}}

define void @ridgeline_mailbox_ring(ptr %mailbox) {{
  call void @ring(ptr %mailbox)
  ret void
}}

define void @ridgeline_mailbox_settle(ptr %mailbox, i64 %ticket, i64 %state) {{
  %box = call ptr @entry(ptr %mailbox, i64 %ticket)
  %time = call i64 @now()
{_store("done", "i64", "%time", DONE)}
  store atomic i64 %state, ptr %box release, align 8
  %settled = getelementptr i8, ptr %mailbox, i64 {SETTLED}
  call void @atomic_notify(ptr %settled, i32 2147483647)
  ret void
}}

define i64 @ridgeline_mailbox_head(ptr %mailbox) {{
  %head = getelementptr i8, ptr %mailbox, i64 {HEAD}
  %count = load atomic i64, ptr %head seq_cst, align 8
  ret i64 %count
}}
"""

# What `steps` calls, and what the thread beside it does.
MAILBOX_IR = _RING + _ENTRY + _POST + _AWAIT + _THREAD
