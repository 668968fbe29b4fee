"""What is no part of an array, and what is checked of parts; what they compute is three ways."""

import numpy as np
import pytest

from ridgeline import simt
from ridgeline.simt import i32, inout, threadIdx
from ridgeline.simt.frontend.problems import KernelLanguageError


@pytest.mark.parametrize(
    "body, message",
    [
        ("    b = a[-2:]", "no place"),
        ("    b = a[::-1]", "no place"),
        ("    b = a[::n]", "known when it is compiled"),
        ("    b = a[1.5:]", "no place"),
        ("    b = a[1:]\n    b.put(0, 1)", "has no put"),
        ("    b = a[1:]\n    b[0, 0] = 1", "is indexed by 2"),
        ("    b = a[1:]\n    b = 3", "do not change"),
        ("    b = a[1:]\n    b = c[1:]", "do not change"),
        ("    a[1:] = 3", "no element"),
        ("    a[0] = a[1:]", "a part of a is no number"),
        ("    b = (1, 2)\n    b = (1, 2, 3)", "a tuple"),
        ("    if n > 3:\n        b = a[1:]\n    b[0] = 1", "may have no value"),
    ],
)
def test_what_is_no_part(body: str, message: str) -> None:
    text = f"def k(a: inout[i32['n']], c: inout[i32['m']], n: i32):\n{body}"
    with pytest.raises(KernelLanguageError) as caught:
        simt.kernel(text)
    assert message in caught.value.message
    assert caught.value.place.line >= 2


def test_arrays_are_returned_for_certain_alone() -> None:
    def either(x, y, n):
        if n > 3:
            return x
        return y

    chosen = simt.device(either)

    def kernel(a: inout[i32["n"]], b: inout[i32["n"]], n: i32):
        chosen(a, b, n)[0] = 1

    with pytest.raises(KernelLanguageError, match="on some ways and not on others"):
        simt.kernel(kernel)

    def known(a: inout[i32["n"]], b: inout[i32["n"]]):
        chosen(a, b, 4)[threadIdx.x] = 1

    found = simt.kernel(known).simulate(1, 2, np.zeros(2, np.int32), np.zeros(2, np.int32))
    assert found.outputs["a"].tolist() == [1, 1]
    assert found.outputs["b"].tolist() == [0, 0]


def test_bounds_are_those_of_the_array() -> None:
    def past(a: inout[i32["n"]]):
        a[4:][threadIdx.x] = 1

    found = simt.kernel(past).simulate(1, 8, np.zeros(10, np.int32))
    assert [finding.kind for finding in found.errors] == ["out of bounds"]
    assert "a[10]" in found.errors[0].message
