"""Compile programs for another machine, which nobody can run here: `cross_compile.py SYSTEM`.

LLVM verifies what it is given and makes object code of the other system. What comes out is a JSON
line: how many objects, and the names that they want of the process that loads them.
"""

from __future__ import annotations

import json
import os
import platform
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))
os.environ |= {
    "RIDGELINE_TIER": "compiled",
    "RIDGELINE_CACHE_MAX_BYTES": "0",
    "RIDGELINE_BACKGROUND": "0",
    "RIDGELINE_CALIBRATE": "0",
    "RIDGELINE_PORTABLE": "0",
}

import llvmlite.binding as llvm
import numpy as np

import ridgeline as rl
from ridgeline.codegen.llvm import machine_code
from ridgeline.config import config
from ridgeline.runtime.cpu import executor
from ridgeline.runtime.cpu.executor_ir import executor_ir


class Machine(NamedTuple):
    """A kind of computer, in LLVM's words."""

    triple: str
    cpu: str
    features: str
    system: str
    processor: str


MACHINES = {
    "macos": Machine("arm64-apple-macosx11.0.0", "apple-m1", "+neon", "Darwin", "aarch64"),
    "windows": Machine(
        "x86_64-pc-windows-msvc", "haswell", "+sse2,+avx,+avx2,+fma,+f16c", "Windows", "x86_64"
    ),
    "linux-arm64": Machine("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon", "Linux", "aarch64"),
}


def pretend(machine: Machine, objects: list[bytes]) -> None:
    """From here on compile for a machine, keep what comes out, and run nothing."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    made = llvm.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=3, reloc="pic",
        codemodel=machine_code.CODE_MODELS.get(machine.system, "small"),
    )  # fmt: skip
    layout = f'target datalayout = "{made.target_data}"\ntarget triple = "{machine.triple}"\n'
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    change: Callable[[Any, str, Any], None] = setattr
    change(machine_code, "_cpu_and_features", lambda: (machine.cpu, machine.features))
    change(machine_code, "_machine", lambda made_for: (made, tuning, layout))
    change(platform, "system", lambda: machine.system)
    change(platform, "machine", lambda: machine.processor)

    class Kept(machine_code.Library):
        """An object that is kept instead of loaded; its addresses are never called."""

        @classmethod
        def load(cls, object_code: bytes, lasting: bool = True) -> machine_code.Library:
            objects.append(object_code)
            return cls({})

        def address(self, symbol: str) -> int:
            return 64

    change(machine_code.Library, "load", Kept.load)
    for name in ("run", "run_watched"):
        change(executor.NativePlan, name, lambda *_: None)
    change(executor.NativePlan, "prepared", lambda *_: lambda: None)
    change(executor.dict_versions, "are_counted", lambda: False)  # machine code reads the counts
    change(config, "native_tape", False)  # the matcher of calls would run


def programs() -> None:
    """What is compiled: a training step, and one program of each kind of kernel."""
    model = rl.nn.Sequential(
        rl.nn.Conv2d(1, 4, 3), rl.nn.BatchNorm2d(4), rl.nn.ReLU(), rl.nn.MaxPool2d(2),
        rl.nn.Flatten(), rl.nn.Linear(4 * 13 * 13, 10),
    )  # fmt: skip
    optimizer = rl.optim.Adam(model.parameters())
    images, labels = rl.zeros(8, 1, 28, 28), rl.zeros(8, dtype=rl.int64)
    rl.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    for dtype in (rl.float32, rl.float64, rl.bfloat16, rl.float16, rl.int32, rl.int8):
        x = rl.zeros(65, 130, dtype=dtype)
        results = [x + x, x.sum(0), x @ x.mT, x.cumsum(1), x.sort(1)[0], x.to(rl.float32) * 2]
        if dtype.is_floating_point:
            y = x.float() if dtype is not rl.float64 else x
            results += [y.softmax(1), y.exp(), y.erf(), y.sin(), y.lgamma(), y.atan2(y + 1)]
            results += [y.std(1), y.logsumexp(0), rl.special.i0(y), y**2.5, y.to(dtype)]
        for result in results:
            np.asarray(result.float().numpy())


def wanted_names(code: bytes) -> Iterator[str]:
    """The symbols that object code does not define itself."""
    if code[:4] == b"\xcf\xfa\xed\xfe":
        yield from _of_macos(code)
    elif code[:4] == b"\x7fELF":
        yield from _of_linux(code)
    else:
        yield from _of_windows(code)


def _of_macos(code: bytes) -> Iterator[str]:
    (commands,) = struct.unpack_from("<I", code, 16)
    at = 32
    for _ in range(commands):
        kind, size = struct.unpack_from("<II", code, at)
        if kind == 2:  # LC_SYMTAB
            first, count, names, _ = struct.unpack_from("<IIII", code, at + 8)
            for symbol in range(first, first + 16 * count, 16):
                name, flags = struct.unpack_from("<IB", code, symbol)
                if flags & 0x0E == 0:
                    yield _text(code, names + name).removeprefix("_")
        at += size


def _of_windows(code: bytes) -> Iterator[str]:
    first, count = struct.unpack_from("<II", code, 8)
    names, extra = first + 18 * count, 0
    for symbol in range(first, names, 18):
        short, _, section, _, storage, more = struct.unpack_from("<8sIhHBB", code, symbol)
        if extra == 0 and section == 0 and storage == 2:
            long = short[:4] == b"\0\0\0\0"
            at = names + struct.unpack("<I", short[4:])[0]
            yield _text(code, at) if long else short.rstrip(b"\0").decode()
        extra = extra - 1 if extra else more


def _of_linux(code: bytes) -> Iterator[str]:
    from ridgeline.codegen.llvm import elf

    sections = elf._sections(code)
    table = next(section for section in sections if section.kind == elf._SYMTAB)
    for name, section, _, _ in elf._symbols(code, sections, table):
        if section == elf._UNDEFINED and name:
            yield name


def _text(code: bytes, at: int) -> str:
    return code[at : code.index(b"\0", at)].decode()


def main() -> None:
    objects: list[bytes] = []
    pretend(MACHINES[sys.argv[1]], objects)
    programs()
    objects += [machine_code.compile_ir(executor_ir())]
    names = sorted({name for code in objects for name in wanted_names(code)})
    print(json.dumps({"objects": len(objects), "names": names}))


if __name__ == "__main__":
    main()
