"""An image as a relocatable ELF object, to be linked into an executable."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ridgeline.deploy.link import PARTS, Image, Part

_NAMES: dict[Part, tuple[str, int, int]] = {  # a section's name, kind and flags
    "text": (".text", 1, 6),
    "rodata": (".rodata", 1, 2),
    "data": (".data", 1, 3),
    "bss": (".bss", 8, 3),
    "weights": (".rodata.weights", 1, 2),
}
_ALIGNMENT = {"bss": 4096, "weights": 64}
_GLOBAL = 1 << 4


def relocatable(image: Image, exported: Sequence[str]) -> bytes:
    """The object: what is exported can be called, all else is its own."""
    referred = dict.fromkeys(reference.symbol for reference in image.references)
    own = [name for name in referred if name in image.symbols and name not in exported]
    outside = [*exported, *image.missing()]
    strings = bytearray(b"\0")
    rows = [bytes(24)]
    section_of = {part: number for number, part in enumerate(PARTS, 1)}
    for name in own:
        place = image.symbols[name]
        rows.append(struct.pack("<IBBHQQ", 0, 0, 0, section_of[place.part], place.offset, 0))
    for name in outside:
        at = len(strings)
        strings += name.encode() + b"\0"
        found = image.symbols.get(name)
        where = (0, 0) if found is None else (section_of[found.part], found.offset)
        rows.append(struct.pack("<IBBHQQ", at, _GLOBAL | 2 * (found is not None), 0, *where, 0))
    numbers = {name: number for number, name in enumerate([*own, *outside], 1)}
    sections: list[tuple[str, int, int, bytes, int, int, int, int]] = []
    for part in PARTS:
        name, kind, flags = _NAMES[part]
        sections.append(
            (name, kind, flags, bytes(image.content[part]), 0, 0, _ALIGNMENT.get(part, 64), 0)
        )
    symbols_at = len(PARTS) + 1
    for part in PARTS:
        rela = b"".join(
            struct.pack("<QIIq", r.at.offset, r.kind, numbers[r.symbol], r.addend)
            for r in image.references
            if r.at.part == part
        )
        if rela:
            name = f".rela{_NAMES[part][0]}"
            sections.append((name, 4, 0x40, rela, 0, section_of[part], 8, 24))
    sections = [
        *sections[: len(PARTS)],
        (".symtab", 2, 0, b"".join(rows), symbols_at + 1, 1 + len(own), 8, 24),
        (".strtab", 3, 0, bytes(strings), 0, 0, 1, 0),
        (".note.GNU-stack", 1, 0, b"", 0, 0, 1, 0),
        *((n, k, f, c, symbols_at, i, a, e) for n, k, f, c, _, i, a, e in sections[len(PARTS) :]),
    ]
    return _file(sections, image.zeroed)


def _file(
    sections: Sequence[tuple[str, int, int, bytes, int, int, int, int]], zeroed: int
) -> bytes:
    names = bytearray(b"\0")
    content = bytearray(64)
    rows = [bytes(64)]
    last = (".shstrtab", 3, 0, b"", 0, 0, 1, 0)
    for name, kind, flags, data, link, info, align, entry in (*sections, last):
        name_at = len(names)
        names += name.encode() + b"\0"
        data = bytes(names) if name == ".shstrtab" else data
        content += bytes(-len(content) % align)
        size = zeroed if kind == 8 else len(data)
        rows.append(
            struct.pack(
                "<IIQQQQIIQQ", name_at, kind, flags, 0, len(content), size, link, info, align, entry
            )
        )
        content += data
    content += bytes(-len(content) % 8)
    table_at = len(content)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01" + bytes(9), 1, 62, 1, 0, 0, table_at, 0, 64, 0,
        0, 64, len(rows), len(rows) - 1,
    )  # fmt: skip
    content[:64] = header
    return bytes(content + b"".join(rows))
