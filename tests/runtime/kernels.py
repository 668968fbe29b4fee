"""A few kernels in LLVM IR for the tests, with what they do in their names."""

from __future__ import annotations

from functools import lru_cache

from ridgeline.codegen.llvm.machine_code import Library, compile_ir


def _for_each(name: str, body: str) -> str:
    """A kernel that runs `body` for %i in [begin, end); %a and %b are its first two arguments."""
    return f"""
define void @{name}(ptr %args, i64 %begin, i64 %end) {{
entry:
  %a = load ptr, ptr %args
  %b.at = getelementptr ptr, ptr %args, i64 1
  %b = load ptr, ptr %b.at
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  %a.i = getelementptr i64, ptr %a, i64 %i
  %b.i = getelementptr i64, ptr %b, i64 %i
  {body}
  %next = add i64 %i, 1
  br label %loop
done:
  ret void
}}
"""


_IR = (
    _for_each("increment", "%v = load i64, ptr %a.i\n %w = add i64 %v, 1\n store i64 %w, ptr %a.i")
    + _for_each(
        "add_to",
        "%v = load i64, ptr %a.i\n %u = load i64, ptr %b.i\n %w = add i64 %v, %u\n"
        " store i64 %w, ptr %b.i",
    )
    + _for_each("note_thread", "%t = call i64 @pthread_self()\n store i64 %t, ptr %a.i")
    + _for_each("note_chunk", "store i64 %begin, ptr %a.i")
    + _for_each("copy_to", "%v = load i64, ptr %a.i\n store i64 %v, ptr %b.i")
    + _for_each(  # a: the slots of each run; b: the executor and the plan
        "run_plans",
        "%slots = load ptr, ptr %a.i\n %execute = load ptr, ptr %b\n"
        " %plan.at = getelementptr ptr, ptr %b, i64 1\n %plan = load ptr, ptr %plan.at\n"
        " call void %execute(ptr %plan, ptr %slots, i64 0, ptr null)",
    )
    + """
declare i32 @usleep(i32)
declare i64 @pthread_self()
define void @nothing(ptr %args, i64 %begin, i64 %end) {
  ret void
}
define void @pause(ptr %args, i64 %begin, i64 %end) {
  %count = sub i64 %end, %begin
  %count32 = trunc i64 %count to i32
  %time = mul i32 %count32, 1000
  call i32 @usleep(i32 %time)
  ret void
}
define void @range(ptr %args, i64 %begin, i64 %end) {
  %a = load ptr, ptr %args
  store i64 %begin, ptr %a
  %second = getelementptr i64, ptr %a, i64 1
  store i64 %end, ptr %second
  ret void
}
"""
)


@lru_cache(maxsize=1)
def _library() -> Library:
    return Library.load(compile_ir(_IR))


def kernel(name: str) -> int:
    """The address of one of the kernels above."""
    return _library().address(name)
