"""Whether dictionaries have changed is known without looking into them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.runtime.cpu import dict_versions
from ridgeline.runtime.cpu.dict_versions import DictVersions
from ridgeline.runtime.cpu.executor import unchanged
from ridgeline.tracing.reads import holds


@pytest.fixture
def same() -> Any:
    """The native comparison."""
    found = unchanged()
    if found is None:
        pytest.skip("this Python does not count the changes of dictionaries")
    return found


def test_a_change_of_any_dictionary_is_seen(same: Any) -> None:
    dicts: list[dict[Any, Any]] = [{n: n} for n in range(20)]
    versions = DictVersions(dicts)
    assert not same(versions.address)  # nobody has looked yet
    for number, found in enumerate(dicts):
        versions.expect(versions.now())
        assert same(versions.address)
        assert found[number] == number and same(versions.address)
        found[number] = None
        assert not same(versions.address)


def test_a_change_after_the_versions_were_read_is_seen(same: Any) -> None:
    found = {"a": 1}
    versions = DictVersions([found])
    before = versions.now()
    found["a"] = 2
    versions.expect(before)
    assert not same(versions.address)


def test_no_version_is_taken_from_a_python_that_counts_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dict_versions, "_OFFSET", 16)  # the number of keys
    assert not dict_versions.are_counted()


class Scale:
    """Numbers that a function reads from an object."""

    def __init__(self) -> None:
        self.a, self.b, self.c, self.d, self.e, self.calls = 1.0, 2.0, 3.0, 4.0, 5.0, 0


@pytest.mark.parametrize("counted", [True, False])
def test_keys_are_compared_where_a_dictionary_changed(
    counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not counted:
        monkeypatch.setattr(holds, "unchanged", lambda: None)
    scale = Scale()

    @rl.jit
    def weighted(x: rl.Tensor) -> rl.Tensor:
        return x * scale.a + x * scale.b + x * scale.c + x * scale.d + x * scale.e

    x = rl.tensor(np.ones(3, np.float32))
    assert weighted(x).tolist() == [15.0] * 3
    for number in range(5):
        scale.calls += 1  # which the function does not read
        assert weighted(x).tolist() == [15.0] * 3, number
    assert weighted.traces == 1
    changes: list[Any] = [
        lambda: setattr(scale, "a", 2.0), lambda: vars(scale).update(b=4.0),
        lambda: object.__setattr__(scale, "c", 6.0), lambda: vars(scale).__setitem__("d", 8.0),
    ]  # fmt: skip
    for should, change in zip((16.0, 18.0, 21.0, 25.0), changes):
        change()
        assert [weighted(x).tolist() for _ in range(3)] == [[should] * 3] * 3
    scale.a = 2  # equal, and of another type
    assert weighted(x).tolist() == [25.0] * 3
