"""Text as windows of tokens, each with the window one token later: what language models learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ridgeline.data.dataset import Dataset
from ridgeline.data.tokenizers import CharTokenizer, Tokenizer, Tokens
from ridgeline.errors import BadValueError, InputFileError, unreadable


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file, or of all .txt files in a folder, by name."""
    path = Path(path)
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    pieces = []
    for file in files:
        try:
            pieces.append(file.read_bytes().decode())
        except OSError as error:
            raise unreadable(file, error) from error
        except UnicodeDecodeError as error:
            raise InputFileError(
                f"{file} is not UTF-8 text: byte {error.start}", help="convert it to UTF-8"
            ) from error
    text = "\n".join(pieces)
    if not text:
        raise BadValueError(f"there is no text in {path}")
    return text


class TextDataset(Dataset[tuple[Tokens, Tokens]]):
    """Windows of `length` tokens every `stride` tokens: (tokens, the tokens that follow them)."""

    def __init__(
        self,
        text: str | Tokens,
        length: int,
        tokenizer: Tokenizer | None = None,
        stride: int | None = None,
    ) -> None:
        if isinstance(text, str):
            tokenizer = CharTokenizer(text) if tokenizer is None else tokenizer
            text = tokenizer.encode(text)
        self.tokens, self.length, self.tokenizer = text, length, tokenizer
        self.stride = length if stride is None else stride
        if length < 1 or self.stride < 1:
            raise BadValueError(f"length and stride must be above 0, not {length}, {stride}")
        if len(self.tokens) <= length:
            raise BadValueError(
                f"a text of {len(self.tokens)} tokens is too short for windows of {length}",
                help="give more text, or a smaller length",
            )

    def __len__(self) -> int:
        return (len(self.tokens) - self.length - 1) // self.stride + 1

    def __getitem__(self, index: int) -> tuple[Tokens, Tokens]:
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} is out of range for {len(self)} windows")
        window = self.tokens[index * self.stride : index * self.stride + self.length + 1]
        return window[:-1], window[1:]

    def batch(self, indices: NDArray[np.int64]) -> tuple[Tokens, Tokens]:
        """The windows at `indices`."""
        positions = indices[:, None] * self.stride + np.arange(self.length + 1)
        windows = self.tokens[positions]
        return windows[:, :-1], windows[:, 1:]
