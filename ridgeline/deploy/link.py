"""A small linker: relocatable ELF objects and data as one image.

An image has four parts: code, constants that code refers to, data that is written to, and zeroed
memory; a fifth, `weights`, is large and is reached through addresses alone. What refers to what
stays a list (`Reference`), which is applied by `shared_object` and written out by `relocatable`.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from ridgeline.errors import RidgelineError

Part = Literal["text", "rodata", "data", "bss", "weights"]
PARTS: tuple[Part, ...] = ("text", "rodata", "data", "bss", "weights")

_SYMTAB, _RELA, _NOBITS = 2, 4, 8
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1
_LOCAL, _SECTION = 0, 3
_LEFT_OUT = (".eh_frame", ".note")  # nothing unwinds through a kernel


class Kind(IntEnum):
    """The relocations of x86-64 that code of ours has."""

    ABS64 = 1
    PC32 = 2
    PLT32 = 4
    GOTPCREL = 9
    PC64 = 24
    GOTPCRELX = 41
    REX_GOTPCRELX = 42


THROUGH_TABLE = (Kind.GOTPCREL, Kind.GOTPCRELX, Kind.REX_GOTPCRELX)


class LinkError(RidgelineError):
    """Code that cannot be put into a file: it refers to what no system has."""

    code = "RL0811"


@dataclass(frozen=True, slots=True)
class Place:
    """Some bytes of an image, by part and offset."""

    part: Part
    offset: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A field at a place that holds the address of a symbol, in one way or another."""

    at: Place
    kind: Kind
    symbol: str
    addend: int


@dataclass(slots=True)
class Image:
    """Everything at its place."""

    content: dict[Part, bytearray] = field(default_factory=lambda: {p: bytearray() for p in PARTS})
    zeroed: int = 0  # bytes of the part without content
    symbols: dict[str, Place] = field(default_factory=dict)
    references: list[Reference] = field(default_factory=list)
    optional: set[str] = field(default_factory=set)  # may be missing where the image is loaded

    def extent(self, part: Part) -> int:
        """How many bytes a part has."""
        return self.zeroed if part == "bss" else len(self.content[part])

    def reserve(self, part: Part, nbytes: int, align: int) -> Place:
        """Room at the end of a part."""
        start = -(-self.extent(part) // align) * align
        if part == "bss":
            self.zeroed = start + nbytes
        else:
            content = self.content[part]
            content.extend(bytes(start + nbytes - len(content)))
        return Place(part, start)

    def put(self, part: Part, content: bytes, align: int) -> Place:
        """Bytes at the end of a part."""
        content_at = self.reserve(part, len(content), align)
        begin = content_at.offset
        self.content[part][begin : begin + len(content)] = content
        return content_at

    def missing(self) -> list[str]:
        """The symbols that are referred to and lie elsewhere, each once."""
        names = dict.fromkeys(reference.symbol for reference in self.references)
        return [name for name in names if name not in self.symbols]

    def add_words(self, words: Sequence[int | str], symbol: str) -> None:
        """An array of 64-bit words; one that is a text is the address of a symbol."""
        numbers = [word if isinstance(word, int) else 0 for word in words]
        at = self.put("data", struct.pack(f"<{len(words)}q", *numbers), 64)
        self.symbols[symbol] = at
        for number, word in enumerate(words):
            if isinstance(word, str):
                where = Place("data", at.offset + 8 * number)
                self.references.append(Reference(where, Kind.ABS64, word, 0))

    def add_object(self, code: bytes, prefix: str = "") -> None:
        """The sections of a relocatable object; what it defines gets the prefix."""
        _Adding(self, code, prefix).add()


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


class _Adding:
    """One object on its way into an image."""

    def __init__(self, image: Image, code: bytes, prefix: str) -> None:
        self._image, self._code, self._prefix = image, code, prefix
        self._sections = list(_sections(code))
        self._places: dict[int, Place] = {}

    def add(self) -> None:
        """Sections first, then names, then references."""
        image, code = self._image, self._code
        for number, section in enumerate(self._sections):
            if section.flags & _ALLOC and not section.name.startswith(_LEFT_OUT):
                part, align = _part(section), max(section.align, 1)
                if section.kind == _NOBITS:
                    placed = image.reserve(part, section.size, align)
                else:
                    content = code[section.offset : section.offset + section.size]
                    placed = image.put(part, content, align)
                self._places[number] = placed
        names = list(self._names())
        for section in self._sections:
            if section.kind == _RELA and section.info in self._places:
                self._refer(section, self._places[section.info], names)

    def _names(self) -> Iterator[str]:
        """The name of every symbol in the image; those without one get a name from their place."""
        (table,) = (s for s in self._sections if s.kind == _SYMTAB)
        texts = self._sections[table.link].offset
        for number, at in enumerate(range(table.offset, table.offset + table.size, 24)):
            name, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", self._code, at)
            text = self._code[texts + name : self._code.index(b"\0", texts + name)].decode()
            if section == _UNDEFINED:
                if text and info >> 4 == 2:
                    self._image.optional.add(text)
                yield text
                continue
            own = section in self._places
            if info >> 4 == _LOCAL or not text:
                text = f"{self._prefix}.{len(self._image.symbols)}.{number}"
            else:
                text = self._prefix + text
            if own:
                place = self._places[section]
                self._image.symbols[text] = Place(place.part, place.offset + value)
            yield text

    def _refer(self, section: _Section, into: Place, names: Sequence[str]) -> None:
        for at in range(section.offset, section.offset + section.size, 24):
            offset, kind, index, addend = struct.unpack_from("<QIIq", self._code, at)
            if kind not in Kind.__members__.values():
                raise LinkError(f"code refers to {names[index]!r} in a way of its own ({kind})")
            where = Place(into.part, into.offset + offset)
            reference = Reference(where, Kind(kind), names[index], addend)
            self._image.references.append(reference)


def _part(section: _Section) -> Part:
    if section.flags & _EXECUTE:
        return "text"
    if section.kind == _NOBITS:
        return "bss"
    return "data" if section.flags & _WRITE else "rodata"


def _sections(code: bytes) -> Iterator[_Section]:
    (table,) = struct.unpack_from("<Q", code, 40)
    entry_size, count, names = struct.unpack_from("<HHH", code, 58)
    rows = [struct.unpack_from("<IIQQQQIIQQ", code, table + i * entry_size) for i in range(count)]
    texts = rows[names][4]
    for name, kind, flags, _, offset, size, link, info, align, _ in rows:
        text = code[texts + name : code.index(b"\0", texts + name)].decode()
        yield _Section(text, kind, flags, offset, size, link, info, align)


def check_symbols(image: Image, allowed: Collection[str]) -> None:
    """Raise where code needs what the libraries that a file may ask for do not have."""
    strange = [name for name in image.missing() if name not in allowed]
    if strange:
        raise LinkError(
            f"code calls {', '.join(strange)}, which neither libc nor libm has",
            help="leave out the instruction set that needs it, with instruction_sets=",
        )
