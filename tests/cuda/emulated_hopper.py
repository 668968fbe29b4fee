"""Kernels for Hopper run on the CPU, as C++: several texts in one library, cluster by cluster.

The functions of `instructions.py`, one for each instruction, are written out in
`emulated_hopper.h`; all else is the text that NVRTC is given.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ridgeline as rl
from ridgeline.codegen.cuda.hopper.instructions import DESCRIPTOR, INSTRUCTIONS
from ridgeline.codegen.cuda.prelude import PRELUDE
from ridgeline.codegen.cuda.source import KernelSource, Launch, TileMap
from tests.simt.emulated import _MACHINE, _PTX

_HOPPER = (Path(__file__).parent / "emulated_hopper.h").read_text()
_NUMBERS = {"bf16": "Bfloat16", "f16": "Float16"}


class _Tensor(ctypes.Structure):
    """`Tensor` of the machine."""

    _fields_ = (
        ("base", ctypes.c_void_p), ("rank", ctypes.c_longlong), ("itemsize", ctypes.c_longlong),
        ("sizes", ctypes.c_longlong * 5), ("strides", ctypes.c_longlong * 5),
        ("box", ctypes.c_longlong * 5),
    )  # fmt: skip


class EmulatedHopper:
    """Sources, compiled as C++."""

    def __init__(self, sources: Sequence[KernelSource], folder: Path) -> None:
        prelude = PRELUDE
        for pattern, replacement in _PTX:
            prelude = re.sub(pattern, replacement, prelude, flags=re.DOTALL)
        texts = [f"namespace n{n} {{\n{_as_cpp(s)}\n}}\n" for n, s in enumerate(sources)]
        made = folder / "kernels.cpp"
        made.write_text(_MACHINE + prelude + _HOPPER + "".join(texts))
        library = made.with_suffix(".so")
        command = ["g++", "-std=c++20", "-O1", "-w", "-pthread", "-shared", "-fPIC"]
        subprocess.run([*command, "-o", library, made], check=True)
        self._library = ctypes.CDLL(str(library))
        self._library.fault_found.restype = ctypes.c_char_p

    def run(self, source: KernelSource, arguments: Sequence[Any]) -> None:
        """Run the launches of a source over arrays, which it writes into."""
        pointers = (ctypes.c_void_p * len(arguments))(*(a.ctypes.data for a in arguments))
        for launch in source.launches:
            tensors = [_tensor(one, arguments[one.parameter]) for one in launch.maps]
            maps = (ctypes.c_void_p * max(len(tensors), 1))(*map(ctypes.addressof, tensors))
            shape = (ctypes.c_int * 4)(
                launch.blocks(), launch.block, launch.cluster, launch.shared_bytes
            )
            failed = getattr(self._library, f"run_{launch.symbol}")(pointers, maps, shape)
            assert not failed, self._library.fault_found().decode()


def _tensor(of: TileMap, memory: Any) -> _Tensor:
    """What the driver would encode, refused where it would be."""
    itemsize = getattr(rl, of.dtype).itemsize
    base = memory.ctypes.data + of.offset * itemsize
    strides = [step * itemsize for step in of.strides]
    assert base % 16 == 0 and all(step % 16 == 0 and step > 0 for step in strides)
    assert len(of.sizes) == len(of.box) == len(of.strides) + 1 <= 5
    assert all(1 <= side <= 256 for side in of.box)
    made = _Tensor(base, len(of.sizes), itemsize)
    made.sizes[: len(of.sizes)] = of.sizes
    made.strides[: len(of.sizes)] = [itemsize, *strides]
    made.box[: len(of.box)] = of.box
    return made


def _as_cpp(source: KernelSource) -> str:
    text = source.text
    for known in (PRELUDE, INSTRUCTIONS, DESCRIPTOR):
        assert known in text
        text = text.replace(known, "")
    text = re.sub(r"\nDEVICE void rl_fetch.*?\n}\n", "\n", text, flags=re.DOTALL)
    text = re.sub(r"\n// The sums are looked at.*?\n}\n", "\n", text, flags=re.DOTALL)
    text = re.sub(r"\nDEVICE void rl_multiply(_first)?\(.*?\n}\n", _multiply, text, flags=re.DOTALL)
    memory = "unsigned char *shared_memory = memory_of(rl_cluster_rank()) + 16;"
    text = re.sub(r"extern __shared__ [^;]*;", memory, text).replace('extern "C" ', "")
    return text + "".join(_entry(launch, text) for launch in source.launches)


def _multiply(found: re.Match[str]) -> str:
    """The product of a text, as what the machine does."""
    text = found[0]
    columns, kind = re.search(r"m64n(\d+)k\d+\.\w+\.(\w+)\.", text).groups()  # type: ignore[union-attr]
    turned = re.search(r"adds, 1, 1, (\d), (\d);", text)
    left, right = turned.groups() if turned else ("0", "0")
    total = re.search(r"rl_multiply\w*\((\w+)", text)[1]  # type: ignore[index]
    run = f"multiply_tile<{_NUMBERS[kind]}, {total}, {columns}, {left}, {right}>"
    return f"""
DEVICE void rl_multiply{found[1] or ""}({total} (&sums)[{int(columns) // 2}],
                        unsigned long long left, unsigned long long right) {{
  issue({{&sums, left, right, {str(found[1] is None).lower()}, {run}}});
}}
"""


def _entry(launch: Launch, text: str) -> str:
    count = re.search(rf"{launch.symbol}\((.*?)\) {{", text)[1].count(",") + 1  # type: ignore[index]
    pointers = [f"Any{{all[{n}]}}" for n in range(count - len(launch.maps))]
    maps = [f"TensorMap{{{{(unsigned long long)maps[{n}]}}}}" for n in range(len(launch.maps))]
    return f"""
extern "C" int run_{launch.symbol}(void **all, void **maps, const int *shape) {{
  return launch_clusters(shape, [&] {{ {launch.symbol}({", ".join(pointers + maps)}); }});
}}
"""
