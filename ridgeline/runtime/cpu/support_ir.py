"""What the LLVM IR of the pool, the executor and the stream shares: clock, futex, threads, Python.

A plan is an array of words (`control_words.py`), the first of which are its `Head`.

All functions of `support_ir` are internal: each module that includes its text has its own copy.
Python functions over machine code are IR that reads their arguments, and function objects: a
built-in function with METH_FASTCALL costs a fifth of a ctypes call.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from enum import IntEnum
from typing import Any

_FUTEX = {"x86_64": 202, "aarch64": 98}
_RELAX = {  # tells the core that this is a polling loop: an intrinsic and its argument
    "x86_64": ("llvm.x86.sse2.pause", "", ""),
    "aarch64": ("llvm.aarch64.hint", "i32", "1"),
}
_METH_FASTCALL = 0x80

PYTHON_SYMBOLS = """
@_Py_NoneStruct = external global i8
@PyExc_TypeError = external global ptr
@wrong.count = private constant [45 x i8] c"a plan was given a wrong number of addresses\\00"
declare i64 @PyLong_AsUnsignedLongLong(ptr)
declare ptr @PyBool_FromLong(i64)
declare ptr @PyErr_Occurred()
declare void @PyErr_SetString(ptr, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
"""


class Head(IntEnum):
    """The words at the start of a plan."""

    POOL = 0
    STEPS = 1
    SLOTS = 2
    ADDRESSES = 3
    ARENA = 4
    WIDEST = 5  # the most arguments of any step
    PARALLEL = 6  # how many steps may use several threads
    ESTIMATE = 7  # nanoseconds the parallel steps take one thread; 0: not known yet; the code's
    ELAPSED = 8  # nanoseconds the plan last took on a stream; 0: not known yet; the stream's
    WORDS = 9


def load_head(name: str, word: Head) -> str:
    """IR that reads a word of the head of %plan into %name."""
    return (
        f"%{name}.at = getelementptr i64, ptr %plan, i64 {int(word)}\n"
        f"  %{name} = load i64, ptr %{name}.at"
    )


def support_ir() -> str:
    """`now`, `relax`, `futex_wait`, `futex_wake` and `spawn`."""
    machine = platform.machine()
    if platform.system() != "Linux" or machine not in _FUTEX:
        raise NotImplementedError(
            f"the native runtime has no form for {platform.system()} on {machine} yet"
        )
    futex = _FUTEX[machine]
    relax, kind, argument = _RELAX[machine]
    return f"""
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare i64 @syscall(i64, ...)
declare void @{relax}({kind})

define internal void @relax() alwaysinline {{
  call void @{relax}({kind} {argument})
  ret void
}}

define internal i64 @now() {{
  %time = alloca [2 x i64]
  call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest = getelementptr i8, ptr %time, i64 8
  %nanoseconds = load i64, ptr %rest
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %nanoseconds
  ret i64 %sum
}}

define internal void @futex_wait(ptr %word, i32 %value, ptr %timeout) {{
  call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i32 128, i32 %value, ptr %timeout)
  ret void
}}

define internal void @futex_wake(ptr %word, i32 %count) noinline {{
  atomicrmw add ptr %word, i32 1 seq_cst
  call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i32 129, i32 %count)
  ret void
}}
{_SPAWN}"""


# Start a thread with all signals blocked, so that Python's handlers stay on Python's threads.
_SPAWN = f"""
define internal i1 @spawn(ptr %function, ptr %argument) noinline {{
entry:
  %mask = alloca [128 x i8]
  %old = alloca [128 x i8]
  %thread = alloca i64
  store [128 x i8] [{", ".join(["i8 -1"] * 128)}], ptr %mask
  call i32 @pthread_sigmask(i32 2, ptr %mask, ptr %old)
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr %function, ptr %argument)
  call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %detach, label %done
detach:
  %id = load i64, ptr %thread
  call i32 @pthread_detach(i64 %id)
  br label %done
done:
  ret i1 %ok
}}
"""


def python_entry(name: str, fixed: int, slots: str, action: str) -> str:
    """A function of (plan, arena, ..., address...), all integers: `fixed` ones, then addresses.

    `slots` is IR for the memory that receives the addresses, `action` is IR that returns an
    object; they may use %plan, %size (how many slots), %slots and %fixed.1, %fixed.2 and so on.
    """
    reads = "\n".join(
        f"  %object.{i}.at = getelementptr ptr, ptr %objects, i64 {i}\n"
        f"  %object.{i} = load ptr, ptr %object.{i}.at\n"
        f"  %fixed.{i} = call i64 @PyLong_AsUnsignedLongLong(ptr %object.{i})"
        for i in range(fixed)
    )
    return f"""
define ptr @ridgeline_{name}(ptr %self, ptr %objects, i64 %count) {{
entry:
  %enough = icmp sge i64 %count, {fixed}
  br i1 %enough, label %head, label %wrong
head:
{reads}
  %early = call ptr @PyErr_Occurred()
  %fine = icmp eq ptr %early, null
  br i1 %fine, label %check, label %error
check:
  %plan = inttoptr i64 %fixed.0 to ptr
  {load_head("expected", Head.ADDRESSES)}
  %given = sub i64 %count, {fixed}
  %right = icmp eq i64 %given, %expected
  br i1 %right, label %fill, label %wrong
fill:
  {load_head("size", Head.SLOTS)}
  %slots = {slots}
  br label %read
read:
  %index = phi i64 [ 0, %fill ], [ %index.next, %store ]
  %reading = icmp slt i64 %index, %expected
  br i1 %reading, label %convert, label %act
convert:
  %position = add i64 %index, {fixed}
  %object.at = getelementptr ptr, ptr %objects, i64 %position
  %object = load ptr, ptr %object.at
  %value = call i64 @PyLong_AsUnsignedLongLong(ptr %object)
  %suspect = icmp eq i64 %value, -1
  br i1 %suspect, label %examine, label %store
examine:
  %late = call ptr @PyErr_Occurred()
  %really = icmp ne ptr %late, null
  br i1 %really, label %error, label %store
store:
  %slot = getelementptr i64, ptr %slots, i64 %index
  store i64 %value, ptr %slot
  %index.next = add i64 %index, 1
  br label %read
act:
  {action}
wrong:
  %kind = load ptr, ptr @PyExc_TypeError
  call void @PyErr_SetString(ptr %kind, ptr @wrong.count)
  ret ptr null
error:
  ret ptr null
}}
"""


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def python_function(name: str, address: int) -> Callable[..., Any]:
    """The function object over machine code made by `python_entry`."""
    definition = _MethodDef(name.encode(), address, _METH_FASTCALL, None)
    # The function points into its definition and may outlive any name that holds it: leak it.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(definition))
    create = ctypes.pythonapi.PyCFunction_NewEx
    create.restype = ctypes.py_object
    create.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    made: Callable[..., Any] = create(ctypes.addressof(definition), None, None)
    return made
