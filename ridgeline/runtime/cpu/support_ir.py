"""What the LLVM IR of the pool and the executor share: the system, plans, Python.

Of an operating system they ask (`system_ir`):

    now()                                nanoseconds of a clock that only goes forward
    relax()                              tells the core that this is a polling loop
    atomic_wait(word, value, patience)   sleep while the word has a value, some nanoseconds at most
                                         (-1: for ever); it may return for no reason
    atomic_notify(word, count)           change the word, and wake at least so many who wait on it
    yield_core()                         let other threads run
    spawn(function, argument)            start a thread; false where the system refuses

Linux has its own form, over futex. All others wait on a condition variable, of which there is one
for all words of a page of state: a lock and the variable lie at the page's end (`prepare`). That
form runs on Linux too, where `config.portable` is set.

A plan is an array of words (`control_words.py`), the first of which are its `Head`. Functions of
Python's over machine code are IR that reads their arguments, and function objects: a built-in
function with METH_FASTCALL costs a fifth of a ctypes call.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
from enum import IntEnum
from typing import NamedTuple

from ridgeline.config import config
from ridgeline.errors import DeviceError

LOCK, CONDITION = mmap.PAGESIZE - 256, mmap.PAGESIZE - 128  # bytes from a page's start
PORTABLE = config.portable or platform.system() != "Linux"  # nothing is asked of Linux alone
_RELAX = {  # an intrinsic and its argument
    "x86_64": ("llvm.x86.sse2.pause", "", ""),
    "aarch64": ("llvm.aarch64.hint", "i32", "1"),
}
_MACHINES = {"x86_64": "x86_64", "AMD64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_FUTEX = {"x86_64": "202", "aarch64": "98"}  # numbers of system calls


class System(NamedTuple):
    """The IR of an operating system's functions."""

    now: str
    waiting: str
    threads: str


def system_ir(deployed: bool = False) -> str:
    """The functions above, for the host; each module that includes them has its own copy.

    What is `deployed` runs in processes of others, on Linux, with whatever C library they have.
    """
    name, machine = platform.system(), _MACHINES.get(platform.machine())
    if name not in SYSTEMS or machine is None:
        raise DeviceError(
            f"no code is made for {name} on {platform.machine()}",
            help='set config.tier = "interpreter"; code is made for Linux, macOS and Windows on '
            "x86-64 and arm64",
        )
    system = SYSTEMS["POSIX" if name == "Linux" and config.portable else name]
    if deployed:
        system = _DEPLOYED
    intrinsic, kind, argument = _RELAX[machine]
    relax = f"""
declare void @{intrinsic}({kind})
define internal void @relax() alwaysinline {{
  call void @{intrinsic}({kind} {argument})
  ret void
}}
"""
    return relax + system.now + system.waiting.replace("FUTEX", _FUTEX[machine]) + system.threads


def prepare(page: int) -> None:
    """Make a page of state zero, for the portable form with its lock open and nobody waiting."""
    ctypes.memset(page, 0, mmap.PAGESIZE)
    if platform.system() != "Windows":
        process = ctypes.CDLL(None)
        process.pthread_mutex_init(ctypes.c_void_p(page + LOCK), None)
        process.pthread_cond_init(ctypes.c_void_p(page + CONDITION), None)


def _posix_clock(number: int) -> str:
    return f"""
declare i32 @clock_gettime(i32, ptr)
define internal i64 @read_clock(i32 %clock) {{
  %time = alloca [2 x i64]
  call i32 @clock_gettime(i32 %clock, ptr %time)
  %seconds = load i64, ptr %time
  %rest = getelementptr i8, ptr %time, i64 8
  %nanoseconds = load i64, ptr %rest
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %nanoseconds
  ret i64 %sum
}}

define internal i64 @now() {{
  %time = call i64 @read_clock(i32 {number})
  ret i64 %time
}}
"""


_WINDOWS_CLOCK = """
declare i32 @QueryPerformanceCounter(ptr)
declare i32 @QueryPerformanceFrequency(ptr)
define internal i64 @now() {
  %counter.at = alloca i64
  %frequency.at = alloca i64
  call i32 @QueryPerformanceCounter(ptr %counter.at)
  call i32 @QueryPerformanceFrequency(ptr %frequency.at)
  %counter = load i64, ptr %counter.at
  %frequency = load i64, ptr %frequency.at
  %seconds = sdiv i64 %counter, %frequency
  %ticks = srem i64 %counter, %frequency
  %whole = mul i64 %seconds, 1000000000
  %scaled = mul i64 %ticks, 1000000000
  %part = sdiv i64 %scaled, %frequency
  %sum = add i64 %whole, %part
  ret i64 %sum
}
"""

