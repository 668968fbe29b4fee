"""An image as an ELF shared object: segments, a table of what it gives and takes, relocations.

    headers, names, relocations, constants      read
    code, jumps to libraries                    read and executed
    addresses, dynamic section, data, zeroes    written
    weights                                     read

Calls of libraries go through jumps, and all addresses are filled in when the file is loaded: there
is nothing to resolve later. A loaded object stays until its process ends, since threads may run it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ridgeline.deploy.link import THROUGH_TABLE, Image, Kind, LinkError, Part, Place

PAGE = 4096
LIBRARIES = ("libc.so.6", "libm.so.6")
_HEADER, _SEGMENT = 64, 56
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_READ, _READ_EXECUTE, _READ_WRITE = 4, 5, 6
_GLOBAL, _WEAK, _FUNCTION = 1, 2, 2
_JUMP = b"\xff\x25"  # through an address, so far ahead
_STUB = 8
_RELATIVE, _GLOB_DAT = 8, 6
_NEEDED, _HASH, _STRTAB, _SYMTAB, _RELA, _RELASZ, _RELAENT = 1, 4, 5, 6, 7, 8, 9
_STRSZ, _SYMENT, _FLAGS, _FLAGS_1 = 10, 11, 30, 0x6FFFFFFB
_BIND_NOW, _NOW_NODELETE = 8, 1 | 8
_NOBITS = 8


@dataclass(frozen=True, slots=True)
class _Table:
    """A section as the file's last table lists it."""

    name: str
    kind: int
    flags: int
    at: int
    offset: int
    size: int
    link: int = 0
    entry: int = 0


def shared_object(image: Image, exported: Sequence[str]) -> bytes:
    """The file."""
    return _Writer(image, exported).write()


