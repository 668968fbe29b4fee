"""Python functions over machine code: IR that reads their arguments, and the function objects.

A built-in function with METH_FASTCALL costs a fifth of a ctypes call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ridgeline.runtime.cpu.control_words import Head, load_head

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