# A duration as the system takes it: seconds and nanoseconds.
_TIMESPEC = """
define internal void @timespec(ptr %time, i64 %nanoseconds) {
  %seconds = sdiv i64 %nanoseconds, 1000000000
  %rest = srem i64 %nanoseconds, 1000000000
  store i64 %seconds, ptr %time
  %rest.at = getelementptr i8, ptr %time, i64 8
  store i64 %rest, ptr %rest.at
  ret void
}
"""

_FUTEX_WAITING = (
    _TIMESPEC
    + """
declare i64 @syscall(i64, ...)
define internal void @atomic_wait(ptr %word, i32 %value, i64 %patience) {
  %time = alloca [2 x i64]
  call void @timespec(ptr %time, i64 %patience)
  %forever = icmp slt i64 %patience, 0
  %timeout = select i1 %forever, ptr null, ptr %time
  call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 128, i32 %value, ptr %timeout)
  ret void
}

define internal void @atomic_notify(ptr %word, i32 %count) noinline {
  atomicrmw add ptr %word, i32 1 seq_cst
  call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 129, i32 %count)
  ret void
}
"""
)


def _condition_waiting(declarations: str, lock: str, unlock: str, wake: str, sleep: str) -> str:
    """Waiting on the condition variable of a word's page, which wakes all who wait on any word.

    `sleep` is IR over %condition, %lock, %patience and %forever.
    """
    page = f"""%lock.page = call ptr @llvm.ptrmask.p0.i64(ptr %word, i64 {-mmap.PAGESIZE})
  %lock = getelementptr i8, ptr %lock.page, i64 {LOCK}
  %condition = getelementptr i8, ptr %lock.page, i64 {CONDITION}"""
    return f"""
declare ptr @llvm.ptrmask.p0.i64(ptr, i64)
{declarations}
define internal void @atomic_wait(ptr %word, i32 %value, i64 %patience) {{
entry:
  %time = alloca [2 x i64]
  %forever = icmp slt i64 %patience, 0
  {page}
  call {lock}(ptr %lock)
  %seen = load atomic i32, ptr %word seq_cst, align 4
  %same = icmp eq i32 %seen, %value
  br i1 %same, label %sleep, label %done
sleep:
{sleep}
done:
  call {unlock}(ptr %lock)
  ret void
}}

define internal void @atomic_notify(ptr %word, i32 %count) noinline {{
  {page}
  call {lock}(ptr %lock)
  atomicrmw add ptr %word, i32 1 seq_cst
  call {unlock}(ptr %lock)
  call {wake}(ptr %condition)
  ret void
}}
"""


_POSIX_WAITING = _TIMESPEC + _condition_waiting(
    """declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_timedwait(ptr, ptr, ptr)
""",
    "i32 @pthread_mutex_lock",
    "i32 @pthread_mutex_unlock",
    "i32 @pthread_cond_broadcast",
    """  br i1 %forever, label %endless, label %timed
endless:
  call i32 @pthread_cond_wait(ptr %condition, ptr %lock)
  br label %done
timed:
  %clock = call i64 @read_clock(i32 0)
  %until = add i64 %clock, %patience
  call void @timespec(ptr %time, i64 %until)
  call i32 @pthread_cond_timedwait(ptr %condition, ptr %lock, ptr %time)
  br label %done""",
)

_WINDOWS_WAITING = _condition_waiting(
    """declare void @AcquireSRWLockExclusive(ptr)
declare void @ReleaseSRWLockExclusive(ptr)
declare void @WakeAllConditionVariable(ptr)
declare i32 @SleepConditionVariableSRW(ptr, ptr, i32, i32)
""",
    "void @AcquireSRWLockExclusive",
    "void @ReleaseSRWLockExclusive",
    "void @WakeAllConditionVariable",
    """  %whole = sdiv i64 %patience, 1000000
  %milliseconds = trunc i64 %whole to i32
  %most = select i1 %forever, i32 -1, i32 %milliseconds
  call i32 @SleepConditionVariableSRW(ptr %condition, ptr %lock, i32 %most, i32 0)
  br label %done""",
)