class _Writer:
    """The parts of a file and their addresses, which are their offsets but for zeroed memory."""

    def __init__(self, image: Image, exported: Sequence[str]) -> None:
        self._image, self._exported = image, list(exported)
        self._taken = image.missing()
        self._strings = bytearray(b"\0")
        self._libraries = [self._string(name) for name in LIBRARIES]
        self._names = [self._string(name) for name in (*self._taken, *self._exported)]
        self._own = [
            r.symbol
            for r in image.references
            if r.kind in THROUGH_TABLE and r.symbol in image.symbols
        ]
        self._entries = list(dict.fromkeys([*self._taken, *self._own]))
        self._base: dict[Part, int] = {}
        self._relocations: list[tuple[int, int, int, int]] = []

    def _string(self, text: str) -> int:
        at = len(self._strings)
        self._strings += text.encode() + b"\0"
        return at

    def write(self) -> bytes:
        """Lay out, refer, and write the tables that say what lies where."""
        image = self._image
        symbols = 1 + len(self._taken) + len(self._exported)
        absolute = sum(r.kind == Kind.ABS64 for r in image.references)
        sizes = [
            symbols * 24, len(self._strings), 8 + 4 * (1 + symbols),
            (absolute + len(self._entries)) * 24,
        ]  # fmt: skip
        at = _HEADER + 6 * _SEGMENT
        tables = []
        for size in sizes:
            at = _up(at, 16)
            tables.append(at)
            at += size
        self._base["rodata"] = _up(at, 64)
        read_end = self._base["rodata"] + image.extent("rodata")
        text = self._base["text"] = _up(read_end, PAGE)
        self._stubs = _up(text + image.extent("text"), 16)
        text_end = self._stubs + _STUB * len(self._taken)
        self._table = _up(text_end, PAGE)
        dynamic = _up(self._table + 8 * len(self._entries), 16)
        dynamic_size = 16 * (len(LIBRARIES) + 11)
        data = self._base["data"] = _up(dynamic + dynamic_size, 64)
        data_end = data + image.extent("data")
        bss = self._base["bss"] = _up(data_end, PAGE)
        bss_end = bss + image.extent("bss")
        weights_offset = _up(data_end, PAGE)
        weights = self._base["weights"] = _up(bss_end, PAGE)
        weights_size = image.extent("weights")

        memory = bytearray(weights_offset + weights_size)
        for part in ("rodata", "text", "data"):
            begin = self._base[part]
            memory[begin : begin + image.extent(part)] = image.content[part]
        memory[weights_offset:] = image.content["weights"]
        self._refer(memory)
        for place, content in zip(tables, self._link_tables(sizes[3])):
            memory[place : place + len(content)] = content
        entries = self._dynamic(tables, sizes)
        memory[dynamic : dynamic + len(entries)] = entries
        segments = [
            (_LOAD, _READ, 0, 0, read_end, read_end, PAGE),
            (_LOAD, _READ_EXECUTE, text, text, text_end - text, text_end - text, PAGE),
            (
                _LOAD, _READ_WRITE, self._table, self._table, data_end - self._table,
                bss_end - self._table, PAGE,
            ),
            (_LOAD, _READ, weights_offset, weights, weights_size, weights_size, PAGE),
            (_DYNAMIC, _READ_WRITE, dynamic, dynamic, dynamic_size, dynamic_size, 8),
            (_STACK, _READ_WRITE, 0, 0, 0, 0, 16),
        ]  # fmt: skip
        for number, (kind, flags, offset, address, stored, extent, align) in enumerate(segments):
            struct.pack_into(
                "<IIQQQQQQ", memory, _HEADER + number * _SEGMENT,
                kind, flags, offset, address, address, stored, extent, align,
            )  # fmt: skip
        listed = [
            _Table(".dynsym", 11, 2, tables[0], tables[0], sizes[0], 2, 24),
            _Table(".dynstr", 3, 2, tables[1], tables[1], sizes[1]),
            _Table(".hash", 5, 2, tables[2], tables[2], sizes[2], 1, 4),
            _Table(".rela.dyn", 4, 2, tables[3], tables[3], sizes[3], 1, 24),
            _Table(".rodata", 1, 2, self._base["rodata"], self._base["rodata"],
                   image.extent("rodata")),
            _Table(".text", 1, 6, text, text, text_end - text),
            _Table(".got", 1, 3, self._table, self._table, 8 * len(self._entries)),
            _Table(".dynamic", 6, 3, dynamic, dynamic, dynamic_size, 2, 16),
            _Table(".data", 1, 3, data, data, image.extent("data")),
            _Table(".bss", _NOBITS, 3, bss, weights_offset, image.extent("bss")),
            _Table(".rodata.weights", 1, 2, weights, weights_offset, weights_size),
        ]  # fmt: skip
        self._sections_of_exports(memory, tables[0], listed)
        return _with_sections(memory, listed)

    def _address(self, place: Place) -> int:
        return self._base[place.part] + place.offset

    def _entry(self, name: str) -> int:
        return self._table + 8 * self._entries.index(name)

    def _refer(self, memory: bytearray) -> None:
        """Fill in what refers to the file itself, and note what waits for its address."""
        image = self._image
        for number, name in enumerate(self._taken):
            stub = self._stubs + number * _STUB
            distance = self._entry(name) - (stub + 6)
            memory[stub : stub + _STUB] = _JUMP + struct.pack("<i", distance) + b"\x66\x90"
            self._relocations.append((self._entry(name), _GLOB_DAT, number + 1, 0))
        for name in self._entries[len(self._taken) :]:
            target = self._address(image.symbols[name])
            self._relocations.append((self._entry(name), _RELATIVE, 0, target))
        taken = {name: number for number, name in enumerate(self._taken)}
        for reference in image.references:
            at = self._address(reference.at)
            name, addend = reference.symbol, reference.addend
            own = image.symbols.get(name)
            if reference.kind == Kind.ABS64:
                if own is None:
                    raise LinkError(f"data refers to {name!r}, which the file does not define")
                self._relocations.append((at, _RELATIVE, 0, self._address(own) + addend))
                continue
            if reference.kind in THROUGH_TABLE:
                target = self._entry(name)
            elif own is not None:
                target = self._address(own)
            else:
                target = self._stubs + taken[name] * _STUB
            wide = reference.kind == Kind.PC64
            struct.pack_into("<q" if wide else "<i", memory, at, target + addend - at)

    def _link_tables(self, nbytes: int) -> list[bytes]:
        """Symbols, names, the hash table over them, relocations."""
        image = self._image
        rows = [bytes(24)]
        for number, name in enumerate(self._taken):
            binding = _WEAK if name in image.optional else _GLOBAL
            rows.append(
                struct.pack("<IBBHQQ", self._names[number], binding << 4 | _FUNCTION, 0, 0, 0, 0)
            )
        for number, name in enumerate(self._exported, len(self._taken)):
            address = self._address(image.symbols[name])
            rows.append(
                struct.pack(
                    "<IBBHQQ", self._names[number], _GLOBAL << 4 | _FUNCTION, 0, 6, address, 0
                )
            )
        names = ["", *self._taken, *self._exported]
        chains = [0] * len(names)
        first = 0
        for number in range(1, len(names)):  # one bucket: a file has a dozen names
            chains[number], first = first, number
        hashed = struct.pack(f"<{3 + len(names)}I", 1, len(names), first, *chains)
        relocations = b"".join(
            struct.pack("<QIIq", at, kind, symbol, addend)
            for at, kind, symbol, addend in self._relocations
        )
        assert len(relocations) <= nbytes
        return [b"".join(rows), bytes(self._strings), hashed, relocations]

    def _dynamic(self, tables: Sequence[int], sizes: Sequence[int]) -> bytes:
        rows = [(_NEEDED, at) for at in self._libraries]
        rows += [
            (_SYMTAB, tables[0]), (_SYMENT, 24),
            (_STRTAB, tables[1]), (_STRSZ, sizes[1]), (_HASH, tables[2]), (_RELA, tables[3]),
            (_RELASZ, 24 * len(self._relocations)), (_RELAENT, 24), (_FLAGS, _BIND_NOW),
            (_FLAGS_1, _NOW_NODELETE), (0, 0),
        ]  # fmt: skip
        return b"".join(struct.pack("<QQ", *row) for row in rows)

    def _sections_of_exports(
        self, memory: bytearray, symbols: int, listed: Sequence[_Table]
    ) -> None:
        """Say of every exported symbol in which section it lies."""
        begin = 1 + len(self._taken)
        text = 1 + [table.name for table in listed].index(".text")
        for number in range(begin, begin + len(self._exported)):
            struct.pack_into("<H", memory, symbols + 24 * number + 6, text)


def _with_sections(memory: bytearray, listed: Sequence[_Table]) -> bytes:
    """The file with the table of its sections at the end, and the header at the beginning."""
    names = b"\0" + b"".join(table.name.encode() + b"\0" for table in listed) + b".shstrtab\0"
    names_at = len(memory)
    table_at = _up(names_at + len(names), 8)
    rows = [bytes(64)]
    for table in (*listed, _Table(".shstrtab", 3, 0, 0, names_at, len(names))):
        name_at = names.index(b"\0" + table.name.encode() + b"\0") + 1
        info, align = int(table.name == ".dynsym"), 64 if table.at % 64 == 0 else 8
        place = (name_at, table.kind, table.flags, table.at, table.offset, table.size)
        rows.append(struct.pack("<IIQQQQIIQQ", *place, table.link, info, align, table.entry))
    memory += names + bytes(table_at - names_at - len(names)) + b"".join(rows)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01" + bytes(9), 3, 62, 1, 0, _HEADER, table_at, 0,
        _HEADER, _SEGMENT, 6, 64, len(rows), len(rows) - 1,
    )  # fmt: skip
    memory[: len(header)] = header
    return bytes(memory)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
