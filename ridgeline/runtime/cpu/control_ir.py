"""Loops and branches of a plan as LLVM IR: `loop` and `branch` run sub-plans, without Python.

Every table of a control step (see `control_words`) is walked by one function of the same form; the
row's words are %w0, %w1 and so on. What is carried alternates between its result's memory and a
spare piece; %current holds where each carried value is now. A negative time says that a signal's
handler raised: see `steps`.
"""

from __future__ import annotations

from ridgeline.runtime.cpu.support_ir import Head


def control_ir() -> str:
    """What `steps` calls, to be put in one module with it."""
    return (
        "\ndeclare ptr @memcpy(ptr, ptr, i64)\n"
        + _walk("bind", 2, _load("slots", "w1", "address") + _store("sub", "w0", "address"))
        + _walk("stream", 4, _moved("w2", "w3") + _store("sub", "w0", "address"))
        + _walk("copy", 5, _moved("w2", "w3") + _load("sub", "w0", "source") + _copy("w4"))
        + _walk("show", 2, _load("current", "w1", "address") + _store("sub", "w0", "address"))
        + _walk("start", 7, _load("slots", "w3", "address") + _store("current", "k", "address"))
        + _walk(
            "enter_carried", 7, _NEXT + _store("sub", "w0", "now") + _store("sub", "w1", "next")
        )
        + _walk("leave_carried", 7, _NEXT + _LEAVE + _store("current", "k", "next"))
        + _walk("close_carried", 7, _NEXT + _CLOSE)
        + _ITERATE
        + _LOOP
        + _BRANCH
    )


def _walk(name: str, width: int, work: str) -> str:
    """A function that does `work` for each row of a table and returns the end of the table."""
    words = "\n".join(
        f"  %w{i}.at = getelementptr i64, ptr %row, i64 {i}\n  %w{i} = load i64, ptr %w{i}.at"
        for i in range(width)
    )
    return f"""
define internal ptr @table_{name}(ptr %table, ptr %sub, ptr %slots, ptr %current, i64 %i) {{
entry:
  %count = load i64, ptr %table
  %first = getelementptr i64, ptr %table, i64 1
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %k.next, %go ]
  %row = phi ptr [ %first, %entry ], [ %row.next, %go ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %go, label %done
go:
{words}
{work}
  %row.next = getelementptr i64, ptr %row, i64 {width}
  %k.next = add i64 %k, 1
  br label %head
done:
  ret ptr %row
}}
"""


def _load(array: str, index: str, name: str) -> str:
    return (
        f"  %{name}.at = getelementptr i64, ptr %{array}, i64 %{index}\n"
        f"  %{name} = load i64, ptr %{name}.at\n"
    )


def _store(array: str, index: str, name: str) -> str:
    address = f"{array}.{index}.place"
    return (
        f"  %{address} = getelementptr i64, ptr %{array}, i64 %{index}\n"
        f"  store i64 %{name}, ptr %{address}\n"
    )


def _moved(first: str, stride: str) -> str:
    """%address: a place that depends on the iteration."""
    return _load("slots", "w1", "base") + (
        f"  %along = mul i64 %i, %{stride}\n"
        f"  %offset = add i64 %along, %{first}\n"
        f"  %address = add i64 %base, %offset\n"
    )


def _copy(nbytes: str) -> str:
    return (
        "  %to = inttoptr i64 %address to ptr\n"
        "  %from = inttoptr i64 %source to ptr\n"
        f"  call ptr @memcpy(ptr %to, ptr %from, i64 %{nbytes})\n"
    )


