"""The record core: another recorder behind its page, and the names that old pickles hold."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import scalars
from ridgeline.record import recorder
from ridgeline.record.cells import Cell
from ridgeline.record.graph_recorder import GraphRecorder
from ridgeline.record.upcalls import upcalls


class Counting(GraphRecorder):
    """A recorder that counts what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def record(self, cell: Cell) -> None:
        self.told.append("record")
        super().record(cell)

    def flush(self, reason: str = "") -> None:
        self.told.append("flush")
        super().flush(reason)

    def compute(self, cells: Sequence[Cell], reason: str = "") -> None:
        self.told.append("compute")
        super().compute(cells, reason)

    def tracked(self) -> list[Cell]:
        self.told.append("tracked")
        return super().tracked()


def test_another_recorder_takes_the_place_of_the_first() -> None:
    x = rl.tensor([1.0, 2.0], requires_grad=True)
    counting = Counting()
    with recorder.record_with(counting):
        y = x * x
        z = y + 1
        assert counting.told == ["record", "record"]
        z.sum().backward()
        assert z.tolist() == [2.0, 5.0]
        assert x.grad is not None
        assert x.grad.tolist() == [2.0, 4.0]
    assert {"record", "compute", "tracked"} <= set(counting.told)
    before = list(counting.told)
    assert (x.detach() * 3).tolist() == [3.0, 6.0]
    assert counting.told == before


def test_live_are_the_cells_that_somebody_holds() -> None:
    rl.ones(1).tolist()  # whatever was recorded before is computed
    x = rl.tensor([1.0])
    kept, dropped = x + 1, x + 2
    assert recorder.live() == [kept._cell, dropped._cell]
    del dropped
    assert recorder.live() == [kept._cell]
    recorder.flush()
    assert recorder.live() == []
    assert kept._cell.node.buffer is not None


def test_work_is_matched_by_its_structure() -> None:
    x = rl.tensor([1.0, 2.0])
    for number in (3.0, 4.0):
        y = x * number
        node = y._cell.node
        recorder.match([node]).run()
        assert node.buffer.array(node.dtype, node.shape).tolist() == [number, 2 * number]


@pytest.mark.parametrize("name", [
    "ridgeline.tensors.creation unpickled", "ridgeline.tensors.handle Size",
    "ridgeline.tracing.guards ParamGroup", "ridgeline.tracing.guards Table",
    "ridgeline.tracing.guards Row", "ridgeline.random Generator",
    "ridgeline.autograd.engine HookHandle",
])  # fmt: skip
def test_pickles_of_earlier_versions_find_what_they_name(name: str) -> None:
    module, member = name.split()
    found = pickle.loads(f"c{module}\n{member}\n.".encode())
    assert found.__name__ == member


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
def test_what_cannot_be_computed_is_told_to_its_reader_alone(tier: str) -> None:
    with rl.config.override(tier=tier):
        x = rl.tensor([1.0, 2.0, 3.0])
        wrong = x[(x * 3).long()]
        right, more = x + 1, x * 2
        assert right.tolist() == [2.0, 3.0, 4.0]
        assert (more + right).tolist() == [4.0, 7.0, 10.0]
        for _ in range(2):
            with pytest.raises(IndexError):
                wrong.tolist()
        assert (more * 3).tolist() == [6.0, 12.0, 18.0]


def test_a_program_that_cannot_be_made_is_told_to_its_reader_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = scalars.value_of

    def value_of(row: scalars.ScalarOp, operands: Any) -> Any:
        return plain(replace(row, numpy=np.cross) if row.name == "sinh" else row, operands)

    monkeypatch.setattr(scalars, "value_of", value_of)
    with rl.config.override(tier="interpreter"):
        x = rl.tensor([1.0, 2.0])
        wrong, right = rl.sinh(x), x + 1
        assert right.tolist() == [2.0, 3.0]
        with pytest.raises(RuntimeError):
            wrong.tolist()
        assert (x * 2).tolist() == [2.0, 4.0]


def test_what_a_handler_raises_ends_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception from outside of the computation is nobody's result."""

    class Alarm(Exception):
        pass

    def rang(*_: object) -> None:
        raise Alarm

    x = rl.tensor([1.0, 2.0])
    beside, read = x * 2, x + 1
    with monkeypatch.context() as patch:
        patch.setattr(upcalls, "match", rang)
        with pytest.raises(Alarm):
            read.tolist()
    assert read.tolist() == [2.0, 3.0] and beside.tolist() == [2.0, 4.0]
