"""torch's names: the page about them is true, and the most used agree with torch in every way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ridgeline as rl  # noqa: E402
from ridgeline.record.captures import CaptureError  # noqa: E402
from tests.names.comparison import Case, assert_alike, cases, names, plain, uses  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import torch_names  # noqa: E402  (a tool, not a package)

CASES = list(cases())
SHARE = 0.98  # of the 500 most used


def test_the_page_is_true() -> None:
    """In a process of its own: what other tests import adds names."""
    program = "import torch_names; print(torch_names.page(), end='')"
    command = [sys.executable, "-c", program]
    result = subprocess.run(
        command, cwd=Path(torch_names.__file__).parent, capture_output=True, text=True, check=True
    )
    assert torch_names.PAGE.read_text() == result.stdout, "run python tools/torch_names.py"


def test_the_most_used_names_are_here_and_are_compared() -> None:
    used, first = uses(), torch_names.rows()[:500]
    here = [row for row in first if torch_names.exists(row.name)]
    assert len(here) >= SHARE * len(first), [r.name for r in first if r not in here]
    lacking = {
        row.name: row.keywords - used.get(row.name, set())
        for row in here
        if row.name not in used or not row.keywords <= used[row.name]
    }
    assert not lacking


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.text[:60])
@pytest.mark.parametrize("way", ["deferred", "eager", "jit"])
def test_a_case_agrees_with_torch(case: Case, way: str, tmp_path: Path) -> None:
    theirs = plain(case.run(torch, tmp_path))
    if way == "deferred":
        ours: Any = case.run(rl, tmp_path)
    elif way == "eager":
        with rl.eager():
            ours = case.run(rl, tmp_path)
    else:
        if "is_tracing()" in case.text:
            pytest.skip("a traced function is told that it is")
        function, _ = case.function(rl, tmp_path)
        try:
            ours = rl.jit(function)()
        except (CaptureError, rl.RidgelineError) as error:
            pytest.skip(f"no capture: {error}"[:200])
    assert_alike(plain(ours), theirs, case.random)


def _gradient(lib: Any, case: Case, tmp_path: Path) -> Any:
    """The gradient by `x` of the sum of all floating results."""
    space = names(lib, tmp_path)
    found = eval(case.text, space)
    parts = [
        p for p in (found if isinstance(found, tuple | list) else (found,))
        if isinstance(p, lib.Tensor) and p.requires_grad and not p.is_complex()
    ]  # fmt: skip
    if not parts:
        return None
    sum((part.double().sum() for part in parts), lib.zeros(())).backward()
    return space["leaf"].grad


@pytest.mark.parametrize(
    "case", [c for c in CASES if not c.random], ids=lambda case: case.text[:60]
)
def test_its_gradients_do_too(case: Case, tmp_path: Path) -> None:
    try:
        theirs = _gradient(torch, case, tmp_path)
    except RuntimeError:  # written over in place, or of no use
        return
    ours = _gradient(rl, case, tmp_path)
    if ours is None and theirs is not None:  # nothing leads to the leaf: torch fills in zeros
        ours = rl.zeros(3, 4)
    assert_alike(plain(ours), plain(theirs), False)