# %now: where a carried value is; %next: where the next one goes.
_NEXT = (
    _load("current", "k", "now")
    + _load("slots", "w4", "result")
    + _load("slots", "w5", "spare")
    + """  %settled = icmp eq i64 %now, %result
  %next = select i1 %settled, i64 %spare, i64 %result
"""
)
_LEAVE = """  %copied = icmp sge i64 %w2, 0
  %slot = select i1 %copied, i64 %w2, i64 0
  %source.at = getelementptr i64, ptr %sub, i64 %slot
  %source = load i64, ptr %source.at
  %nbytes = select i1 %copied, i64 %w6, i64 0
  %to = inttoptr i64 %next to ptr
  %from = inttoptr i64 %source to ptr
  call ptr @memcpy(ptr %to, ptr %from, i64 %nbytes)
"""
_CLOSE = """  %nbytes = select i1 %settled, i64 0, i64 %w6
  %to = inttoptr i64 %result to ptr
  %from = inttoptr i64 %now to ptr
  call ptr @memcpy(ptr %to, ptr %from, i64 %nbytes)
"""


def _opened(name: str, words: str, plan: int, arena: int) -> str:
    """%name and %name.sub: a sub-plan and slots for it, with its temporaries placed."""
    return f"""
  %{name}.at = getelementptr i64, ptr %{words}, i64 {plan}
  %{name} = load ptr, ptr %{name}.at
  %{name}.size.at = getelementptr i64, ptr %{name}, i64 {int(Head.SLOTS)}
  %{name}.size = load i64, ptr %{name}.size.at
  %{name}.room = add i64 %{name}.size, 1
  %{name}.sub = alloca i64, i64 %{name}.room
  %{name}.arena.at = getelementptr i64, ptr %{words}, i64 {arena}
  %{name}.arena.slot = load i64, ptr %{name}.arena.at
  %{name}.has = icmp sge i64 %{name}.arena.slot, 0
  %{name}.slot = select i1 %{name}.has, i64 %{name}.arena.slot, i64 0
  %{name}.base.at = getelementptr i64, ptr %slots, i64 %{name}.slot
  %{name}.base.read = load i64, ptr %{name}.base.at
  %{name}.base = select i1 %{name}.has, i64 %{name}.base.read, i64 0
  call void @place(ptr %{name}, ptr %{name}.sub, i64 %{name}.base)
"""


def _table(name: str, table: str, sub: str, iteration: str = "0", current: str = "null") -> str:
    return (
        f"call ptr @table_{name}(ptr {table}, ptr {sub}, ptr %slots, ptr {current}, "
        f"i64 {iteration})"
    )


def _iterate(iteration: str) -> str:
    return (
        "@iterate(ptr %body, ptr %body.sub, ptr %slots, ptr %carried, ptr %streams, ptr %copied, "
        f"ptr %current, i64 {iteration}, ptr %pool, i32 %mode)"
    )


_ITERATE = f"""
define internal i64 @iterate(ptr %body, ptr %sub, ptr %slots, ptr %carried, ptr %streams,
                             ptr %copied, ptr %current, i64 %i, ptr %pool, i32 %mode) {{
  {_table("enter_carried", "%carried", "%sub", current="%current")}
  {_table("stream", "%streams", "%sub", "%i")}
  %time = call i64 @steps(ptr %body, ptr %sub, ptr %pool, i32 %mode, ptr null)
  {_table("copy", "%copied", "%sub", "%i")}
  {_table("leave_carried", "%carried", "%sub", current="%current")}
  ret i64 %time
}}
"""

