"""Tokenizers of every kind, trained on a small text by the package that defines the format."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any

import tokenizers as package
from tokenizers import (
    AddedToken,
    Regex,
    decoders as D,
    models,
    normalizers as N,
    pre_tokenizers as P,
    processors as X,
    trainers,
)

TEXT = [
    "The quick brown fox jumps over the lazy dog; it doesn't mind, and we'll see 1,234 more.",
    "Größe und naïve Fälle: 3.14159, 2²=4, ½, ①② and ﬁne.",
    "終わりの日本語テキスト 한국어 텍스트 Привет, мир! ΣΑΣ",
    "for index in range(10):\n    print(f'{index}')\t# tabs and   runs of spaces",
] * 3
NASTY = [
    "a", "b", "Z", "the", "The", "don't", "we'LL", " ", "  ", "   ", "\n", "\r\n", "\t", "\u3000",
    "\u00a0", "\u200b", "\u200d", "\x00", "\x01", "\x7f", "\x1c", "\x85", ".", ",", "!", "#", "$",
    "_", "-", "1", "23", "456", "½", "²", "①", "٣", "ﬁ", "é", "e\u0301", "a\u0308\u0323", "\u0301",
    "Å", "İ", "ı", "Σ", "ß", "ſ", "日", "本", "ー", "あ", "ｱ", "한", "\u1112\u1161", "🙂", "👨‍👩‍👧",
    "🇩🇪", "▁", "▁a", "##", "</w>", "<0x41>", "<s>", "</s>", "<unk>", "<mask>", "[CLS]", "foo",
    "Foo", "food", "�", "نص", "हिन्दी", "ไทย", "\u0600", "c\u0327",
]  # fmt: skip
SPECIAL = ["<s>", "</s>", "<unk>", "<mask>"]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def trained(model: Any, trainer: Any, **parts: Any) -> Any:
    made = package.Tokenizer(model)
    for name, part in parts.items():
        setattr(made, name, part)
    made.train_from_iterator(TEXT, trainer)
    return made


def byte_level() -> Any:
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=P.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    made = trained(
        models.BPE(), trainer, pre_tokenizer=P.ByteLevel(), decoder=D.ByteLevel(),
        post_processor=X.RobertaProcessing(("</s>", 1), ("<s>", 0)),
    )  # fmt: skip
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True)])
    made.add_tokens([AddedToken("foo", single_word=True), AddedToken("[CLS]", rstrip=True)])
    return made


def split_bytes() -> Any:
    made = byte_level()
    split = P.Split(Regex(LLAMA3), "isolated")
    made.pre_tokenizer = P.Sequence([split, P.ByteLevel(add_prefix_space=False, use_regex=False)])
    template = X.TemplateProcessing("<s> $A", "<s> $A <s> $B:1", [("<s>", 0)])
    made.post_processor = X.Sequence([X.ByteLevel(trim_offsets=False), template])
    values = json.loads(made.to_str())
    values["model"]["ignore_merges"] = True
    values["model"]["merges"] = [" ".join(pair) for pair in values["model"]["merges"]]
    return package.Tokenizer.from_str(json.dumps(values))


def byte_fallback() -> Any:
    coded = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=450, special_tokens=SPECIAL + coded, limit_alphabet=40, show_progress=False
    )
    made = trained(
        models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True), trainer,
        pre_tokenizer=P.Metaspace(),
        normalizer=N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]),
        decoder=D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)]),
    )  # fmt: skip
    made.pre_tokenizer = None
    return made


def suffixed() -> Any:
    trainer = trainers.BpeTrainer(
        vocab_size=200, special_tokens=SPECIAL, end_of_word_suffix="</w>", limit_alphabet=30,
        show_progress=False,
    )  # fmt: skip
    lowercase = N.Sequence([N.NFC(), N.Replace(Regex(r"\s+"), " "), N.Lowercase()])
    return trained(
        models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"), trainer, normalizer=lowercase,
        pre_tokenizer=P.WhitespaceSplit(), decoder=D.BPEDecoder(),
    )  # fmt: skip


def word_piece() -> Any:
    trainer = trainers.WordPieceTrainer(
        vocab_size=250, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    return trained(
        models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20), trainer,
        normalizer=N.BertNormalizer(), pre_tokenizer=P.BertPreTokenizer(),
        decoder=D.WordPiece(), post_processor=X.BertProcessing(("[SEP]", 2), ("[CLS]", 1)),
    )  # fmt: skip


def unigram(scheme: str = "first") -> Any:
    trainer = trainers.UnigramTrainer(
        vocab_size=220, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    return trained(
        models.Unigram(), trainer, normalizer=N.Sequence([N.NFKC(), N.Strip()]),
        pre_tokenizer=P.Metaspace(prepend_scheme=scheme),
        decoder=D.Metaspace(prepend_scheme=scheme),
    )  # fmt: skip


def mapped_unigram() -> Any:
    made = unigram("always")
    table = {"ﬁ": "fi", "é": "e", "\t": " ", "Å": "Å", "e\u0301": "é", "\u200b": "", "①": "1"}
    made.normalizer = N.Precompiled(chars_map(table))
    return made


def words() -> Any:
    trainer = trainers.WordLevelTrainer(vocab_size=150, special_tokens=SPECIAL, show_progress=False)
    cut = [P.Whitespace(), P.Digits(individual_digits=True), P.Punctuation("merged_with_previous")]
    made = trained(
        models.WordLevel(unk_token="<unk>"), trainer, pre_tokenizer=P.Sequence(cut),
        normalizer=N.Sequence([N.NFD(), N.StripAccents(), N.Lowercase()]),
    )  # fmt: skip
    made.add_tokens([AddedToken("Foo", normalized=True)])
    made.enable_truncation(12)
    made.enable_padding(length=5, pad_id=2)
    return made


SAMPLES: dict[str, Callable[[], Any]] = {
    made.__name__: made
    for made in (
        byte_level, split_bytes, byte_fallback, suffixed,
        word_piece, unigram, mapped_unigram, words,
    )
}  # fmt: skip


def chars_map(table: dict[str, str]) -> bytes:
    """SentencePiece's table for some replacements: a double-array trie, then texts."""
    texts, starts = b"", {}
    for key, value in table.items():
        starts[key.encode()] = len(texts)
        texts += value.encode() + b"\0"
    units = {0: 0}

    def place(at: int, prefix: bytes) -> None:
        """Find room for the children of a node, and put them there."""
        labels = {key[len(prefix)] for key in starts if key.startswith(prefix) and key != prefix}
        slots = labels | ({0} if prefix in starts else set())
        base = next(b for b in range(1, 1 << 16) if all(b ^ s not in units for s in slots))
        units[at] |= (at ^ base) << 10 | (prefix in starts) << 8
        for label in labels:
            units[base ^ label] = label
        if prefix in starts:
            units[base] = 1 << 31 | starts[prefix]
        for label in labels:
            place(base ^ label, prefix + bytes([label]))

    place(0, b"")
    trie = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(max(units) + 257))
    return struct.pack("<I", len(trie)) + trie + texts


def with_chars_map(values: dict[str, Any], blob: bytes) -> dict[str, Any]:
    """A file's content with another table of characters."""
    encoded = base64.b64encode(blob).decode()
    return values | {"normalizer": {"type": "Precompiled", "precompiled_charsmap": encoded}}
