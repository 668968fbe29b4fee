"""Tensor-core fragments: a matrix for each warp, whose elements its lanes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ridgeline.simt.ir import (
    Fragment,
    FragmentFill,
    FragmentLoad,
    FragmentMultiply,
    FragmentStore,
    SourcePlace,
)
from ridgeline.simt.simulator.findings import KernelFinding
from ridgeline.simt.simulator.lanes import AnyArray, IntArray, Lanes, spread
from ridgeline.simt.simulator.storage import HeldArray, MemoryChecks
from ridgeline.simt.simulator.values import Evaluators

FragmentStmt = FragmentFill | FragmentLoad | FragmentMultiply | FragmentStore


class Fragments:
    """The fragments of all warps, by name."""

    def __init__(
        self, accesses: MemoryChecks, stored: dict[str, HeldArray], evaluators: Evaluators
    ) -> None:
        self.accesses, self.stored, self.evaluators = accesses, stored, evaluators
        self.values: dict[str, AnyArray] = {}

    def matrices(self, fragment: Fragment) -> AnyArray:
        """The matrices of a fragment, [warp, row, column]."""
        if fragment.name not in self.values:
            warps = len(self.accesses.clocks.stamp) // 32
            self.values[fragment.name] = np.zeros((warps, *fragment.shape), fragment.dtype.numpy)
        return self.values[fragment.name]

    def of(self, statement: FragmentStmt) -> Callable[[Lanes], None]:
        """The function of a statement."""
        match statement:
            case FragmentFill():
                value = self.evaluators.of(statement.value)

                def fill(lanes: Lanes) -> None:
                    warps, first = self._warps(lanes, statement.place)
                    values = spread(value(lanes), lanes.count)[first]
                    self.matrices(statement.fragment)[warps] = values[:, None, None]

                return fill
            case FragmentMultiply():
                return lambda lanes: self._multiply(statement, lanes)
        return self._transfer(statement)

    def _warps(self, lanes: Lanes, place: SourcePlace) -> tuple[IntArray, IntArray]:
        """The warps of threads, all of whose lanes must be there."""
        warps, first, counts = np.unique(lanes.ids >> 5, return_index=True, return_counts=True)
        if (counts != 32).any():
            thread = int(lanes.ids[first[counts != 32][0]]) + self.accesses.clocks.first
            name = self.accesses.log.name(thread)
            message = f"{name} is in a warp of which not all 32 lanes run a wmma operation"
            help = "all lanes of a warp take part: move it out of the branch"
            self.accesses.log.add(
                ("wmma", place), KernelFinding("warp mask", message, place, name, help)
            )
        return warps, first

    def _multiply(self, statement: FragmentMultiply, lanes: Lanes) -> None:
        warps, _ = self._warps(lanes, statement.place)
        a, b, c = (
            self.matrices(part)[warps].astype(
                np.float32 if part.dtype.kind == "float" else np.int32
            )
            for part in (statement.a, statement.b, statement.c)
        )
        if statement.target.dtype.itemsize == 8:
            a, b, c = (
                self.matrices(part)[warps] for part in (statement.a, statement.b, statement.c)
            )
        self.matrices(statement.target)[warps] = a @ b + c

    def _transfer(self, statement: FragmentLoad | FragmentStore) -> Callable[[Lanes], None]:
        fragment, stored = statement.fragment, self.stored[statement.array.name]
        index = [self.evaluators.of(part) for part in statement.index]
        stride, accesses = self.evaluators.of(statement.stride), self.accesses
        site = accesses.site(statement.place)
        layout = statement.layout if isinstance(statement, FragmentStore) else fragment.layout
        rows, columns = np.divmod(np.arange(np.prod(fragment.shape)), fragment.shape[1])

        def transfer(lanes: Lanes) -> None:
            warps, first = self._warps(lanes, statement.place)
            parts = [spread(part(lanes), lanes.count)[first] for part in index]
            lead = Lanes(lanes.ids[first], -1)
            at, inside = accesses.locate(stored, parts, lead)
            if inside is not None:
                accesses.out_of_bounds(stored, parts, lead, ~inside, site, "starts at")
            step = spread(stride(lanes), lanes.count)[first].astype(np.int64)[:, None]
            offset = rows * step + columns if layout == "row" else columns * step + rows
            places = at[:, None] + offset
            base = stored.base if stored.start is None else stored.start[lead.ids][:, None]
            outside = (places - base >= stored.size) | (places - base < 0)
            if outside.any():
                self._report(stored, places - base, outside, lead, site)
                places = np.where(outside, at[:, None], places)
            threads = ((warps[:, None] << 5) + np.arange(places.shape[1]) % 32).ravel()
            self._move(statement, stored, places, Lanes(threads, -1), warps, site)

        return transfer

    def _move(
        self, statement: FragmentLoad | FragmentStore, stored: HeldArray, places: IntArray,
        lanes: Lanes, warps: IntArray, site: int,
    ) -> None:  # fmt: skip
        matrices = self.matrices(statement.fragment)
        if isinstance(statement, FragmentLoad):
            found = self.accesses.read_at(stored, places.ravel(), lanes, site)
            matrices[warps] = found.reshape(len(warps), *statement.fragment.shape)
        else:
            values = matrices[warps].reshape(-1).astype(stored.data.dtype)
            self.accesses.write_at(stored, places.ravel(), values, lanes, site)

    def _report(
        self, stored: HeldArray, flat: IntArray, outside: Any, lead: Lanes, site: int
    ) -> None:
        first = int(np.flatnonzero(outside.any(axis=1))[0])
        self.accesses.add(
            "out of bounds", site, lead, first,
            f"moves a fragment past the end of {stored.array.name}",
            "fill the tile up in shared memory first", int(outside.any(axis=1).sum()),
        )  # fmt: skip
