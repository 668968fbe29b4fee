"""The kernels that ceilings are measured with, as LLVM IR.

They are as good as we know how to make them: non-temporal vector stores, and independent chains of
multiply-adds in registers.
"""

from __future__ import annotations

from functools import lru_cache

from ridgeline.codegen.llvm.machine_code import Library, Target, compile_cached, target

BLOCK = 256 << 10  # bytes that one task copies
_CHAINS = 12  # more than latency times issue width on current cores, fewer than registers
_LINKS = 16_000  # multiply-adds in each chain of one task


@lru_cache(maxsize=1)
def kernels() -> Library:
    """`ridgeline_copy`, `_zero`, `_nothing`, `_fma32` and `_fma64`, compiled for this machine."""
    return Library.load(compile_cached(source(target())))


def flops(host: Target, bits: int) -> float:
    """Floating-point operations of one task."""
    return 2.0 * _LINKS * _CHAINS * (host.vector_bits // bits)


def source(host: Target) -> str:
    """All of them in one module."""
    return _copy_ir(host.vector_bits) + "".join(_fma_ir(host.vector_bits, b) for b in (32, 64))


def _copy_ir(vector_bits: int) -> str:
    """Kernels that copy or zero their blocks, four vectors at a time, past the caches."""
    vector = f"<{vector_bits // 32} x i32>"
    size = vector_bits // 8
    moves = "\n".join(
        f"  %from.{i} = getelementptr i8, ptr %a, i64 %at.{i}\n"
        f"  %to.{i} = getelementptr i8, ptr %b, i64 %at.{i}\n"
        f"  %v.{i} = load {vector}, ptr %from.{i}, align 64\n"
        f"  store {vector} %v.{i}, ptr %to.{i}, align 64, !nontemporal !0"
        for i in range(4)
    )
    offsets = "\n".join(f"  %at.{i} = add i64 %offset, {i * size}" for i in range(4))
    clears = "\n".join(
        f"  %to.{i} = getelementptr i8, ptr %a, i64 %at.{i}\n"
        f"  store {vector} zeroinitializer, ptr %to.{i}, align 64"
        for i in range(4)
    )
    second = "  %b.at = getelementptr ptr, ptr %args, i64 1\n  %b = load ptr, ptr %b.at"

    def over_blocks(name: str, head: str, body: str) -> str:
        return f"""
define void @{name}(ptr %args, i64 %begin, i64 %end) {{
entry:
  %a = load ptr, ptr %args
{head}
  %first = mul i64 %begin, {BLOCK}
  %last = mul i64 %end, {BLOCK}
  br label %loop
loop:
  %offset = phi i64 [ %first, %entry ], [ %next, %loop ]
{offsets}
{body}
  %next = add i64 %offset, {4 * size}
  %more = icmp slt i64 %next, %last
  br i1 %more, label %loop, label %done
done:
  fence seq_cst
  ret void
}}
"""

    return (
        "!0 = !{i32 1}\n"
        "define void @ridgeline_nothing(ptr %args, i64 %begin, i64 %end) {\n  ret void\n}\n"
        + over_blocks("ridgeline_copy", second, moves)
        + over_blocks("ridgeline_zero", "", clears)
    )


def _fma_ir(vector_bits: int, bits: int) -> str:
    """A kernel of independent multiply-add chains; a task leaves 64 bytes so that it is kept."""
    scalar = {32: "float", 64: "double"}[bits]
    lanes = vector_bits // bits
    vector, short = f"<{lanes} x {scalar}>", f"v{lanes}f{bits}"

    def splat(value: float) -> str:
        return f"<{', '.join([f'{scalar} {value!r}'] * lanes)}>"

    chains = range(_CHAINS)
    starts = "\n".join(
        f"  %x.{i} = phi {vector} [ {splat(i + 1.0)}, %task ], [ %y.{i}, %loop ]" for i in chains
    )
    links = "\n".join(
        f"  %y.{i} = call {vector} @llvm.fma.{short}({vector} %x.{i}, {vector} {splat(0.5)},"
        f" {vector} {splat(1.0)})"
        for i in chains
    )
    sums = "\n".join(
        f"  %sum.{i + 1} = fadd {vector} {'%y.0' if i == 0 else f'%sum.{i}'}, %y.{i + 1}"
        for i in range(_CHAINS - 1)
    )
    return f"""
declare {vector} @llvm.fma.{short}({vector}, {vector}, {vector})
define void @ridgeline_fma{bits}(ptr %args, i64 %begin, i64 %end) {{
entry:
  %out = load ptr, ptr %args
  br label %task
task:
  %index = phi i64 [ %begin, %entry ], [ %index.next, %keep ]
  br label %loop
loop:
  %link = phi i64 [ 0, %task ], [ %link.next, %loop ]
{starts}
{links}
  %link.next = add i64 %link, 1
  %more = icmp slt i64 %link.next, {_LINKS}
  br i1 %more, label %loop, label %keep
keep:
{sums}
  %offset = mul i64 %index, 64
  %at = getelementptr i8, ptr %out, i64 %offset
  store {vector} %sum.{_CHAINS - 1}, ptr %at, align 64
  %index.next = add i64 %index, 1
  %again = icmp slt i64 %index.next, %end
  br i1 %again, label %task, label %done
done:
  ret void
}}
"""
