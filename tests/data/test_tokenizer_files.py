"""Tokenizer files are read as the package that writes them reads them, token by token."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from ridgeline.data import FileTokenizer
from ridgeline.errors import BadValueError, InputFileError, MissingFileError
from tests.data.tokenizer_samples import NASTY, SAMPLES, chars_map, with_chars_map

TEXTS = st.lists(st.sampled_from(NASTY), max_size=12).map("".join)


@cache
def _sample(kind: str) -> Any:
    return SAMPLES[kind]()


@pytest.fixture(scope="module", params=sorted(SAMPLES))
def both(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Any, FileTokenizer]:
    file = tmp_path_factory.mktemp("made") / "tokenizer.json"
    theirs = _sample(request.param)
    theirs.save(str(file))
    return theirs, FileTokenizer(file)


@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_nasty_texts(both: tuple[Any, FileTokenizer], data: st.DataObject) -> None:
    theirs, ours = both
    text, pair, special = (data.draw(s) for s in (TEXTS, st.none() | TEXTS, st.booleans()))
    expected = theirs.encode(text, pair, add_special_tokens=special).ids
    found = ours.encode(text, pair, add_special_tokens=special)
    assert found.tolist() == expected
    for skip in (True, False):
        assert ours.decode(found, skip) == theirs.decode(expected, skip_special_tokens=skip)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_tokens_decode(both: tuple[Any, FileTokenizer], data: st.DataObject) -> None:
    theirs, ours = both
    tokens = data.draw(st.lists(st.integers(0, theirs.get_vocab_size() + 2), max_size=10))
    skip = data.draw(st.booleans())
    assert ours.decode(tokens, skip) == theirs.decode(tokens, skip_special_tokens=skip)


def test_the_vocabulary(both: tuple[Any, FileTokenizer]) -> None:
    theirs, ours = both
    vocabulary = theirs.get_vocab()
    assert ours.vocab_size == len(vocabulary) == theirs.get_vocab_size()
    assert all(ours.token_to_id(token) == number for token, number in vocabulary.items())
    assert all(ours.id_to_token(number) == token for token, number in vocabulary.items())
    assert ours.token_to_id("no such token") is None and ours.id_to_token(10**6) is None


PATTERNS = [
    r"\s+", r"\w+|[^\w\s]+", r"[^\s\p{L}\p{N}]+", r"\p{Lu}\p{Ll}*", r"[a-z&&[^aeiou]]+", r"\d{1,3}",
    r"(?=\d)", r"(?<=a|ab)b", r"(?<!\d)\d", r"\p{^L}+", r"\P{Han}+", r"[[:punct:]]+", r"\h{2}",
    r"a*?b", r"(?>a+)b?", r"a++", r"\bthe\b", r"^.|.$", r"(?m:.)", r"(?i)THE|FOO",
    r"[\x{41}-\u0044]", r"\R", r"[\p{M}\p{S}]", "▁", r"(?<name>a|b)+", r"\\|\.", r"a{,2}",
    r"[^\r\n]", r"",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
@given(text=TEXTS)
@settings(max_examples=25, deadline=None)
def test_patterns_split_and_replace(pattern: str, text: str) -> None:
    from ridgeline.data.tokenizers.fields import Fields
    from ridgeline.data.tokenizers.normalizers import TextAtStart, normalizer
    from ridgeline.data.tokenizers.pretokenizers import pre_tokenizer

    behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    regex = {"pattern": {"Regex": pattern}}
    for behavior in behaviors:
        snake = "".join("_" * c.isupper() + c.lower() for c in behavior).strip("_")
        for invert in (False, True):
            cut = {"type": "Split", "behavior": behavior, "invert": invert, **regex}
            theirs = pre_tokenizers.Split(Regex(pattern), snake, invert)
            expected = [word for word, _ in theirs.pre_tokenize_str(text)]
            assert pre_tokenizer(Fields("x", cut))(text, True).texts == expected
    replaced = {"type": "Replace", "content": "_", **regex}
    expected = normalizers.Replace(Regex(pattern), "_").normalize_str(text)
    assert normalizer(Fields("x", replaced))(TextAtStart(text, True)).text == expected


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(a)\1", "reference"), (r"\X", "grapheme"), (r"\p{Greek}", "Greek"), ("(", "not closed"),
        ("a)", "too many"), (r"[a", "ends too early"), ("*", "repeat"), (r"(?x) a", "flag x"),
        (r"(?~a)", "group"), (r"\p", "name"), (r"[b-a]", "range"), (r"\xD800", ""), ("\\", "ends"),
        (r"(?<=a+)b", "fixed-width"), (r"[[:alpha:]]", "alpha"), (r"\x{110000}", "character"),
    ],
)  # fmt: skip
def test_patterns_that_are_refused(pattern: str, reason: str) -> None:
    from ridgeline.data.tokenizers.patterns import compiled
    from ridgeline.data.tokenizers.reader import PatternError

    if reason:
        with pytest.raises(PatternError, match=reason):
            compiled(pattern)
    else:
        compiled(pattern)


def _content(kind: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_sample(kind).to_str())
    return content


def _refused(folder: Path, content: object) -> str:
    file = folder / "tokenizer.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(InputFileError, match="cannot read the tokenizer") as caught:
        FileTokenizer(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_files_that_are_wrong(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        FileTokenizer(tmp_path / "none")
    words, pairs = _content("words"), _content("byte_level")
    for content in ("", "{", "[]", "{}", "NaN", "\x00"):
        _refused(tmp_path, content)
    assert "nested" in _refused(tmp_path, '{"model": ' + '{"a": ' * 5000 + "1" + "}" * 5001)
    nested: Any = {"type": "Lowercase"}
    for _ in range(200):
        nested = {"type": "Sequence", "normalizers": [nested]}
    assert "nested" in _refused(tmp_path, words | {"normalizer": nested})
    cases: list[tuple[dict[str, Any], str]] = [
        (words | {"version": "2.0"}, "version"),
        (words | {"normalizer": {"type": "Nmt"}}, "the normalizer 'Nmt' is not supported"),
        (words | {"pre_tokenizer": {"type": "UnicodeScripts"}}, "'UnicodeScripts'"),
        (words | {"decoder": {"type": "New"}}, "the decoder 'New' is not supported"),
        (words | {"post_processor": {"type": "New"}}, "the post-processor 'New'"),
        (words | {"model": {"type": "New"}}, "the model 'New' is not supported"),
        (words | {"model": {"type": "WordLevel", "vocab": {"a": -1}}}, "number of token 'a'"),
        (words | {"model": {"type": "WordLevel", "vocab": []}}, "'vocab' must be an object"),
        (words | {"model": {"type": "Unigram", "vocab": [["a"]]}}, "no token with its score"),
        (words | {"model": {"type": "Unigram", "vocab": [["a", 0]], "unk_id": 7}}, "'unk_id'"),
        (words | {"added_tokens": [3]}, "added token 0 must be an object"),
        (words | {"added_tokens": [{"content": 3}]}, "'content'"),
        (pairs | {"model": pairs["model"] | {"merges": [["a", "☃"]]}}, "merge 0"),
        (pairs | {"model": pairs["model"] | {"merges": ["a"]}}, "merge 0"),
        (words | {"padding": {"strategy": {"Fixed": 2**31}}}, "more than a million"),
        (with_chars_map(words, b""), "damaged"),
        (with_chars_map(words, b"\xff\xff\xff\xff"), "damaged"),
        (words | {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "%"}}, "damaged"),
    ]
    for content, reason in cases:
        assert reason in _refused(tmp_path, content)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_files_that_are_damaged_somewhere(data: st.DataObject, tmp_path_factory: Any) -> None:
    """One value anywhere in a file is replaced: the file is read, or refused in one line."""
    content = _content(data.draw(st.sampled_from(sorted(SAMPLES))))
    node: Any = content
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys[:20]))
        if not isinstance(node[key], dict | list) or not node[key] or data.draw(st.booleans()):
            break
        node = node[key]
    node[key] = data.draw(
        st.sampled_from([None, -1, 2**40, 1.5, "", "x", [], {}, [[]], True, {"type": "x"}])
    )
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "tokenizer.json").write_text(json.dumps(content))
    try:
        made = FileTokenizer(folder)
        made.decode(made.encode("a ﬁne <mask> text"))
    except (InputFileError, BadValueError) as error:
        assert "\n" not in str(error)


def test_a_damaged_table_of_characters(tmp_path: Path) -> None:
    whole = chars_map({"ﬁ": "fi"})
    for blob in (whole[:4] + b"\xff" * (len(whole) - 7) + whole[-3:], whole[:-1]):
        content = with_chars_map(_content("unigram"), blob)
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        with pytest.raises(InputFileError, match="damaged"):
            FileTokenizer(tmp_path).encode("ﬁne")


def test_what_cannot_be_encoded(tmp_path: Path) -> None:
    made = Tokenizer(models.WordLevel({"a": 0}, "[UNK]"))
    made.save(str(tmp_path / "tokenizer.json"))
    ours = FileTokenizer(tmp_path)
    assert ours.encode("a").tolist() == [0] and ours.encode("").tolist() == []
    with pytest.raises(BadValueError, match="neither 'b' nor"):
        ours.encode("b")
    with pytest.raises(BadValueError, match="half a character at 1"):
        ours.encode("a\ud800")


def test_a_text_without_a_space_is_not_quadratic(tmp_path: Path) -> None:
    theirs = _sample("byte_fallback")
    theirs.save(str(tmp_path / "tokenizer.json"))
    text = "thequickbrownfox" * 2000
    assert FileTokenizer(tmp_path).encode(text).tolist() == theirs.encode(text).ids


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("padding", [None, {}, {"length": 9}, {"pad_to_multiple_of": 4}])
def test_batches_are_filled_up_as_the_file_says(
    padding: dict[str, int] | None, side: str, tmp_path: Path
) -> None:
    words = {"[UNK]": 0, "[PAD]": 1, "a": 2, "b": 3}
    theirs = Tokenizer(models.WordLevel(words, "[UNK]"))
    theirs.pre_tokenizer = pre_tokenizers.Whitespace()
    if padding is not None:
        theirs.enable_padding(direction=side, pad_id=3, **padding)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = FileTokenizer(tmp_path)
    assert repr(ours) == "FileTokenizer(WordLevel, vocab_size=4)"
    if padding is None:
        theirs.enable_padding(pad_id=1)  # the token [PAD], behind
    texts = ["a b a", "c", "", "b a b a b"]
    wanted = theirs.encode_batch(texts)
    tokens, mask = ours.batch(texts)
    assert tokens.tolist() == [one.ids for one in wanted]
    assert mask.tolist() == [one.attention_mask for one in wanted]
    assert ours.batch(["a", "a b"], pad=0)[0].min().item() == 0
    assert ours.batch([])[0].shape == (0, 0)
    with pytest.raises(BadValueError, match="several texts"):
        ours.batch("a b")
