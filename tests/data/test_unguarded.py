"""Scripts that train on import, without a guard: workers run what they define, and no more."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from ridgeline.data import unguarded

SCRIPT = """
import argparse, sys
from ridgeline.data import DataLoader, Dataset
parser = argparse.ArgumentParser()
parser.add_argument("--count", type=int, default=8)
options = parser.parse_args()
scale: int = 3
class Squares(Dataset):
    def __len__(self):
        return options.count
    def __getitem__(self, index):
        return float(index * index * scale)
def total(loader):
    with open(sys.argv[0] + ".log", "a") as log:
        log.write("trained\\n")
    return sum(float(x.sum()) for x in loader)
loader = DataLoader(Squares(), batch_size=2, num_workers=2)
print(total(loader))
found = total(loader)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked from a server on Linux")
def test_a_script_without_a_guard_has_workers(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, str(script), "--count", "4"], capture_output=True, text=True, timeout=120
    )
    assert (ran.stdout, ran.returncode) == ("42.0\n", 0), ran.stderr
    assert (tmp_path / "train.py.log").read_text() == "trained\n" * 2


def test_what_is_taken_of_a_script() -> None:
    tree = ast.parse(SCRIPT)
    assert not unguarded.is_guarded(tree)
    kept = [ast.unparse(statement).splitlines()[0] for statement in unguarded.definitions(tree)]
    assert "loader = DataLoader(Squares(), batch_size=2, num_workers=2)" not in kept
    assert "found = total(loader)" not in kept and "print(total(loader))" not in kept
    assert {"scale: int = 3", "class Squares(Dataset):", "def total(loader):"} <= set(kept)
    assert unguarded.is_guarded(ast.parse("if __name__ == '__main__':\n    main()"))
    assert unguarded.is_guarded(ast.parse("main() if '__main__' == __name__ else None"))


def test_values_that_cannot_be_made_are_left_out(tmp_path: Path) -> None:
    kept = {name: sys.modules.get(name) for name in ("__main__", "__mp_main__")}
    try:
        module = unguarded.load("x.py", ast.parse("a = 1 / 0\nimport nowhere_to_be_found\nb = 2"))
    finally:
        for name, before in kept.items():
            if before is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = before
    assert module.b == 2 and not hasattr(module, "a")
