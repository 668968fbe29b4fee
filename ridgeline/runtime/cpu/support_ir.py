"""LLVM IR that the pool, the executor and the stream share: clock, futex, threads.

All functions are internal: each module that includes this text has its own copy.
"""

from __future__ import annotations

import platform

_FUTEX = {"x86_64": 202, "aarch64": 98}
_RELAX = {  # tells the core that this is a polling loop: an intrinsic and its argument
    "x86_64": ("llvm.x86.sse2.pause", "", ""),
    "aarch64": ("llvm.aarch64.hint", "i32", "1"),
}


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
