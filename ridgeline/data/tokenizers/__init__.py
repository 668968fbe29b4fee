"""Tokenizers: text as numbers and back. Bytes, characters, or a file `tokenizer.json`."""

from ridgeline.data.tokenizers.file import FileTokenizer
from ridgeline.data.tokenizers.plain import ByteTokenizer, CharTokenizer, Tokenizer, Tokens

__all__ = ["ByteTokenizer", "CharTokenizer", "FileTokenizer", "Tokenizer", "Tokens"]
