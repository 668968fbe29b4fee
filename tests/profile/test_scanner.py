"""The streaming scanner against `json.loads`, on whole, cut and damaged text."""

from __future__ import annotations

import contextlib
import io
import json

import pytest
from hypothesis import given, settings, strategies as st

from ridgeline.profile.trace import scanner as module
from ridgeline.profile.trace.errors import TraceFormatError
from ridgeline.profile.trace.scanner import Scanner

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
events = st.lists(st.dictionaries(st.text(max_size=5), values, max_size=4), max_size=6)
headers = st.dictionaries(
    st.text(max_size=6).filter(lambda k: k != "traceEvents"), values, max_size=3
)


@pytest.fixture(params=[1, 7, 1 << 20], ids=["1 byte", "7 bytes", "1 MiB"])
def chunk(request, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", request.param)
    return request.param


def scan(text: str | bytes) -> tuple[list[dict], Scanner]:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    scanner = Scanner(io.BytesIO(data))
    return list(scanner), scanner


@settings(max_examples=60)
@given(headers, events, st.sampled_from([None, 1]), st.sampled_from([1, 5, 64, 1 << 20]))
def test_agrees_with_json(header, found, indent, size):
    text = json.dumps({**header, "traceEvents": found, "after": 1}, indent=indent)
    before, module.CHUNK = module.CHUNK, size
    try:
        got, scanner = scan(text)
    finally:
        module.CHUNK = before
    assert got == found
    assert scanner.header == {**header, "after": 1}
    assert not scanner.truncated and not scanner.damaged_events


@settings(max_examples=60)
@given(events.filter(len), st.data())
def test_cut_anywhere_gives_a_prefix(found, data):
    text = json.dumps({"a": 1, "traceEvents": found})
    cut = data.draw(st.integers(text.index("[") + 1, len(text) - 1))
    got, scanner = scan(text[:cut])
    assert scanner.truncated
    assert got == found[: len(got)]


def test_bare_array(chunk):
    assert scan('[{"a": 1},\n {"b": 2}]')[0] == [{"a": 1}, {"b": 2}]


def test_a_damaged_event_is_skipped(chunk):
    good = {"ph": "X", "name": "é", "args": {"n": 1}}
    text = json.dumps(good)
    got, scanner = scan(
        f'{{"traceEvents": [{text}, {{"ph": "X", "name": "C:\\x"}}, {text}, {text}]}}'
    )
    assert got == [good, good, good]
    assert scanner.damaged_events == 1 and not scanner.truncated


def test_events_that_are_no_objects_are_counted():
    got, scanner = scan('{"traceEvents": [1, {"a": 2}, "x", null]}')
    assert got == [{"a": 2}] and scanner.damaged_events == 3


@pytest.mark.parametrize("nested", ["[" * 100_000, '{"a":' * 100_000])
def test_deep_nesting_does_not_crash(nested):
    got, scanner = scan('{"traceEvents": [{"a": 1}, {"deep": ' + nested)
    assert got == [{"a": 1}] and scanner.truncated


def test_huge_number_is_damage_not_a_crash():
    got, scanner = scan('{"traceEvents": [{"a": ' + "9" * 6000 + '}, {"ph": 1}, {"ph": 2}]}')
    assert got[-1] == {"ph": 2} and scanner.damaged_events >= 1


def test_invalid_utf8_is_replaced():
    got, _ = scan(b'{"traceEvents": [{"name": "\xff\xfe"}]}')
    assert got == [{"name": "\ufffd\ufffd"}]


@pytest.mark.parametrize(
    "text", ["", "   \n", "hello", "\x00\x01", "{]", '{"a" 1}', '{"a": tru, "b": 1}' + " " * 64]
)
def test_what_is_no_json_says_so(text):
    scanner = Scanner(io.BytesIO(text.encode()))
    try:
        assert list(scanner) == []
        assert scanner.truncated or scanner.header == {}
    except TraceFormatError as error:
        assert error.code == "RL0702"


@settings(max_examples=80)
@given(st.binary(max_size=200))
def test_any_bytes_end_well(data):
    scanner = Scanner(io.BytesIO(b'{"traceEvents": [' + data))
    with contextlib.suppress(TraceFormatError):
        list(scanner)
