"""The guides in docs/: their Python runs as printed, and so does what they say they print."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ridgeline as rl

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = ("jit.md", "loops.md", "gpu.md")


@pytest.mark.parametrize("guide", GUIDES)
def test_the_code_of_a_guide_runs(guide: str, tmp_path: Path) -> None:
    text = (DOCS / guide).read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert blocks
    # one file with the blocks on their own lines, since tracing reads source
    lines = [""] * (text.count("\n") + 1)
    for block in blocks:
        first = text[: block.start(1)].count("\n")
        code = block[1].splitlines()
        lines[first : first + len(code)] = code
    program = tmp_path / f"{guide}.py"
    program.write_text("\n".join(lines))
    names: dict[str, Any] = {"__name__": "guide", "__file__": str(program)}
    exec(compile(program.read_text(), str(program), "exec"), names)


def test_the_printed_loops_are_those_that_are_printed() -> None:
    shown = re.search(r"^```\n(kernel .*?)^```$", (DOCS / "loops.md").read_text(), re.S | re.M)
    assert shown is not None
    x, w, b = rl.zeros(48, 64), rl.zeros(64, 32), rl.zeros(32)
    assert str(rl.loops(lambda x, w, b: rl.relu(x @ w + b), x, w, b)).strip() == shown[1].strip()
