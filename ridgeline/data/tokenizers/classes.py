r"""Classes of characters in patterns: `[^\s\p{L}]`, `\d`, `[a-z&&[^aeiou]]`, as sets."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ridgeline.data.tokenizers.code_points import (
    SCRIPTS,
    WHITE_SPACE,
    CodePoints,
    as_class,
    category,
    complement,
    intersection,
    of,
    union,
    word,
)
from ridgeline.data.tokenizers.reader import PatternError, Reader

_CONTROLS = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "a": 7, "e": 27}
_HEX: CodePoints = ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66))
_LONG_NAMES = {
    "letter": "L", "uppercaseletter": "Lu", "lowercaseletter": "Ll", "titlecaseletter": "Lt",
    "modifierletter": "Lm", "otherletter": "Lo", "mark": "M", "nonspacingmark": "Mn",
    "spacingmark": "Mc", "enclosingmark": "Me", "number": "N", "decimalnumber": "Nd",
    "letternumber": "Nl", "othernumber": "No", "punctuation": "P", "connectorpunctuation": "Pc",
    "dashpunctuation": "Pd", "openpunctuation": "Ps", "closepunctuation": "Pe",
    "initialpunctuation": "Pi", "finalpunctuation": "Pf", "otherpunctuation": "Po", "symbol": "S",
    "mathsymbol": "Sm", "currencysymbol": "Sc", "modifiersymbol": "Sk", "othersymbol": "So",
    "separator": "Z", "spaceseparator": "Zs", "lineseparator": "Zl", "paragraphseparator": "Zp",
    "other": "C", "control": "Cc", "format": "Cf", "privateuse": "Co", "surrogate": "Cs",
    "unassigned": "Cn",
}  # fmt: skip
# Outside brackets Oniguruma counts powers and fractions of Latin-1 among the words, too.
_LATIN_NUMBERS: CodePoints = ((0xB2, 0xB3), (0xB9, 0xB9), (0xBC, 0xBE))
_SHORT_NAMES = {name.lower(): name for name in _LONG_NAMES.values()}


def property_set(name: str) -> CodePoints:
    r"""The code points of `\p{name}`: a general category, a script, or what POSIX has."""
    key = re.sub(r"[\s_-]", "", name).lower()
    if general := _SHORT_NAMES.get(key) or _LONG_NAMES.get(key):
        return category(general)
    if key in SCRIPTS:
        return SCRIPTS[key]
    if key in ("any", "ascii"):
        return ((0, 0x7F if key == "ascii" else 0x10FFFF),)
    if key in ("digit", "space", "word", "xdigit", "cntrl", "blank"):
        sets = {
            "digit": category("Nd"), "space": WHITE_SPACE, "word": word(), "xdigit": _HEX,
            "cntrl": category("Cc"), "blank": union(category("Zs"), ((9, 9),)),
        }  # fmt: skip
        return sets[key]
    raise PatternError(f"the property {name!r} of characters is not supported")


def word_boundary(negated: bool) -> str:
    r"""`\b`, or `\B`, with these words."""
    inside = as_class(word())
    before, after = f"(?<={inside})", f"(?={inside})"
    not_before, not_after = f"(?<!{inside})", f"(?!{inside})"
    if negated:
        return f"(?:{before}{after}|{not_before}{not_after})"
    return f"(?:{before}{not_after}|{not_before}{after})"


@dataclass
class ClassReader:
    """Reads classes off a pattern; each is a set, and whether its complement is meant."""

    reader: Reader

    def read(self) -> tuple[CodePoints, bool]:
        """The class that begins here, with a bracket or a backslash."""
        if self.reader.takes("["):
            return self._bracket()
        ranges, negated = self.escape()
        return (union(ranges, _LATIN_NUMBERS) if ranges == word() else ranges), negated

    def escape(self) -> tuple[CodePoints, bool]:
        """What stands behind a backslash: a class, or one character."""
        self.reader.skip(1)
        letter = self.reader.next()
        if letter in "pP":
            if not (named := self.reader.matches(r"\{(\^?)([^{}]+)\}")):
                raise PatternError(f"\\{letter} without a name in braces")
            return property_set(named[2]), (letter == "P") != bool(named[1])
        if letter in "sSdDwWhH":
            sets = {"s": WHITE_SPACE, "d": category("Nd"), "w": word(), "h": _HEX}
            return sets[letter.lower()], letter.isupper()
        point = self._point(letter)
        return ((point, point),), False

    def _point(self, letter: str) -> int:
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter == "x" and (code := self.reader.matches(r"\{([0-9a-fA-F]{1,8})\}")):
            return self._valid(int(code[1], 16))
        if letter == "x" and (code := self.reader.matches(r"[0-9a-fA-F]{1,2}")):
            return self._valid(int(code[0], 16))
        if letter == "u" and (code := self.reader.matches(r"[0-9a-fA-F]{4}")):
            return self._valid(int(code[0], 16))
        if letter == "0":
            code = self.reader.matches(r"[0-7]{0,2}")
            return int("0" + (code[0] if code else ""), 8)
        if letter.isascii() and letter.isalnum():
            raise PatternError(f"\\{letter} is not supported")
        return ord(letter)

    def _valid(self, point: int) -> int:
        if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            raise PatternError(f"{point:#x} is no character")
        return point

    def _bracket(self) -> tuple[CodePoints, bool]:
        negated = self.reader.takes("^")
        members: CodePoints = ()
        narrowed: CodePoints | None = None  # what stood before the last &&
        first = True
        while first or not self.reader.takes("]"):
            if self.reader.takes("&&"):
                narrowed = members if narrowed is None else intersection(narrowed, members)
                members = ()
            else:
                members = union(members, self._member())
            first = False
        return (members if narrowed is None else intersection(narrowed, members)), negated

    def _member(self) -> CodePoints:
        if posix := self.reader.matches(r"\[:(\^?)(\w+):\]"):
            return self._set(_posix(posix[2]), bool(posix[1]))
        if self.reader.takes("["):
            return self._set(*self._bracket())
        low = self._end()
        if len(low) != 1 or low[0][0] != low[0][1]:
            return low
        if self.reader.sees("-") and self.reader.peek(1) not in "]&[":
            self.reader.skip(1)
            high = self._end()
            if len(high) != 1 or high[0][0] != high[0][1]:
                return union(low, ((ord("-"), ord("-")),), high)
            if high[0][0] < low[0][0]:
                raise PatternError("a range whose end is before its start")
            return ((low[0][0], high[0][0]),)
        return low

    def _end(self) -> CodePoints:
        if self.reader.takes("\\b"):
            return ((8, 8),)
        if self.reader.sees("\\"):
            return self._set(*self.escape())
        point = ord(self.reader.next())
        return ((point, point),)

    @staticmethod
    def _set(ranges: CodePoints, negated: bool) -> CodePoints:
        return complement(ranges) if negated else ranges


def _posix(name: str) -> CodePoints:
    return of("P", "S") if name == "punct" else property_set(name)
