"""Resource usage of kernels, read from their machine code without a GPU.

A CUBIN is an ELF file. Its section `.nv.info` lists attributes of functions by the number of their
symbols, among them registers and the bytes of local memory; static shared memory is the size of
the function's own section.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_REGISTERS, _FRAME, _STACK = 0x2F, 0x11, 0x12
_PAIR = 4  # the form of an attribute with a value: here a symbol and a number
_SYMBOLS = 2  # the type of the section that lists symbols
_RESERVED, _RESERVING = 1024, 90  # shared bytes that the system keeps, and from where on


@dataclass(frozen=True)
class KernelResources:
    """Registers of a thread, bytes of its local memory (spills too), static shared bytes."""

    registers: int
    local_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int


def kernel_resources(cubin: bytes, name: str, capability: int) -> KernelResources:
    """The resources of function `name` on a GPU of a capability such as 90."""
    sections = _sections(cubin)
    symbol = _symbols(cubin, sections).index(name)
    found = dict.fromkeys((_REGISTERS, _FRAME, _STACK), 0)
    for attribute, owner, value in _attributes(cubin, sections):
        if owner == symbol and attribute in found:
            found[attribute] = value
    shared = sum(s.size for s in sections if s.name == f".nv.shared.{name}")
    if shared and capability >= _RESERVING:
        shared -= _RESERVED
    return KernelResources(found[_REGISTERS], max(found[_FRAME], found[_STACK]), shared)


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


def _sections(data: bytes) -> list[_Section]:
    (start,) = struct.unpack_from("<Q", data, 40)
    step, count, names = struct.unpack_from("<HHH", data, 58)
    rows = [struct.unpack_from("<IIQQQQI", data, start + k * step) for k in range(count)]
    base = rows[names][4]
    return [
        _Section(_text(data, base + name), kind, offset, size, link)
        for name, kind, _, _, offset, size, link in rows
    ]


def _symbols(data: bytes, sections: list[_Section]) -> list[str]:
    table = next(s for s in sections if s.kind == _SYMBOLS)
    base = sections[table.link].offset
    entries = range(table.offset, table.offset + table.size, 24)
    return [_text(data, base + struct.unpack_from("<I", data, entry)[0]) for entry in entries]


def _attributes(data: bytes, sections: list[_Section]) -> Iterator[tuple[int, int, int]]:
    """Attribute, symbol and value of every pair in `.nv.info`."""
    table = next(s for s in sections if s.name == ".nv.info")
    at = table.offset
    while at < table.offset + table.size:
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form != _PAIR:
            continue  # the size is the value
        if size == 8:
            yield (attribute, *struct.unpack_from("<II", data, at))
        at += size
