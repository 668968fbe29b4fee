"""A loader for relocatable x86-64 ELF objects, in Python.

It maps an object's sections, resolves its symbols and applies its relocations in some 100 µs, and
needs no LLVM: a warm start runs cached machine code without loading a compiler. Everything is put
in one mapping, so that relative references reach; calls and references to symbols of the process
go through a table of addresses and jumps at its end.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from dataclasses import dataclass, field
from functools import lru_cache

_SYMTAB, _RELA, _NOBITS = 2, 4, 8
_WRITE, _ALLOC = 1, 2
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1
_WEAK = 2
_ABS64, _PC32, _PLT32, _GOTPCREL, _PC64 = 1, 2, 4, 9, 24
_GOTPCRELX, _REX_GOTPCRELX = 41, 42
_GOT_KINDS = (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX)
_JUMP = b"\xff\x25\x02\x00\x00\x00\x66\x90"  # jmp *[rip+2] and padding; the address follows
_STUB = 16


if sys.platform == "linux":
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.mmap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    _libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    _libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class LoadError(Exception):
    """Object code that this loader does not understand, or whose symbols do not exist."""


@dataclass(slots=True)
class _Section:
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    at: int = -1  # where it starts in the mapping; -1 when it is not loaded


@dataclass(slots=True)
class _Image:
    """An object being laid out: its bytes and the stubs for symbols of the process."""

    data: bytearray
    base: int
    stubs: dict[str, int]
    next_stub: int
    symbols: dict[str, int] = field(default_factory=dict)

    def stub(self, name: str, address: int) -> int:
        """The place of a jump through an address; the address itself is 8 bytes further."""
        if name not in self.stubs:
            self.stubs[name] = self.next_stub
            self.data[self.next_stub : self.next_stub + _STUB] = _JUMP + struct.pack("<Q", address)
            self.next_stub += _STUB
        return self.stubs[name]


def is_loadable(code: bytes) -> bool:
    """True for a 64-bit little-endian relocatable ELF object for x86-64."""
    return code[:6] == b"\x7fELF\x02\x01" and struct.unpack_from("<HH", code, 16) == (1, 62)


@dataclass(frozen=True, slots=True)
class Mapped:
    """An object in memory, and the addresses of the symbols it defines."""

    base: int
    size: int
    symbols: dict[str, int]


def unmap(base: int, size: int) -> None:
    """Unmap an object; nothing may call it any more."""
    _libc.munmap(base, size)


def load(code: bytes) -> Mapped:
    """Map an object into the process."""
    sections = _sections(code)
    tables = [section for section in sections if section.kind == _SYMTAB]
    if len(tables) != 1:
        raise LoadError("the object has no symbol table")
    symbols = _symbols(code, sections, tables[0])
    writable_at, stubs_at, size = _lay_out(sections, len(symbols) * _STUB)
    base = _map(size)
    image = _Image(bytearray(size), base, {}, stubs_at)
    for section in sections:
        if section.at >= 0 and section.kind != _NOBITS:
            content = code[section.offset : section.offset + section.size]
            image.data[section.at : section.at + section.size] = content
    resolved = [_resolve(symbol, sections, base) for symbol in symbols]
    for section in sections:
        if section.kind == _RELA and sections[section.info].at >= 0:
            _relocate(code, section, sections[section.info], symbols, resolved, image)
    ctypes.memmove(base, bytes(image.data), size)
    if _libc.mprotect(base, writable_at, mmap.PROT_READ | mmap.PROT_EXEC):
        raise LoadError("the system does not allow memory to be made executable")
    defined = {
        name: address
        for (name, section, _, _), address in zip(symbols, resolved)
        if name and section not in (_UNDEFINED, _ABSOLUTE)
    }
    return Mapped(base, size, defined)


def _sections(code: bytes) -> list[_Section]:
    (table,) = struct.unpack_from("<Q", code, 40)
    entry_size, count = struct.unpack_from("<HH", code, 58)
    rows = (struct.unpack_from("<IIQQQQIIQQ", code, table + i * entry_size) for i in range(count))
    return [_Section(row[1], row[2], row[4], row[5], row[6], row[7], row[8]) for row in rows]


def _symbols(
    code: bytes, sections: list[_Section], table: _Section
) -> list[tuple[str, int, int, int]]:
    """Every symbol as (name, section, value, binding)."""
    names = sections[table.link].offset
    found = []
    for at in range(table.offset, table.offset + table.size, 24):
        name, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", code, at)
        text = code[names + name : code.index(b"\0", names + name)].decode()
        found.append((text, section, value, info >> 4))
    return found


def _lay_out(sections: list[_Section], stub_bytes: int) -> tuple[int, int, int]:
    """Place code and constants, then the stubs, then (on their own pages) writable sections."""
    at = 0
    loaded = [section for section in sections if section.flags & _ALLOC]
    for section in loaded:
        if not section.flags & _WRITE:
            section.at = at = _up(at, section.align)
            at += section.size
    stubs_at = _up(at, _STUB)
    writable_at = at = _up(stubs_at + stub_bytes, mmap.PAGESIZE)
    for section in loaded:
        if section.flags & _WRITE:
            section.at = at = _up(at, section.align)
            at += section.size
    return writable_at, stubs_at, _up(at, mmap.PAGESIZE)


def _up(value: int, multiple: int) -> int:
    return value + -value % max(multiple, 1)


def _map(size: int) -> int:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    base = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if base in (None, ctypes.c_void_p(-1).value):
        raise MemoryError(f"cannot map {size} bytes for machine code")
    return int(base)


def _resolve(symbol: tuple[str, int, int, int], sections: list[_Section], base: int) -> int:
    name, section, value, binding = symbol
    if section == _ABSOLUTE:
        return value
    if section != _UNDEFINED:
        if section >= len(sections):
            raise LoadError(f"symbol {name!r} lies in an unsupported kind of section")
        return base + sections[section].at + value
    if not name:
        return 0
    address = process_symbol(name)
    if address is None and binding != _WEAK:
        raise LoadError(f"no symbol {name!r} in this process")
    return address or 0


def _relocate(
    code: bytes,
    table: _Section,
    into: _Section,
    symbols: list[tuple[str, int, int, int]],
    resolved: list[int],
    image: _Image,
) -> None:
    for at in range(table.offset, table.offset + table.size, 24):
        offset, kind, index, addend = struct.unpack_from("<QIIq", code, at)
        address = into.at + offset
        target = resolved[index]
        name, section = symbols[index][:2]
        if kind == _ABS64:
            struct.pack_into("<Q", image.data, address, (target + addend) % (1 << 64))
            continue
        if kind == _PC64:
            struct.pack_into("<q", image.data, address, target + addend - image.base - address)
            continue
        if kind in _GOT_KINDS:
            target = image.base + image.stub(name or str(index), target) + 8
        elif kind == _PLT32 and section == _UNDEFINED:
            target = image.base + image.stub(name, target)
        elif kind not in (_PC32, _PLT32):
            raise LoadError(f"relocation of an unsupported kind ({kind}) to {name!r}")
        distance = target + addend - image.base - address
        if not -(1 << 31) <= distance < 1 << 31:
            raise LoadError(f"{name!r} is too far away for a 32-bit reference")
        struct.pack_into("<i", image.data, address, distance)


@lru_cache(maxsize=1)
def _libraries() -> list[ctypes.CDLL]:
    """The process, then what compiled code may call that the process may not have loaded."""
    found = [_libc]
    for name in ("libm.so.6", "libgcc_s.so.1"):
        try:
            found.append(ctypes.CDLL(name))
        except OSError:  # another C library, which has these functions elsewhere
            continue
    return found


def process_symbol(name: str) -> int | None:
    """The address of a function or variable of the process, or None."""
    for library in _libraries():
        try:
            return ctypes.addressof(ctypes.c_char.in_dll(library, name))
        except ValueError:
            continue
    return None
