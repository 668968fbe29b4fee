"""The documents: their Python runs as printed, what it prints is so, and links lead somewhere."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import ridgeline as rl

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(DOCS.rglob("*.md")),
    ROOT / "benchmarks" / "README.md",
]
_BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
# those that show parts of the package, or need a program, a trace or a model of the reader's
_NOT_RUN = ("ARCHITECTURE.md", "CONTRIBUTING.md", "deploy.md", "diagnose.md", "families.md")
GUIDES = [
    str(path.relative_to(ROOT))
    for path in DOCUMENTS
    if path.name not in _NOT_RUN and _BLOCK.search(path.read_text())
]


@pytest.mark.parametrize("guide", GUIDES)
def test_the_code_of_a_guide_runs(
    guide: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    text = (ROOT / guide).read_text()
    blocks = list(_BLOCK.finditer(text))
    assert blocks
    # one file with the blocks on their own lines, since tracing reads source
    lines = [""] * (text.count("\n") + 1)
    for block in blocks:
        first = text[: block.start(2)].count("\n")
        code = textwrap.dedent(block[2]).splitlines()
        lines[first : first + len(code)] = code
    program = tmp_path / f"{Path(guide).stem}.py"
    program.write_text("\n".join(lines))
    names: dict[str, Any] = {"__name__": "guide", "__file__": str(program)}
    exec(compile(program.read_text(), str(program), "exec"), names)


def test_the_printed_loops_are_those_that_are_printed() -> None:
    shown = re.search(r"^```\n(kernel .*?)^```$", (DOCS / "loops.md").read_text(), re.S | re.M)
    assert shown is not None
    x, w, b = rl.zeros(48, 64), rl.zeros(64, 32), rl.zeros(32)
    assert str(rl.loops(lambda x, w, b: rl.relu(x @ w + b), x, w, b)).strip() == shown[1].strip()


def test_code_that_contributors_are_shown_is_in_the_package() -> None:
    blocks = _BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text())
    lines = [line for indent, block in blocks if not indent for line in block.splitlines()]
    shown = [line for line in lines if line and not line.startswith("#")]
    files = ("scalars.py", "ops/elementwise.py", "functions/pointwise.py")
    there = {line.strip() for f in files for line in (ROOT / "ridgeline" / f).open()}
    assert shown and [line for line in shown if line.strip() not in there] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document: Path) -> None:
    prose = re.sub(r"`[^`\n]+`(?!\])", "", document.read_text())  # `kernel[grid](x)` is no link
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose)
    assert [t for t in targets if not (document.parent / t).exists() and "://" not in t] == []
