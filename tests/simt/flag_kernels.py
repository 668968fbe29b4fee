"""Kernels in which two threads meet through a flag or a lock, in every combination of scopes.

Whether the accesses are ordered follows from the memory model: the flag is accessed atomically in a
scope that holds both threads, a fence of such a scope stands before the release and another one
after the acquire. A lock needs both on both sides, for either thread may come first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

FENCES = {"none": "", "block": "threadfence_block()", "device": "threadfence()"}
THREADS = {  # block and thread of the two that meet
    "lanes": ((0, 0), (0, 1)),
    "warps": ((0, 0), (0, 32)),
    "blocks": ((0, 0), (1, 0)),
}
Lines = list[str]


@dataclass(frozen=True)
class FlagKernel:
    """One kernel's text and whether some order of its threads races."""

    name: str
    text: str
    races: bool


def _reaches(scope: str, where: str) -> bool:
    """Whether a scope holds both threads."""
    return scope == "device" or (scope == "block" and where != "blocks")


def _branch(one: Lines, other: Lines, where: str, swapped: bool, style: str) -> Lines:
    """Two threads that do different things, in one `if` or in two."""
    sides = list(zip(THREADS[where], (one, other)))
    if swapped:
        sides.reverse()
    lines: Lines = []
    for number, ((block, thread), body) in enumerate(sides):
        word = "elif" if number and style == "elif" else "if"
        lines.append(f"{word} blockIdx.x == {block} and threadIdx.x == {thread}:")
        lines += ["    " + line for line in body if line]
    return lines


def _kernel(name: str, body: Lines) -> str:
    head = f'def {name}(x: inout[i32["n"]], flag: inout[i32["m"]], seen: inout[i32["k"]]):'
    return "\n".join([head, *("    " + line for line in body)])


def message_kernels() -> Iterator[FlagKernel]:
    """One thread writes and raises a flag; another one waits for it and reads."""
    choices = itertools.product(THREADS, FENCES, FENCES, ("block", "device"), (False, True))
    for where, release, acquire, scope, swapped in choices:
        raising = f'atomic_exch(flag[0], 1, scope="{scope}")'
        waiting = f'while atomic_add(flag[0], 0, scope="{scope}") == 0:'
        name = f"message_{where}_{release}_{acquire}_{scope}{'_swapped' if swapped else ''}"
        body = _branch(
            ["x[0] = 42", FENCES[release], raising],
            [waiting, "    pass", FENCES[acquire], "seen[0] = x[0]"],
            where, swapped, "elif",
        )  # fmt: skip
        ordered = all(_reaches(part, where) for part in (release, acquire, scope))
        yield FlagKernel(name, _kernel(name, body), not ordered)


def _locked(value: int, acquire: str, release: str, scope: str) -> Lines:
    return [f'while atomic_cas(flag[0], 0, 1, scope="{scope}") != 0:', "    pass",
            FENCES[acquire], f"x[0] = {value}", FENCES[release],
            f'atomic_exch(flag[0], 0, scope="{scope}")']  # fmt: skip


def lock_kernels() -> Iterator[FlagKernel]:
    """Two threads write one element, each under a lock; the second side always does it right."""
    choices = itertools.product(
        ("warps", "blocks"), FENCES, FENCES, ("block", "device"), (False, True), ("elif", "if")
    )
    for where, acquire, release, scope, swapped, style in choices:
        flags = f"{acquire}_{release}_{scope}_{style}{'_swapped' if swapped else ''}"
        name = f"lock_{where}_{flags}"
        body = _branch(
            _locked(1, acquire, release, scope), _locked(2, "device", "device", scope),
            where, swapped, style,
        )  # fmt: skip
        ordered = all(_reaches(part, where) for part in (acquire, release, scope))
        yield FlagKernel(name, _kernel(name, body), not ordered)


def flag_kernels() -> Iterator[FlagKernel]:
    """All of them."""
    yield from message_kernels()
    yield from lock_kernels()