def _posix_threads(set_mask: int) -> str:
    """Threads that start with all signals blocked: Python's handlers stay on Python's threads.

    `set_mask` is what the system calls SIG_SETMASK; the longest set of signals is of 128 bytes.
    """
    return f"""
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sched_yield()

define internal void @yield_core() {{
  call i32 @sched_yield()
  ret void
}}

define internal i1 @spawn(ptr %function, ptr %argument) noinline {{
entry:
  %mask = alloca [128 x i8]
  %old = alloca [128 x i8]
  %thread = alloca i64
  store [128 x i8] [{", ".join(["i8 -1"] * 128)}], ptr %mask
  call i32 @pthread_sigmask(i32 {set_mask}, ptr %mask, ptr %old)
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr %function, ptr %argument)
  call i32 @pthread_sigmask(i32 {set_mask}, ptr %old, ptr null)
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


_WINDOWS_THREADS = """
declare ptr @CreateThread(ptr, i64, ptr, ptr, i32, ptr)
declare i32 @CloseHandle(ptr)
declare i32 @SwitchToThread()

define internal void @yield_core() {
  call i32 @SwitchToThread()
  ret void
}

define internal i1 @spawn(ptr %function, ptr %argument) noinline {
entry:
  %thread = call ptr @CreateThread(ptr null, i64 0, ptr %function, ptr %argument, i32 0, ptr null)
  %ok = icmp ne ptr %thread, null
  br i1 %ok, label %detach, label %done
detach:
  call i32 @CloseHandle(ptr %thread)
  br label %done
done:
  ret i1 %ok
}
"""

# Before glibc 2.34 threads are in a library that a process may not have: the one function of it is
# asked for only if it is there, and all else is in libc since its first version.
_DEPLOYED_THREADS = """
declare extern_weak i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @sched_yield()

define internal void @yield_core() {
  call i32 @sched_yield()
  ret void
}

define internal i1 @spawn(ptr %function, ptr %argument) noinline {
entry:
  %mask = alloca i64
  %old = alloca i64
  %thread = alloca i64
  %attributes = alloca [128 x i8], align 16
  %there = icmp ne ptr @pthread_create, null
  br i1 %there, label %start, label %none
start:
  store i64 -1, ptr %mask
  call i32 @pthread_attr_init(ptr %attributes)
  call i32 @pthread_attr_setdetachstate(ptr %attributes, i32 1)
  call i64 (i64, ...) @syscall(i64 14, i32 2, ptr %mask, ptr %old, i64 8)
  %status = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr %function, ptr %argument)
  call i64 (i64, ...) @syscall(i64 14, i32 2, ptr %old, ptr null, i64 8)
  %ok = icmp eq i32 %status, 0
  ret i1 %ok
none:
  ret i1 false
}
"""
_DEPLOYED = System(_posix_clock(1), _FUTEX_WAITING, _DEPLOYED_THREADS)

# By the names that `platform.system()` gives; POSIX is Linux without calls of its own.
SYSTEMS = {
    "Linux": System(_posix_clock(1), _FUTEX_WAITING, _posix_threads(2)),
    "POSIX": System(_posix_clock(1), _POSIX_WAITING, _posix_threads(2)),
    "Darwin": System(_posix_clock(6), _POSIX_WAITING, _posix_threads(3)),
    "Windows": System(_WINDOWS_CLOCK, _WINDOWS_WAITING, _WINDOWS_THREADS),
}


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
    """The header of a plan: its first words."""

    POOL = 0
    STEPS = 1
    SLOTS = 2
    ADDRESSES = 3
    ARENA = 4
    WIDEST = 5  # the most arguments of any step
    PARALLEL = 6  # how many steps may use several threads
    ESTIMATE = 7  # nanoseconds the parallel steps take one thread; 0: not known yet; the code's
    WORDS = 8


def load_head(name: str, word: Head) -> str:
    """IR that reads a word of the head of %plan into %name."""
    return (
        f"%{name}.at = getelementptr i64, ptr %plan, i64 {int(word)}\n"
        f"  %{name} = load i64, ptr %{name}.at"
    )


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