_LOOP = f"""
define internal i64 @loop(ptr %step, ptr %slots, ptr %pool, i32 %mode) {{
entry:
{_opened("body", "step", 3, 4)}
  %answer.byte = alloca i64
  %count.at = getelementptr i64, ptr %step, i64 5
  %count = load i64, ptr %count.at
  %test.offset.at = getelementptr i64, ptr %step, i64 6
  %test.offset = load i64, ptr %test.offset.at
  %bound = getelementptr i64, ptr %step, i64 7
  %carried = {_table("bind", "%bound", "%body.sub")}
  %values = load i64, ptr %carried
  %values.room = add i64 %values, 1
  %current = alloca i64, i64 %values.room
  %streams = {_table("start", "%carried", "%body.sub", current="%current")}
  %streams.count = load i64, ptr %streams
  %streams.words = mul i64 %streams.count, 4
  %streams.size = add i64 %streams.words, 1
  %copied = getelementptr i64, ptr %streams, i64 %streams.size
  %tested = icmp ne i64 %test.offset, 0
  br i1 %tested, label %open, label %counted
open:
  %section = getelementptr i64, ptr %step, i64 %test.offset
{_opened("test", "section", 0, 1)}
  %answer.slot.at = getelementptr i64, ptr %section, i64 2
  %answer.slot = load i64, ptr %answer.slot.at
  %answer.at = getelementptr i64, ptr %test.sub, i64 %answer.slot
  %owns.at = getelementptr i64, ptr %section, i64 3
  %owns = load i64, ptr %owns.at
  %own = icmp ne i64 %owns, 0
  br i1 %own, label %give, label %given
give:
  %answer.address = ptrtoint ptr %answer.byte to i64
  store i64 %answer.address, ptr %answer.at
  br label %given
given:
  %test.bound = getelementptr i64, ptr %section, i64 4
  %shown = {_table("bind", "%test.bound", "%test.sub")}
  br label %ask
ask:
  %i.asked = phi i64 [ 0, %given ], [ %i.asked.next, %asked ]
  %time.asked = phi i64 [ 0, %given ], [ %time.asked.next, %asked ]
  {_table("show", "%shown", "%test.sub", current="%current")}
  %test.time = call i64 @steps(ptr %test, ptr %test.sub, ptr %pool, i32 %mode, ptr null)
  %test.broken = icmp slt i64 %test.time, 0
  br i1 %test.broken, label %broken, label %answered
answered:
  %time.tested = add i64 %time.asked, %test.time
  %byte.at = load ptr, ptr %answer.at
  %byte = load i8, ptr %byte.at
  %goes.on = icmp ne i8 %byte, 0
  br i1 %goes.on, label %asked, label %done
asked:
  %asked.time = call i64 {_iterate("%i.asked")}
  %time.asked.next = add i64 %time.tested, %asked.time
  %i.asked.next = add i64 %i.asked, 1
  %asked.broken = icmp slt i64 %asked.time, 0
  br i1 %asked.broken, label %broken, label %ask
counted:
  %i = phi i64 [ 0, %entry ], [ %i.next, %run ]
  %time = phi i64 [ 0, %entry ], [ %time.next, %run ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %run, label %done
run:
  %run.time = call i64 {_iterate("%i")}
  %time.next = add i64 %time, %run.time
  %i.next = add i64 %i, 1
  %run.broken = icmp slt i64 %run.time, 0
  br i1 %run.broken, label %broken, label %counted
done:
  %total = phi i64 [ %time.tested, %answered ], [ %time, %counted ]
  {_table("close_carried", "%carried", "%body.sub", current="%current")}
  ret i64 %total
broken:
  ret i64 -1
}}
"""

_BRANCH = f"""
define internal i64 @branch(ptr %step, ptr %slots, ptr %pool, i32 %mode) {{
entry:
  %predicate.slot.at = getelementptr i64, ptr %step, i64 3
  %predicate.slot = load i64, ptr %predicate.slot.at
  %predicate.at = getelementptr i64, ptr %slots, i64 %predicate.slot
  %predicate = load ptr, ptr %predicate.at
  %byte = load i8, ptr %predicate
  %holds = icmp ne i8 %byte, 0
  %else.at = getelementptr i64, ptr %step, i64 4
  %else = load i64, ptr %else.at
  %offset = select i1 %holds, i64 5, i64 %else
  %side = getelementptr i64, ptr %step, i64 %offset
{_opened("body", "side", 0, 1)}
  %bound = getelementptr i64, ptr %side, i64 2
  %copied = {_table("bind", "%bound", "%body.sub")}
  %time = call i64 @steps(ptr %body, ptr %body.sub, ptr %pool, i32 %mode, ptr null)
  {_table("copy", "%copied", "%body.sub")}
  ret i64 %time
}}
"""
