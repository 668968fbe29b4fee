"""Messages between processes: what goes in comes out, whatever its structure and layout."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from ridgeline.data.transport import Channel

DTYPES = ["?", "u1", "i2", "f4", "f8", "c16", "U3", ml_dtypes.bfloat16]


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(draw(st.sampled_from(DTYPES)))
    view = draw(st.sampled_from(["whole", "reversed", "fortran", "transposed"]))
    if view == "reversed" and shape:
        return array[::-1]
    return {"fortran": np.asfortranarray(array), "transposed": array.T}.get(view, array)


VALUES = st.recursive(
    st.one_of(arrays(), st.text(max_size=5), st.integers(), st.none(), st.binary(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


def ends() -> tuple[Channel, Channel]:
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Channel(one), Channel(two)


@settings(deadline=None, max_examples=60)
@given(VALUES, st.booleans())
def test_round_trip(value: Any, copy: bool) -> None:
    one, two = ends()
    one.send(b"t", 7, value)
    kind, number, got = two.receive(copy)
    assert (kind, number) == (b"t", 7) and same(value, got)
    one.close()
    with pytest.raises(EOFError):
        two.receive()
    two.close()


def test_tensors_travel_and_what_arrives_is_writeable() -> None:
    one, two = ends()
    before = len(os.listdir("/proc/self/fd"))
    for copy in (False, True):
        one.send(b"t", -1, (rl.arange(6).reshape(2, 3), np.zeros(5), np.zeros(5)))
        tensor, first, second = two.receive(copy)[2]
        assert isinstance(tensor, rl.Tensor) and tensor.tolist() == [[0, 1, 2], [3, 4, 5]]
        first[:] = 1
        assert second.sum() == 0
        del first, second
    assert len(os.listdir("/proc/self/fd")) == before, "a descriptor was left open"
    one.close()
    two.close()


def test_many_pieces_and_a_large_one() -> None:
    one, two = ends()
    pieces = [np.full(3, number) for number in range(1500)]  # more than one system call writes
    large = np.arange(3_000_000)
    with ThreadPoolExecutor(1) as reader:  # where sockets carry the bytes, a sender waits for one
        arrived = reader.submit(two.receive)
        one.send(b"t", 0, pieces)
        assert same(arrived.result()[2], pieces)
        arrived = reader.submit(two.receive, copy=True)
        one.send(b"t", 0, large)
        assert np.array_equal(arrived.result()[2], large)
    one.close()
    two.close()
