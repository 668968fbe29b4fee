"""What compiled functions share, in LLVM IR: functions of CPython's stable ABI, and the pool.

The outermost call has a *pool* on its stack: the references that are released when it is over (a
list has those for which there is no room), and whether anything was changed that others see. `kept`
gives it a reference; a null pointer, from memory that ran out, stays one, and means that the call
bails out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ridgeline.codegen.cpython.layout import TYPE

MOST_KEPT = 1 << 9  # references on the stack
POOL = f"{{ i64, i64, ptr, [{MOST_KEPT} x ptr] }}"
FAILED = -(1 << 63)  # stands for what is no number
NO, YES, BAIL = 0, 1, 2  # what compiled functions give that give a truth

DECLARATIONS = """
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_Clear()
declare i32 @PyGC_Disable()
declare i32 @PyGC_Enable()
declare i32 @PyType_IsSubtype(ptr, ptr)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyLong_FromVoidPtr(ptr)
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyTuple_New(i64)
declare ptr @PyTuple_GetSlice(ptr, i64, i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare ptr @PyList_New(i64)
declare i32 @PyList_Append(ptr, ptr)
declare ptr @PyList_AsTuple(ptr)
declare ptr @PyDict_New()
declare i64 @PyDict_Size(ptr)
declare void @PyDict_Clear(ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare ptr @PyWeakref_NewRef(ptr, ptr)
declare ptr @PyFrame_GetCode(ptr)
declare double @llvm.fabs.f64(double)
"""

_POOL = f"""
define internal ptr @kept(ptr %pool, ptr %object) {{
entry:
  %none = icmp eq ptr %object, null
  br i1 %none, label %bail, label %look
look:
  %count = load i64, ptr %pool
  %fits = icmp slt i64 %count, {MOST_KEPT}
  br i1 %fits, label %take, label %full
take:
  %place = getelementptr {POOL}, ptr %pool, i64 0, i32 3, i64 %count
  store ptr %object, ptr %place
  %next = add i64 %count, 1
  store i64 %next, ptr %pool
  ret ptr %object
full:
  %more = getelementptr {POOL}, ptr %pool, i64 0, i32 2
  %known = load ptr, ptr %more
  %first = icmp eq ptr %known, null
  br i1 %first, label %begin, label %append
begin:
  %new = call ptr @PyList_New(i64 0)
  store ptr %new, ptr %more
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %drop, label %append
append:
  %list = phi ptr [ %known, %full ], [ %new, %begin ]
  %status = call i32 @PyList_Append(ptr %list, ptr %object)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %listed, label %drop
listed:
  call void @Py_DecRef(ptr %object)
  ret ptr %object
drop:
  call void @Py_DecRef(ptr %object)
  br label %bail
bail:
  ret ptr null
}}

define internal void @changes(ptr %pool) {{
  %flag = getelementptr {POOL}, ptr %pool, i64 0, i32 1
  store i64 1, ptr %flag
  ret void
}}

define internal void @released(ptr %pool) {{
entry:
  br label %head
head:
  %left = load i64, ptr %pool
  %any = icmp sgt i64 %left, 0
  br i1 %any, label %release, label %done
release:
  %last = sub i64 %left, 1
  store i64 %last, ptr %pool
  %place = getelementptr {POOL}, ptr %pool, i64 0, i32 3, i64 %last
  %object = load ptr, ptr %place
  call void @Py_DecRef(ptr %object)
  br label %head
done:
  %more = getelementptr {POOL}, ptr %pool, i64 0, i32 2
  %list = load ptr, ptr %more
  %none = icmp eq ptr %list, null
  br i1 %none, label %end, label %others
others:
  call void @Py_DecRef(ptr %list)
  br label %end
end:
  ret void
}}
"""

# Types are compared before anything else is done to an object.
_TYPES = f"""
define internal ptr @type_of(ptr %object) alwaysinline {{
  %at = getelementptr i8, ptr %object, i64 {TYPE}
  %type = load ptr, ptr %at
  ret ptr %type
}}

define internal i1 @is_of(ptr %object, ptr %class) alwaysinline {{
entry:
  %type = call ptr @type_of(ptr %object)
  %same = icmp eq ptr %type, %class
  br i1 %same, label %done, label %look
look:
  %answer = call i32 @PyType_IsSubtype(ptr %type, ptr %class)
  %below = icmp ne i32 %answer, 0
  br label %done
done:
  %found = phi i1 [ true, %entry ], [ %below, %look ]
  ret i1 %found
}}
"""

# A reference into a slot, or none; what was there before is released when the call is over.
_SLOTS = """
define internal void @put(ptr %pool, ptr %place, ptr %value) {
entry:
  %nothing = icmp eq ptr %value, null
  br i1 %nothing, label %replace, label %hold
hold:
  call void @Py_IncRef(ptr %value)
  br label %replace
replace:
  %old = load ptr, ptr %place
  store ptr %value, ptr %place
  %empty = icmp eq ptr %old, null
  br i1 %empty, label %done, label %release
release:
  %later = call ptr @kept(ptr %pool, ptr %old)
  br label %done
done:
  ret void
}
"""


def _numbers(place: Callable[[object], str]) -> str:
    """Whole numbers in registers."""
    return f"""
define internal i64 @unboxed(ptr %object) {{
entry:
  %type = call ptr @type_of(ptr %object)
  %int = load ptr, ptr {place(int)}
  %right = icmp eq ptr %type, %int
  br i1 %right, label %convert, label %bail
convert:
  %number = call i64 @PyLong_AsLongLong(ptr %object)
  %suspect = icmp eq i64 %number, -1
  br i1 %suspect, label %look, label %done
look:
  %error = call ptr @PyErr_Occurred()
  %wide = icmp ne ptr %error, null
  br i1 %wide, label %forget, label %done
forget:
  call void @PyErr_Clear()
  br label %bail
done:
  ret i64 %number
bail:
  ret i64 {FAILED}
}}
"""


def _equality(
    place: Callable[[object], str], tuples: Sequence[type], records: Mapping[type, Sequence[int]]
) -> str:
    """Equality of constants whose classes have it in C, of tuples, and of data classes by slots.

    Of all others Python would have to be asked.
    """
    several = _one_of(place, (tuple, *tuples), "sizes", "kind")
    fields = "".join(
        f"  %record.{number} = load ptr, ptr {place(kind)}\n"
        f"  %is.{number} = icmp eq ptr %type, %record.{number}\n"
        f"  br i1 %is.{number}, label %record.{number}.0, label %other.{number}\n"
        + "".join(_compared(f"record.{number}", index, at) for index, at in enumerate(offsets))
        + f"record.{number}.{len(offsets)}:\n  br label %yes\nother.{number}:\n"
        for number, (kind, offsets) in enumerate(records.items())
    )
    return f"""
define internal i8 @equal(ptr %a, ptr %b) {{
entry:
  %type = call ptr @type_of(ptr %a)
  %other = call ptr @type_of(ptr %b)
  %alike = icmp eq ptr %type, %other
  br i1 %alike, label %look, label %bail
look:
  %int = load ptr, ptr {place(int)}
  %str = load ptr, ptr {place(str)}
  %float = load ptr, ptr {place(float)}
  %bool = load ptr, ptr {place(bool)}
  %none = load ptr, ptr {place(type(None))}
  %is.int = icmp eq ptr %type, %int
  %is.str = icmp eq ptr %type, %str
  %plain = or i1 %is.int, %is.str
  br i1 %plain, label %compare, label %real
compare:
  %answer = call i32 @PyObject_RichCompareBool(ptr %a, ptr %b, i32 2)
  %found = trunc i32 %answer to i8
  %fine = icmp sge i32 %answer, 0
  br i1 %fine, label %done, label %bail
done:
  ret i8 %found
real:
  %is.float = icmp eq ptr %type, %float
  br i1 %is.float, label %doubles, label %single
doubles:
  %x = call double @PyFloat_AsDouble(ptr %a)
  %y = call double @PyFloat_AsDouble(ptr %b)
  %close = fcmp oeq double %x, %y
  br label %truth
single:
  %is.bool = icmp eq ptr %type, %bool
  %is.none = icmp eq ptr %type, %none
  %singleton = or i1 %is.bool, %is.none
  %same = icmp eq ptr %a, %b
  br i1 %singleton, label %truth, label %several
truth:
  %equal = phi i1 [ %close, %doubles ], [ %same, %single ]
  %wide = zext i1 %equal to i8
  ret i8 %wide
several:
{several}{fields}  br label %bail
sizes:
  %long = call i64 @PyTuple_Size(ptr %a)
  %length = call i64 @PyTuple_Size(ptr %b)
  %fits = icmp eq i64 %long, %length
  br i1 %fits, label %items, label %no
items:
  %index = phi i64 [ 0, %sizes ], [ %next, %further ]
  %more = icmp slt i64 %index, %long
  br i1 %more, label %item, label %yes
item:
  %one = call ptr @PyTuple_GetItem(ptr %a, i64 %index)
  %another = call ptr @PyTuple_GetItem(ptr %b, i64 %index)
  %identical = icmp eq ptr %one, %another
  br i1 %identical, label %further, label %deeper
deeper:
  %inside = call i8 @equal(ptr %one, ptr %another)
  %agree = icmp eq i8 %inside, {YES}
  br i1 %agree, label %further, label %differ
further:
  %next = add i64 %index, 1
  br label %items
differ:
  ret i8 %inside
yes:
  ret i8 {YES}
no:
  ret i8 {NO}
bail:
  ret i8 {BAIL}
}}

define internal i8 @same_items(ptr %a, ptr %b) {{
entry:
  %at.a = alloca i64
  %at.b = alloca i64
  %key.a = alloca ptr
  %key.b = alloca ptr
  %value.a = alloca ptr
  %value.b = alloca ptr
  store i64 0, ptr %at.a
  store i64 0, ptr %at.b
  %size.a = call i64 @PyDict_Size(ptr %a)
  %size.b = call i64 @PyDict_Size(ptr %b)
  %fits = icmp eq i64 %size.a, %size.b
  br i1 %fits, label %items, label %no
items:
  %more.a = call i32 @PyDict_Next(ptr %a, ptr %at.a, ptr %key.a, ptr %value.a)
  %more.b = call i32 @PyDict_Next(ptr %b, ptr %at.b, ptr %key.b, ptr %value.b)
  %more = icmp ne i32 %more.a, 0
  br i1 %more, label %item, label %yes
item:
  %name = load ptr, ptr %key.a
  %other = load ptr, ptr %key.b
  %value = load ptr, ptr %value.a
  %given = load ptr, ptr %value.b
  %named = icmp eq ptr %name, %other
  br i1 %named, label %held, label %bail
held:
  %identical = icmp eq ptr %value, %given
  br i1 %identical, label %items, label %compare
compare:
  %found = call i8 @equal(ptr %value, ptr %given)
  %agree = icmp eq i8 %found, {YES}
  br i1 %agree, label %items, label %differ
differ:
  ret i8 %found
yes:
  ret i8 {YES}
no:
  ret i8 {NO}
bail:
  ret i8 {BAIL}
}}
"""


def _sequences(place: Callable[[object], str], tuples: Sequence[type]) -> str:
    """Tuples, those of some classes without methods of their own, and lists."""
    looks = _one_of(place, (tuple, *tuples), "ask.tuple", "kind")
    return f"""
define internal i64 @size(ptr %object) {{
entry:
  %type = call ptr @type_of(ptr %object)
{looks}  %list = load ptr, ptr {place(list)}
  %is.list = icmp eq ptr %type, %list
  br i1 %is.list, label %ask.list, label %bail
ask.tuple:
  %long = call i64 @PyTuple_Size(ptr %object)
  ret i64 %long
ask.list:
  %length = call i64 @PyList_Size(ptr %object)
  ret i64 %length
bail:
  ret i64 {FAILED}
}}

define internal ptr @item(ptr %object, i64 %index) {{
entry:
  %type = call ptr @type_of(ptr %object)
  %list = load ptr, ptr {place(list)}
  %is.list = icmp eq ptr %type, %list
  br i1 %is.list, label %of.list, label %of.tuple
of.tuple:
  %first = call ptr @PyTuple_GetItem(ptr %object, i64 %index)
  ret ptr %first
of.list:
  %second = call ptr @PyList_GetItem(ptr %object, i64 %index)
  ret ptr %second
}}

define internal ptr @joined(ptr %items, ptr %table, i32 %values) {{
entry:
  %at = alloca i64
  %key = alloca ptr
  %value = alloca ptr
  store i64 0, ptr %at
  %first = call i64 @PyTuple_Size(ptr %items)
  %second = call i64 @PyDict_Size(ptr %table)
  %both = add i64 %first, %second
  %made = call ptr @PyTuple_New(i64 %both)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %done, label %head
head:
  %index = phi i64 [ 0, %entry ], [ %next, %put ]
  %more = icmp slt i64 %index, %both
  br i1 %more, label %choose, label %done
choose:
  %early = icmp slt i64 %index, %first
  br i1 %early, label %item, label %entry.of
item:
  %one = call ptr @PyTuple_GetItem(ptr %items, i64 %index)
  br label %put
entry.of:
  %some = call i32 @PyDict_Next(ptr %table, ptr %at, ptr %key, ptr %value)
  %name = load ptr, ptr %key
  %held = load ptr, ptr %value
  %wanted = icmp ne i32 %values, 0
  %other = select i1 %wanted, ptr %held, ptr %name
  br label %put
put:
  %part = phi ptr [ %one, %item ], [ %other, %entry.of ]
  call void @Py_IncRef(ptr %part)
  %status = call i32 @PyTuple_SetItem(ptr %made, i64 %index, ptr %part)
  %next = add i64 %index, 1
  br label %head
done:
  ret ptr %made
}}
"""


def _one_of(place: Callable[[object], str], kinds: Sequence[type], label: str, name: str) -> str:
    """A jump to a label where %type is one of some classes."""
    return "".join(
        f"  %{name}.{number} = load ptr, ptr {place(kind)}\n"
        f"  %is.{name}.{number} = icmp eq ptr %type, %{name}.{number}\n"
        f"  br i1 %is.{name}.{number}, label %{label}, label %not.{name}.{number}\n"
        f"not.{name}.{number}:\n"
        for number, kind in enumerate(kinds)
    )


def _compared(name: str, index: int, offset: int) -> str:
    """The blocks that compare one slot of %a and %b."""
    here, further = f"{name}.{index}", f"{name}.{index + 1}"
    return f"""{here}:
  %{here}.at.a = getelementptr i8, ptr %a, i64 {offset}
  %{here}.at.b = getelementptr i8, ptr %b, i64 {offset}
  %{here}.a = load ptr, ptr %{here}.at.a
  %{here}.b = load ptr, ptr %{here}.at.b
  %{here}.same = icmp eq ptr %{here}.a, %{here}.b
  br i1 %{here}.same, label %{further}, label %{here}.empty
{here}.empty:
  %{here}.none.a = icmp eq ptr %{here}.a, null
  %{here}.none.b = icmp eq ptr %{here}.b, null
  %{here}.none = or i1 %{here}.none.a, %{here}.none.b
  br i1 %{here}.none, label %bail, label %{here}.ask
{here}.ask:
  %{here}.answer = call i8 @equal(ptr %{here}.a, ptr %{here}.b)
  %{here}.fits = icmp eq i8 %{here}.answer, {YES}
  br i1 %{here}.fits, label %{further}, label %{here}.differ
{here}.differ:
  ret i8 %{here}.answer
"""


def _changes(place: Callable[[object], str], settable: Sequence[tuple[type, str, int]]) -> str:
    """`commit`: slots by the classes of objects and by names, and lists."""
    looks = "".join(
        f"  %name.{number} = load ptr, ptr {place(name)}\n"
        f"  %named.{number} = icmp eq ptr %name, %name.{number}\n"
        f"  br i1 %named.{number}, label %look.{number}, label %other.{number}\n"
        f"look.{number}:\n"
        f"  %class.{number} = load ptr, ptr {place(kind)}\n"
        f"  %is.{number} = call i1 @is_of(ptr %object, ptr %class.{number})\n"
        f"  br i1 %is.{number}, label %found.{number}, label %other.{number}\n"
        f"found.{number}:\n"
        f"  %place.{number} = getelementptr i8, ptr %object, i64 {offset}\n"
        f"  call void @put(ptr %pool, ptr %place.{number}, ptr %value)\n"
        f"  ret i1 true\n"
        f"other.{number}:\n"
        for number, (kind, name, offset) in enumerate(settable)
    )
    return f"""
define internal i1 @put_named(ptr %pool, ptr %object, ptr %name, ptr %value) {{
entry:
{looks}  ret i1 false
}}

define internal i1 @put_all(ptr %pool, ptr %changes, i1 %gone) {{
entry:
  %size = call i64 @PyList_Size(ptr %changes)
  br label %head
head:
  %index = phi i64 [ 0, %entry ], [ %next, %put ]
  %more = icmp slt i64 %index, %size
  br i1 %more, label %change, label %done
change:
  %each = call ptr @PyList_GetItem(ptr %changes, i64 %index)
  %object = call ptr @PyTuple_GetItem(ptr %each, i64 0)
  %name = call ptr @PyTuple_GetItem(ptr %each, i64 1)
  br i1 %gone, label %put, label %read
read:
  %given = call ptr @PyTuple_GetItem(ptr %each, i64 2)
  br label %put
put:
  %value = phi ptr [ null, %change ], [ %given, %read ]
  %next = add i64 %index, 1
  %found = call i1 @put_named(ptr %pool, ptr %object, ptr %name, ptr %value)
  br i1 %found, label %head, label %fail
done:
  ret i1 true
fail:
  ret i1 false
}}

define internal i1 @commit(ptr %pool, ptr %changes, ptr %removed, ptr %added) {{
entry:
  call void @changes(ptr %pool)
  %set = call i1 @put_all(ptr %pool, ptr %changes, i1 false)
  %cleared = call i1 @put_all(ptr %pool, ptr %removed, i1 true)
  %both = and i1 %set, %cleared
  %size = call i64 @PyList_Size(ptr %added)
  br label %head
head:
  %index = phi i64 [ 0, %entry ], [ %index.next, %list ]
  %more = icmp slt i64 %index, %size
  br i1 %more, label %each, label %done
each:
  %pair = call ptr @PyList_GetItem(ptr %added, i64 %index)
  %list.of = call ptr @PyTuple_GetItem(ptr %pair, i64 0)
  %items = call ptr @PyTuple_GetItem(ptr %pair, i64 1)
  %count = call i64 @size(ptr %items)
  br label %list
list:
  %place = phi i64 [ 0, %each ], [ %place.next, %append ]
  %index.next = add i64 %index, 1
  %further = icmp slt i64 %place, %count
  br i1 %further, label %append, label %head
append:
  %item = call ptr @item(ptr %items, i64 %place)
  %status = call i32 @PyList_Append(ptr %list.of, ptr %item)
  %place.next = add i64 %place, 1
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %list, label %fail
done:
  ret i1 %both
fail:
  ret i1 false
}}

define internal i1 @is_shared(ptr %items, i64 %place) {{
  %item = call ptr @PyList_GetItem(ptr %items, i64 %place)
  %count = load i32, ptr %item
  %shared = icmp ugt i32 %count, 1
  ret i1 %shared
}}

define internal ptr @tuple_of(ptr %kind, ptr %parts) {{
entry:
  %size = call i64 @PyList_Size(ptr %parts)
  %made = call ptr @PyType_GenericAlloc(ptr %kind, i64 %size)
  %none = icmp eq ptr %made, null
  br i1 %none, label %done, label %head
head:
  %index = phi i64 [ 0, %entry ], [ %next, %put ]
  %more = icmp slt i64 %index, %size
  br i1 %more, label %put, label %done
put:
  %part = call ptr @PyList_GetItem(ptr %parts, i64 %index)
  call void @Py_IncRef(ptr %part)
  %status = call i32 @PyTuple_SetItem(ptr %made, i64 %index, ptr %part)
  %next = add i64 %index, 1
  br label %head
done:
  ret ptr %made
}}
"""


def helpers(
    place: Callable[[object], str],
    tuples: Sequence[type],
    records: Mapping[type, Sequence[int]],
    settable: Sequence[tuple[type, str, int]],
) -> str:
    """All of it, given the places of objects, and what is used.

    That is classes of tuples, data classes with the offsets of their slots, and slots that are set
    by name.
    """
    shared = DECLARATIONS + _POOL + _TYPES + _SLOTS + _numbers(place)
    shared += _equality(place, tuples, records) + _sequences(place, tuples)
    return shared + _changes(place, settable)
