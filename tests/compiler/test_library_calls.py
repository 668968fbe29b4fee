"""The table of library calls in the documents names every op without loops, and no other."""

import re
from pathlib import Path

from ridgeline.graph.passes.legalize.decompose import WRITTEN
from ridgeline.loops.lowering.ordered import ORDERED
from tests.core.batching_examples import all_rows

TABLE = Path(__file__).parents[2] / "docs" / "library_calls.md"


def test_the_table_of_library_calls_is_complete() -> None:
    rows = [line for line in TABLE.read_text().splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    partly = {"reinterpret", "sort"}  # some types only
    opaque = {
        name for name, op in all_rows().items()
        if op.family == "opaque" and op not in ORDERED and op not in WRITTEN
    }  # fmt: skip
    assert named == opaque | partly
