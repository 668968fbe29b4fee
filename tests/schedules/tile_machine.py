"""Tile registers in NumPy: code for a CPU that has them runs on any that has the rest.

Calls of LLVM's intrinsics become calls of Python functions, by address.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.codegen.llvm import emit
from ridgeline.codegen.llvm.machine_code import Library, compile_ir, target
from ridgeline.loops.instructions import INSTRUCTIONS
from ridgeline.loops.ir import Kernel, named
from ridgeline.runtime.cpu.backend import task_count
from ridgeline.scalars import Array

_ROWS, _ROW_BYTES = 16, 64


class TileMachine:
    """Eight registers, and what was done with them."""

    def __init__(self) -> None:
        self.tiles = np.zeros((8, _ROWS, _ROW_BYTES), np.uint8)
        self.form = bytes(64)
        self.counts: dict[str, int] = {}

    def run(self, kernel: Kernel, memory: dict[int, Array], monkeypatch: Any) -> dict[int, Array]:
        """What the code of a kernel leaves in copies of the given memory."""
        final = named(kernel)
        with monkeypatch.context() as patched:
            patched.setattr(emit, "has_instruction", lambda name: INSTRUCTIONS[name].rows > 1)
            text = emit.module_text([final], target().vector_bits // 8)
        functions = self._functions()
        for name, function in functions.items():
            address = ctypes.cast(function, ctypes.c_void_p).value
            text = re.sub(rf"declare void @llvm.x86.{name}\(.*\n", "", text)
            text = text.replace(f"@llvm.x86.{name}(", f"inttoptr (i64 {address} to ptr)(")
        code = Library.load(compile_ir(text))
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        found = {slot: array.copy() for slot, array in memory.items()}
        pointers = [found[p.slot].ctypes.data for p in final.params]
        arguments = (ctypes.c_void_p * len(pointers))(*pointers)
        call(code.address(final.name))(arguments, 0, task_count(final))
        return found

    def _functions(self) -> dict[str, Any]:
        number, pointer, step = ctypes.c_int8, ctypes.c_void_p, ctypes.c_int64
        move, multiply = (number, pointer, step), (number, number, number)
        made: dict[str, tuple[Callable[..., None], tuple[Any, ...]]] = {
            "ldtilecfg": (self._configure, (pointer,)),
            "tilerelease": (self._release, ()),
            "tilezero": (self._zero, (number,)),
            "tileloadd64": (self._load, move),
            "tilestored64": (self._store, move),
        }
        for name, row in INSTRUCTIONS.items():
            if row.rows > 1:
                made[name] = (self._product(name), multiply)
        return {
            name: ctypes.CFUNCTYPE(None, *types)(function)
            for name, (function, types) in made.items()
        }

    def _configure(self, address: int) -> None:
        self.form = ctypes.string_at(address, 64)
        assert self.form[0] == 1
        assert set(self.form[16:32:2]) == {_ROW_BYTES} and set(self.form[48:56]) == {_ROWS}

    def _release(self) -> None:
        self.form = bytes(64)

    def _zero(self, register: int) -> None:
        assert self.form[0], "registers have no form"
        self.tiles[register] = 0

    def _load(self, register: int, address: int, step: int) -> None:
        assert self.form[0], "registers have no form"
        for row in range(_ROWS):
            text = ctypes.string_at(address + row * step, _ROW_BYTES)
            self.tiles[register, row] = np.frombuffer(text, np.uint8)

    def _store(self, register: int, address: int, step: int) -> None:
        for row in range(_ROWS):
            ctypes.memmove(address + row * step, self.tiles[register, row].ctypes.data, _ROW_BYTES)

    def _product(self, name: str) -> Callable[[int, int, int], None]:
        row = INSTRUCTIONS[name]

        def multiply(sums: int, left: int, right: int) -> None:
            self.counts[name] = self.counts.get(name, 0) + 1
            total = row.total.numpy
            a = self._seen_as(left, row.left)
            words = self._seen_as(right, row.right).reshape(-1, _ROWS, row.word)
            b = words.transpose(0, 2, 1).reshape(row.depth, _ROWS)
            c = self.tiles[sums].view(total)
            c += (a @ b).astype(total)

        return multiply

    def _seen_as(self, register: int, dtype: dtypes.DType) -> Any:
        wide = np.float64 if dtype.kind == "float" else np.int64
        return self.tiles[register].view(dtype.numpy).astype(wide)
