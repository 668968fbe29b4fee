"""Every op has loops or is in the documents' table of library calls, and in one place alone."""

import re
from pathlib import Path

from ridgeline.graph.passes.legalize.decompose import WRITTEN
from ridgeline.loops.lowering.own_loops import RULES
from tests.ops.batching_examples import all_rows

TABLE = Path(__file__).parents[2] / "docs" / "library_calls.md"


def test_the_table_of_library_calls_is_complete() -> None:
    rows = [line for line in TABLE.read_text().splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    partly = {"reinterpret", "sort"}  # some types only
    calls = {
        name for name, op in all_rows().items()
        if op.family == "library" and op not in WRITTEN
    }  # fmt: skip
    assert named == calls | partly


def test_ops_with_loops_of_their_own_have_rules() -> None:
    assert {op for op in all_rows().values() if op.family == "own_loops"} == set(RULES)
