"""Object code: compiling, loading, what it may refer to, threads, and what is read of the CPU."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ridgeline.codegen.llvm import elf, machine_code
from ridgeline.codegen.llvm.machine_code import cgroup_quota, without_wide
from ridgeline.config import config

EVERYTHING = """
@table = internal constant [4 x double] [double 1.0, double 2.0, double 3.0, double 4.0]
@state = internal global i64 5
@indirect = internal constant ptr @table
@environ = external global ptr
declare double @sin(double)
define double @looked_up(i64 %i) {
  %base = load volatile ptr, ptr @indirect
  %at = getelementptr double, ptr %base, i64 %i
  %value = load double, ptr %at
  %sine = call double @sin(double %value)
  ret double %sine
}
define i64 @counted() {
  %old = atomicrmw add ptr @state, i64 1 seq_cst
  ret i64 %old
}
define ptr @outside() {
  %value = load ptr, ptr @environ
  ret ptr %value
}
define i64 @jumped(i64 %x) {
  switch i64 %x, label %none [ i64 0, label %a i64 1, label %b i64 2, label %c i64 3, label %d ]
a: ret i64 17
b: %count = call i64 @counted()
  ret i64 %count
c: %sine = call double @looked_up(i64 1)
  %whole = fptosi double %sine to i64
  ret i64 %whole
d: ret i64 1000
none: ret i64 -1
}
"""


def function(address: int, result: type, *arguments: type) -> ctypes._CFuncPtr:
    return ctypes.CFUNCTYPE(result, *arguments)(address)


def check_everything(library: machine_code.Library) -> None:
    look_up = function(library.address("looked_up"), ctypes.c_double, ctypes.c_int64)
    assert [look_up(i) for i in range(4)] == [math.sin(i + 1) for i in range(4)]
    count = function(library.address("counted"), ctypes.c_int64)
    assert [count(), count()] == [5, 6]
    jump = function(library.address("jumped"), ctypes.c_int64, ctypes.c_int64)
    assert [jump(i) for i in (-1, 0, 1, 2, 3, 4)] == [-1, 17, 7, 0, 1000, -1]
    environ = function(library.address("outside"), ctypes.c_void_p)
    assert environ() == ctypes.c_void_p.in_dll(ctypes.CDLL(None), "environ").value


def test_constants_state_tables_and_process_symbols() -> None:
    code = machine_code.compile_ir(EVERYTHING)
    check_everything(machine_code.Library.load(code))
    check_everything(machine_code.Library.load(code))  # a second copy has a state of its own


def test_the_loader_of_llvm_gives_the_same() -> None:
    code = machine_code.compile_ir(EVERYTHING)
    check_everything(machine_code._LinkedLibrary.load(code))


def test_a_missing_symbol_is_named() -> None:
    text = """
declare void @surely_absent()
define void @f() {
  call void @surely_absent()
  ret void
}"""
    named = "f" if config.portable else "surely_absent"  # LLVM's linker names who wants it
    with pytest.raises(elf.LoadError, match=named):
        machine_code.Library.load(machine_code.compile_ir(text)).address("f")
    library = machine_code.Library.load(machine_code.compile_ir("define void @f() {\n ret void\n}"))
    with pytest.raises(KeyError):
        library.address("g")


def test_bad_ir_is_a_compile_error() -> None:
    with pytest.raises(machine_code.CompileError, match="@f"):
        machine_code.compile_ir("define i32 @f() { ret i64 0 }")


def test_loops_over_local_memory() -> None:
    text = """
