"""Bytes as printable letters, so that any bytes can be a token's text in a JSON file."""

from __future__ import annotations

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
# Printable bytes stand for themselves; the others are the letters from U+0100 on, in order.
_LETTER = {byte: chr(byte) for byte in _PRINTABLE} | {
    byte: chr(0x100 + index) for index, byte in enumerate(_OTHERS)
}
_BYTE = {letter: byte for byte, letter in _LETTER.items()}
_TABLE = str.maketrans({chr(byte): letter for byte, letter in _LETTER.items()})


def letters_of(text: str) -> str:
    """The bytes of a text's UTF-8 form, as letters."""
    return text.encode().decode("latin-1").translate(_TABLE)


def bytes_of(token: str) -> bytes:
    """The bytes that letters stand for; a text with other letters stands for itself."""
    try:
        return bytes(_BYTE[letter] for letter in token)
    except KeyError:
        return token.encode()
