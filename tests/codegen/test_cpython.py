"""Functions as machine code over CPython's objects give what the same functions give in Python."""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import pytest

from ridgeline.codegen.cpython.compiled import compiled
from ridgeline.codegen.cpython.expressions import Untranslatable
from ridgeline.codegen.cpython.layout import LayoutError, check_layout, offsets
from ridgeline.codegen.cpython.translate import FunctionSet

BAILED = object()
pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(autouse=True)
def known_python() -> None:
    try:
        check_layout()
    except LayoutError as error:
        pytest.skip(str(error))


class Box:
    __slots__ = ("count", "inner", "items", "table", "trial")
    count: int
    inner: Box | None
    items: list[int]
    table: dict[int, Any]
    trial: Any

    def __init__(self, count: int, inner: Box | None) -> None:
        self.count, self.inner = count, inner
        self.items, self.table = [], {}

    def deep(self) -> int:
        depth = 0
        each = self
        while each.inner is not None:
            depth += 1
            each = each.inner
        return depth


@dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: Any


def form(function: Any, broken: Any = None) -> Any:
    def failed(*call: Any) -> Any:
        raise MemoryError("half")

    module = FunctionSet((Box, Pair), (), (left,), ("trial",), {}, {})
    made = compiled(module, {function.__name__: function}, BAILED, broken or failed)
    return made[function.__name__]


def left(box: Box) -> int:
    return box.count


def sums(box: Box, values: tuple[int, ...]) -> Any:
    total = box.count
    for value in values:
        if value is None:
            continue
        if value > 100:
            break
        total += value
    return total - 1, total >> 1, -1 < total <= 3


def finds(box: Box, values: tuple[Any, ...]) -> Any:
    found = box.table.get(values[0])
    if found is None or not box.items:
        return [box.items[1] if len(box.items) > 1 else None]
    return found == values[1], found is values[1], values[1:]


def makes(box: Box, values: tuple[Any, ...]) -> Any:
    made = Box(box.count, box)
    made.items.append(values[0])
    made.table[3] = values
    return made


def equals(box: Box, values: tuple[Any, ...]) -> Any:
    return values[0] == values[1] or (box.deep() == 2 and values[0] != values[1])


def changes_and_bails(box: Box, values: tuple[Any, ...]) -> Any:
    box.count = 7
    return values[0] == values[1]


def tries_and_bails(box: Box, values: tuple[Any, ...]) -> Any:
    box.trial = values
    return left(box)


def boxes() -> list[Box]:
    plain, full = Box(3, None), Box(-2, Box(1, Box(0, None)))
    full.items, full.table = [4, 5], {1: "one", 2: (1, 2.5)}
    return [plain, full]


VALUES: tuple[tuple[Any, ...], ...] = (
    (1, 2), (1, "one"), (2, (1, 2.5)), (None, 200, 5), (0.5, 0.5), (Pair(1, "a"), Pair(1, "a")),
    (Pair(1, "a"), Pair(2, "a")), ("x", "y", 3), (True, False), ((1, (2,)), (1, (2,))),
)  # fmt: skip


@pytest.mark.parametrize("function", [sums, finds, makes, equals])
def test_compiled_functions_agree_with_python_or_bail_out(function: FunctionType) -> None:
    made = form(function)
    agreed = 0
    for values in VALUES:
        for box in boxes():
            found = made(box, values)
            if found is BAILED:
                continue
            agreed += 1
            wanted = function(box, values)
            if isinstance(wanted, Box):
                assert (found.count, found.inner, found.items, found.table) == (
                    wanted.count, wanted.inner, wanted.items, wanted.table,
                )  # fmt: skip
            else:
                assert found == wanted and type(found) is type(wanted)
    assert agreed >= 4


def test_wrong_arguments_bail_out() -> None:
    made = form(sums)
    huge = 1 << 80
    box = Box(1, None)
    for call in ((3, (1,)), (box, [1]), (box, ("a",)), (box, (huge,)), (None, ()), (box, 7)):
        assert made(*call) is BAILED
    assert made(box) is BAILED and made(box, (1,), 3) is BAILED
    del box.count  # an empty slot
    assert made(box, (1,)) is BAILED


def test_a_call_that_changed_something_may_not_bail_out() -> None:
    told: list[Any] = []

    def broken(*call: Any) -> Any:
        told.append(call)
        raise MemoryError("half")

    made = form(changes_and_bails, broken)
    box, odd = Box(1, None), object()
    assert made(box, (2, 2)) is True and box.count == 7
    with pytest.raises(MemoryError, match="half"):
        made(box, (odd, object()))
    assert told == [(box, told[0][1])]
    assert form(tries_and_bails)(box, (1,)) is BAILED and box.trial == (1,)


def test_references_are_kept_and_given_back() -> None:
    made = form(makes)
    box, values = boxes()[1], ("first", "second")
    before = sys.getrefcount(box), sys.getrefcount(values), sys.getrefcount(values[0])
    for _ in range(1000):
        made(box, values)
        made(box, 3)
    gc.collect()
    after = sys.getrefcount(box), sys.getrefcount(values), sys.getrefcount(values[0])
    assert after == before


def test_what_is_dropped_is_finalized_after_the_call() -> None:
    seen: list[Any] = []

    class Last:
        def __del__(self) -> None:
            seen.append((box.inner, box.count))

    box = Box(0, None)
    box.inner = Last()  # type: ignore[assignment]
    form(replaces)(box, (Box(1, None), 5))
    assert [(type(inner), count) for inner, count in seen] == [(Box, 5)]


def replaces(box: Box, values: tuple[Any, ...]) -> Any:
    box.inner = values[0]
    box.count = values[1]
    return None


def test_places_of_slots_are_those_that_python_uses() -> None:
    places = offsets(Box)
    assert set(places) == set(Box.__slots__) and len(set(places.values())) == len(places)
    assert offsets(Pair).keys() == {"left", "right"}


@pytest.mark.parametrize("source", ["lambda_", "generator", "unknown"])
def test_what_cannot_be_translated_is_named_with_its_line(source: str) -> None:
    with pytest.raises(Untranslatable, match=r"test_cpython\.py:\d+: "):
        form(globals()[source])


def lambda_(box: Box, values: Any) -> Any:
    return (lambda: box)()


def generator(box: Box, values: Any) -> Any:
    return sum(value for value in values)


def unknown(box: Box, values: Any) -> Any:
    return values.anything
