"""A file `tokenizer.json`, as published beside models: its parts in the order a text meets them.

A text goes through added tokens, normalizer, added tokens again, pre-tokenizer, model and
post-processor; tokens come back through the decoder. Each is a file of this folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ridgeline.data.tokenizers.added import AddedTokens
from ridgeline.data.tokenizers.bpe import BytePairs
from ridgeline.data.tokenizers.decoders import Decoder, decoder
from ridgeline.data.tokenizers.fields import Fields, make
from ridgeline.data.tokenizers.lengths import Padding, Truncation
from ridgeline.data.tokenizers.model import TokenModel
from ridgeline.data.tokenizers.normalizers import (
    Normalizer,
    NormalizersInOrder,
    TextAtStart,
    normalizer,
)
from ridgeline.data.tokenizers.plain import Tokens
from ridgeline.data.tokenizers.pretokenizers import PreTokenizer, pre_tokenizer
from ridgeline.data.tokenizers.processors import PLAIN, TokenTemplate, post_processor
from ridgeline.data.tokenizers.splitting import Cuts
from ridgeline.data.tokenizers.unigram import Unigram
from ridgeline.data.tokenizers.words import WordLevel, WordPiece
from ridgeline.errors import (
    BadValueError,
    InputFileError,
    MissingFileError,
    path_of,
    unreadable,
)
from ridgeline.interop.model_folders import folder_of
from ridgeline.tensors.tensor import Tensor, tensor

_MODELS: dict[str, Callable[[Fields], TokenModel]] = {
    "BPE": BytePairs.read,
    "Unigram": Unigram.read,
    "WordLevel": WordLevel.read,
    "WordPiece": WordPiece.read,
}
_PADDING = ("[PAD]", "<pad>", "<|pad|>", "<|endoftext|>", "</s>")


@dataclass(frozen=True)
class _Parts:
    """What a file describes."""

    model: TokenModel
    added: AddedTokens
    normalize: Normalizer
    pre_tokenize: PreTokenizer
    template: TokenTemplate
    truncate: Truncation | None
    pad: Padding | None
    decode: Decoder | None


class FileTokenizer:
    """The tokenizer of a `tokenizer.json`, or of the folder or downloaded model that has one.

    All four kinds of models are read: byte pairs, WordPiece, Unigram and whole words. A part that
    is not supported is refused by its name when the file is opened.
    """

    def __init__(self, path: str | Path) -> None:
        given = path_of(path, "FileTokenizer")
        named = not given.is_file() and given.suffix != ".json"
        file = folder_of(given, "FileTokenizer") / "tokenizer.json" if named else given
        if not file.is_file():
            raise MissingFileError(f"there is no tokenizer file {file}")
        try:
            values = json.loads(file.read_text(encoding="utf-8"), parse_constant=_no_number)
            self._parts = _parts(values)
        except RecursionError as error:
            raise InputFileError(f"cannot read the tokenizer {file}: nested too deep") from error
        except InputFileError as error:
            raise InputFileError(f"cannot read the tokenizer {file}: {error.message}") from error
        except (OSError, ValueError) as error:
            raise unreadable(f"the tokenizer {file}", error) from error

    def __repr__(self) -> str:
        model = type(self._parts.model).__name__
        return f"FileTokenizer({model}, vocab_size={self.vocab_size})"

    @property
    def vocab_size(self) -> int:
        """Tokens are below this number; added ones are counted."""
        return max([*self._parts.model.tokens, *self._parts.added.by_number], default=-1) + 1

    def token_to_id(self, token: str) -> int | None:
        """The number of a token, or None: `token_to_id("<|endoftext|>")`."""
        for number, added in self._parts.added.by_number.items():
            if added.content == token:
                return number
        return self._parts.model.vocabulary.get(token)

    def id_to_token(self, token: int) -> str | None:
        """The text of a token as the file has it, or None."""
        added = self._parts.added.by_number.get(token)
        return added.content if added else self._parts.model.tokens.get(token)

    def encode(self, text: str, pair: str | None = None, add_special_tokens: bool = True) -> Tokens:
        """The tokens of a text, or of two, with those that the tokenizer puts around them."""
        pad = self._parts.pad
        ids = self._ids([t for t in (text, pair) if t is not None], add_special_tokens)
        return np.asarray(pad(ids) if pad else ids, np.int64)

    def batch(
        self, texts: Iterable[str], pad: int | None = None, add_special_tokens: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Texts as tokens [n, length] and a mask of the same shape, 1 at tokens that count.

        Shorter texts are filled up as the file says, else behind; with the token `pad`, or with the
        one that the file has for it.
        """
        if isinstance(texts, str):
            raise BadValueError("batch takes several texts", help="write tokenizer.batch([text])")
        rows = [self._ids([text], add_special_tokens) for text in texts]
        filling = self._parts.pad or Padding(0, 0, "Right", self._pad_token())
        shortest = max([filling.shortest, *map(len, rows)])
        filling = replace(filling, shortest=shortest, token=filling.token if pad is None else pad)
        counted = replace(filling, token=0)
        tokens = np.asarray([filling(row) for row in rows], np.int64)
        mask = np.asarray([counted([1] * len(row)) for row in rows], np.int64)
        shape = (len(rows), -1) if rows and shortest else (len(rows), 0)
        return tensor(tokens.reshape(shape)), tensor(mask.reshape(shape))

    def _ids(self, given: list[str], special: bool) -> list[int]:
        """The tokens of a text or of two, before any are put beside them."""
        parts = self._parts
        texts = [self._tokens(text) for text in given]
        if parts.truncate:
            texts = parts.truncate(texts, parts.template.added(len(texts)) * special)
        return [token for part in parts.template(texts, special) for token in part]

    def _pad_token(self) -> int:
        named = (self.token_to_id(name) for name in _PADDING)
        return next((number for number in named if number is not None), 0)

    def decode(self, tokens: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of some tokens; numbers that no token has are passed over."""
        parts = self._parts
        texts: list[str] = []
        for number in map(int, tokens):
            added = parts.added.by_number.get(number)
            if added and added.special and skip_special_tokens:
                continue
            token = parts.added.texts[number] if added else parts.model.tokens.get(number)
            if token is not None:
                texts.append(token)
        return "".join(parts.decode(texts)) if parts.decode else " ".join(texts)

    def _tokens(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise BadValueError(f"a tokenizer takes a text, not {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadValueError(f"the text has half a character at {error.start}") from error
        parts = self._parts
        found: list[int] = []
        for number, start, stop in parts.added.as_given.split(text):
            if number is not None:
                found.append(number)
            else:
                found += self._between(TextAtStart(text[start:stop], at_start=start == 0))
        return found

    def _between(self, text: TextAtStart) -> list[int]:
        parts = self._parts
        given = parts.normalize(text)
        found: list[int] = []
        for number, start, stop in parts.added.normalized.split(given.text):
            if number is not None:
                found.append(number)
            else:
                part = given.text[start:stop]
                words = parts.pre_tokenize(part, given.at_start and start == 0).texts
                found += parts.model.encode(words)
        return found


def _parts(values: Any) -> _Parts:
    fields = Fields("the file", values if isinstance(values, dict) else {})
    if (version := fields.text("version", "1.0")) != "1.0":
        raise fields.fail(f"version {version!r:.20} is not supported")
    model = _model(fields.inner("model"))
    normalize: Normalizer = NormalizersInOrder(())
    if fields.has("normalizer"):
        normalize = normalizer(fields.inner("normalizer"))
    words: PreTokenizer = _one_word
    if fields.has("pre_tokenizer"):
        words = pre_tokenizer(fields.inner("pre_tokenizer"))
    return _Parts(
        model,
        AddedTokens.read(fields, model, lambda text: normalize(TextAtStart(text, True)).text),
        normalize,
        words,
        post_processor(fields.inner("post_processor")) if fields.has("post_processor") else PLAIN,
        Truncation.read(fields.inner("truncation")) if fields.has("truncation") else None,
        Padding.read(fields.inner("padding")) if fields.has("padding") else None,
        decoder(fields.inner("decoder")) if fields.has("decoder") else None,
    )


def _model(fields: Fields) -> TokenModel:
    if fields.has("type"):
        return make(_MODELS, fields, "model")
    # Files of old leave the type out; what the vocabulary is made of tells the models apart.
    if fields.has("merges"):
        return BytePairs.read(fields)
    if isinstance(fields.values.get("vocab"), list):
        return Unigram.read(fields)
    return (WordPiece if fields.has("continuing_subword_prefix") else WordLevel).read(fields)


def _one_word(text: str, at_start: bool) -> Cuts:
    return Cuts([text], at_start)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")
