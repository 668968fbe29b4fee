"""LLVM IR to read, write and walk the tables of a program file (`tables.py`)."""

from __future__ import annotations

from ridgeline.deploy.tables import TABLE


def word(name: str, of: str, number: int, kind: str = "i64") -> str:
    """IR that reads a word of a row or a program."""
    return (
        f"%{name}.at = getelementptr i64, ptr {of}, i64 {int(number)}\n"
        f"  %{name} = load {kind}, ptr %{name}.at"
    )


def table(name: str, number: int, kind: str = "i64") -> str:
    """IR that reads a word of the program's table."""
    return word(name, f'@"{TABLE}"', number, kind)


def set_word(of: str, number: int, value: str) -> str:
    """IR that writes a word: `value` is a type and a name."""
    name = f"{of}.{int(number)}.set"
    return f"{name} = getelementptr i64, ptr {of}, i64 {int(number)}\n  store {value}, ptr {name}"


def each_row(name: str, width: int, parameters: str, work: str) -> str:
    """A function that does `work` for each row of a table, until it returns a status.

    The words of row number %k are %w0, %w1 and so on; work ends with `br label %next`.
    """
    words = "\n".join(
        f"  %w{i}.at = getelementptr i64, ptr %row, i64 {i}\n  %w{i} = load i64, ptr %w{i}.at"
        for i in range(width)
    )
    return f"""
define internal i32 @each_{name}(ptr %rows, i64 %count, {parameters}) {{
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %go, label %done
go:
  %first = mul i64 %k, {width}
  %row = getelementptr i64, ptr %rows, i64 %first
{words}
{work}
next:
  %k.next = add i64 %k, 1
  br label %head
done:
  ret i32 0
}}
"""