define i64 @sum(i64 %n) {
entry:
  %total = alloca [2 x i64]
  store [2 x i64] zeroinitializer, ptr %total
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %old = load i64, ptr %total
  %new = add i64 %old, %i
  store i64 %new, ptr %total
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  %result = load i64, ptr %total
  ret i64 %result
}"""
    code = machine_code.compile_ir(text)
    total = function(machine_code.Library.load(code).address("sum"), ctypes.c_int64, ctypes.c_int64)
    assert total(10) == sum(range(10))


def test_compiling_in_threads() -> None:
    results: dict[int, int] = {}

    def work(number: int) -> None:
        for round in range(3):
            value = number * 100 + round
            code = machine_code.compile_ir(f"define i64 @f() {{\n ret i64 {value}\n}}")
            address = machine_code.Library.load(code).address("f")
            results[value] = function(address, ctypes.c_int64)()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {value: value for value in results}
    assert len(results) == 12


def test_object_code_is_reproducible() -> None:
    assert machine_code.compile_ir(EVERYTHING) == machine_code.compile_ir(EVERYTHING)


def test_target_is_plausible() -> None:
    host = machine_code.target()
    assert host.vector_bits in (128, 256, 512)
    assert 8 << 10 <= host.l1 <= host.l2 <= 1 << 30
    assert 1 <= host.threads <= 4096
    assert host.cpu
    assert machine_code.compiler_fingerprint() == machine_code.compiler_fingerprint()


def test_any_change_of_the_compilers_sources_is_another_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "ridgeline"
    shutil.copytree(machine_code._PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(machine_code, "_PACKAGE", copy)
    fingerprint = machine_code.sources_fingerprint.__wrapped__
    seen = [machine_code.sources_fingerprint(), fingerprint()]
    assert seen[0] == seen[1]
    (copy / "loops" / "ir.pyc").write_bytes(b"not a source")
    (copy / "cli" / "main.py").write_text("not a compiler's source")
    assert fingerprint() == seen[0]
    (copy / "loops" / "ir.py").write_bytes((copy / "loops" / "ir.py").read_bytes() + b"\n")
    seen.append(fingerprint())
    (copy / "dtypes.py").write_bytes((copy / "dtypes.py").read_bytes()[:-1])
    seen.append(fingerprint())
    (copy / "schedules" / "gpu" / "extra.py").write_bytes(b"")
    seen.append(fingerprint())
    (copy / "schedules" / "gpu" / "extra.py").rename(copy / "schedules" / "gpu" / "other.py")
    seen.append(fingerprint())
    assert len(set(seen)) == len(seen) - 1


def test_container_quotas_at_any_level(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    assert cgroup_quota(tmp_path, ["/a/b"]) is None
    (tmp_path / "a/b/cpu.max").write_text("max 100000\n")
    assert cgroup_quota(tmp_path, ["/a/b"]) is None
    (tmp_path / "a/cpu.max").write_text("250000 100000\n")
    assert cgroup_quota(tmp_path, ["/a/b"]) == 2.5
    (tmp_path / "cpu/c").mkdir(parents=True)
    (tmp_path / "cpu/c/cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu/c/cpu.cfs_period_us").write_text("100000\n")
    assert cgroup_quota(tmp_path, ["/c"]) is None
    (tmp_path / "cpu/c/cpu.cfs_quota_us").write_text("150000\n")
    assert cgroup_quota(tmp_path, ["/c", "/a"]) == 1.5


def test_the_affinity_mask_counts() -> None:
    script = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from ridgeline.codegen.llvm.machine_code import target
print(target().threads)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "1", done.stderr


def test_importing_loads_no_compiler() -> None:
    script = """
import sys
import ridgeline, ridgeline.codegen.llvm.machine_code, ridgeline.runtime.buffer
assert not any(name.startswith("llvmlite") for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_fork_while_another_thread_compiles() -> None:
    script = """
import os, threading
from ridgeline.codegen.llvm.machine_code import compile_ir
ir = "define i64 @f(i64 %x) {\\n %y = add i64 %x, 1\\n ret i64 %y\\n}"
stop = threading.Event()
def keep_compiling():
    while not stop.is_set():
        compile_ir(ir)
thread = threading.Thread(target=keep_compiling)
thread.start()
for _ in range(10):
    child = os.fork()
    if child == 0:
        compile_ir(ir)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
thread.join()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_wider_instructions_can_be_left_out() -> None:
    found = without_wide("+avx2,+avx512f,-avx512fp16,+amx-int8,+fma")
    assert found == "+avx2,-avx512f,-avx512fp16,-amx-int8,+fma"
