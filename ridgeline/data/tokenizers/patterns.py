r"""Patterns of tokenizer files, in Oniguruma's notation, as patterns of Python's `re`.

Classes are worked out as sets of code points, since `re` has no `\p{L}`, no classes inside
classes, and another idea of `\s` and `\w`. What has no counterpart is refused by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

from ridgeline.data.tokenizers.classes import ClassReader, word_boundary
from ridgeline.data.tokenizers.code_points import as_class
from ridgeline.data.tokenizers.reader import PatternError, Reader

_GROUPS = ("?:", "?=", "?!", "?>")
_LOOKS_BACK = ("?<=", "?<!")
_REFUSED = {"K": "keep", "G": "start of search", "X": "grapheme", "k": "back reference"}
_LINE_BREAK = r"(?>\r\n|[\n-\r\x85\u2028\u2029])"


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern as one of `re`; `PatternError` says what it has that is not supported."""
    translator = _Translator(ClassReader(Reader(pattern)))
    translated = translator.alternatives()
    if not translator.reader.at_end:
        raise PatternError("a ')' too many")
    try:
        return re.compile("|".join(translated))
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(str(error)) from error


@dataclass
class _Translator:
    """Goes through a pattern once, from left to right, and writes the same for `re`."""

    classes: ClassReader
    reader: Reader = field(init=False)
    dot_matches_newline: bool = False

    def __post_init__(self) -> None:
        self.reader = self.classes.reader

    def alternatives(self) -> list[str]:
        """What stands between bars, up to the end or a closing bracket."""
        found = [""]
        while not self.reader.at_end and not self.reader.sees(")"):
            if self.reader.takes("|"):
                found.append("")
            elif self.reader.sees("(?") and (flags := self.reader.matches(r"\(\?([imx-]+)\)")):
                # Flags hold for all that follows in the group, other alternatives too.
                found[-1] += self._with_flags(flags[1])
            else:
                found[-1] += self._quantified(self._atom())
        return found

    def _with_flags(self, flags: str) -> str:
        on, _, off = flags.partition("-")
        if "x" in flags:
            raise PatternError("the flag x is not supported")
        before = self.dot_matches_newline
        self.dot_matches_newline = ("m" in on) or (before and "m" not in off)
        inside = "|".join(self.alternatives())
        self.dot_matches_newline = before
        kept = f"{'i' * ('i' in on)}{'-i' * ('i' in off)}"
        return f"(?{kept}:{inside})"

    def _atom(self) -> str:
        if self.reader.sees("("):
            return self._group()
        if self.reader.sees("["):
            return as_class(*self.classes.read())
        if self.reader.sees("\\"):
            return self._escape()
        character = self.reader.next()
        if character == ".":
            return r"[\s\S]" if self.dot_matches_newline else "."
        if character in "^$":
            return f"(?m:{character})"
        if character in "*+?":
            raise PatternError(f"nothing that {character!r} could repeat")
        return re.escape(character)

    def _escape(self) -> str:
        letter = self.reader.peek(1)
        anchors = {"A": r"\A", "z": r"\Z", "Z": r"(?=\n?\Z)", "R": _LINE_BREAK}
        if letter in anchors:
            self.reader.skip(2)
            return anchors[letter]
        if letter in "bB":
            self.reader.skip(2)
            return word_boundary(negated=letter == "B")
        if letter in _REFUSED or letter in "123456789g":
            raise PatternError(f"\\{letter} ({_REFUSED.get(letter, 'reference')}) is not supported")
        return as_class(*self.classes.read())

    def _group(self) -> str:
        self.reader.skip(1)
        if self.reader.matches(r"\?#[^)]*\)"):
            return ""
        look = next((g for g in _LOOKS_BACK if self.reader.takes(g)), None)
        opened = next((g for g in _GROUPS if self.reader.takes(g)), None)
        if look or opened:
            inside = self.alternatives()
        elif flags := self.reader.matches(r"\?([imx-]+):"):
            inside = [self._with_flags(flags[1])]
        elif self.reader.sees("?") and not self.reader.matches(r"\?<\w+>"):
            raise PatternError(f"the group ({self.reader.rest(4)}… is not supported")
        elif self.reader.sees("*"):
            raise PatternError("callouts are not supported")
        else:
            inside = self.alternatives()
        if not self.reader.takes(")"):
            raise PatternError("a '(' that is not closed")
        if look == "?<=":  # `re` wants one length; alternatives may each have theirs
            return "(?:" + "|".join(f"(?<={text})" for text in inside) + ")"
        if look == "?<!":
            return "".join(f"(?<!{text})" for text in inside)
        return f"({opened or '?:'}" + "|".join(inside) + ")"

    def _quantified(self, atom: str) -> str:
        while quantifier := self.reader.matches(r"[*+?][+?]?|\{\d+(?:,\d*)?\}|\{,\d+\}\??"):
            text = quantifier[0].replace("{,", "{0,")
            if "," in text and self.reader.takes("?"):
                text += "?"
            atom = f"(?:{atom}){text}"
        return atom
