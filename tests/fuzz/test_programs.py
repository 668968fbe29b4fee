"""The short form of the fuzzer, and what it does with what it finds."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ridgeline.config import config
from tests.fuzz.agree import judge
from tests.fuzz.faults import FAULTS, planted
from tests.fuzz.generate import generate
from tests.fuzz.program import Input, Program, Statement
from tests.fuzz.search import examine
from tests.fuzz.shrink import fails_like, shrink
from tests.fuzz.ways import Rejected
from tests.fuzz.workers import Search


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_random_programs_agree(first: int) -> None:
    with config.override(cache_max_bytes=0):
        faults = [fault for seed in range(first, first + 20) if (fault := examine(seed))]
    assert not faults, faults[0]


def test_schedules_of_a_gpu() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    with config.override(cache_max_bytes=0):
        faults = [fault for seed in range(8) if (fault := examine(seed, place="loops"))]
    assert not faults, faults[0]


def test_a_seed_names_one_program() -> None:
    assert generate(7) == generate(7)
    assert generate(7) != generate(8)


def test_a_fault_is_shrunk_to_what_it_needs() -> None:
    lines = (
        "a0 + 1",
        "rl.cumsum(v1, 0)",
        "a0 * v2",
        "v3.scatter_reduce(0, v1 * 0, v1, 'amax')",
        "v4 + v3",
    )
    statements = tuple(Statement(text, f"v{n}") for n, text in enumerate(lines, 1))
    given = Input("a0", (5,), "int64")
    program = Program("exact", 3, (given,), statements, ("v2", "v5"))
    (fault,) = [f for f in FAULTS if f.name == "every scatter adds"]
    with config.override(cache_max_bytes=0), planted(fault):
        finding = judge(program)
        assert finding is not None
        small = shrink(program, fails_like(finding))
    assert [s.text.split("(")[0] for s in small.statements][-1].endswith("scatter_reduce")
    assert len(small.statements) <= 2
    ran = subprocess.run([sys.executable, "-c", small.text()], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    interpreted, compiled = ran.stdout.split("]\n", 1)
    assert "array" in interpreted and "array" in compiled


def test_no_fault_where_a_result_jumps_within_roundings() -> None:
    """The floor of a number that is whole but for roundings is not judged, and a fault still is."""
    statements = (Statement("rl.floor(rl.exp(rl.log(rl.abs(a0) * 0 + 8)))", "v1"),)
    program = Program("smooth", 1, (Input("a0", (9,), "float32"),), statements, ("v1",))
    with config.override(cache_max_bytes=0):
        for way in ("deferred", "matched", "jit", "eager"):
            with suppress(Rejected):
                assert judge(program, (way,)) is None
        (fault,) = [f for f in FAULTS if f.name == "a permutation is read the other way round"]
        turned = replace(
            program,
            inputs=(Input("a0", (3, 4, 5), "float32"),),
            statements=(Statement("rl.tanh(a0.permute(1, 2, 0)) * 1.5", "v1"),),
        )
        with planted(fault):
            assert judge(turned, ("jit",)) is not None


def test_torch_may_refuse_to_go_through_what_was_overwritten() -> None:
    statements = (
        Statement("a0.clone().requires_grad_()", "v1"),
        Statement("v1 * a0", "v2"),
        Statement("a0.add_(1)"),
        Statement("v2.sum().backward()"),
        Statement("v1.grad.clone()", "v3"),
    )
    program = Program("exact", 2, (Input("a0", (5,), "float32"),), statements, ("v3",))
    assert program.portable
    with config.override(cache_max_bytes=0):
        assert judge(program) is None
        refused = replace(program, statements=(Statement("a0.expand_dims(0)", "v3"),))
        finding = judge(refused)  # torch has no such method
    assert finding is not None and finding.way == "torch"


def test_zeros_between_elements_beside_no_numbers_are_not_judged() -> None:
    statements = (
        Statement("a0.detach().clone().requires_grad_()", "v1"),
        Statement("(v1 @ v1.T) % 5", "v2"),
        Statement("v2[28:31:3, 25:30:2].sum().backward()"),
        Statement("v1.grad.clone()", "v3"),
    )
    special = Input("a0", (33, 2), "float32", special=True)
    program = Program("exact", 340280, (special,), statements, ("v3",))
    with config.override(cache_max_bytes=0):
        with pytest.raises(Rejected):
            judge(program)
        assert judge(replace(program, inputs=(replace(special, special=False),))) is None


def test_a_stretched_axis_is_compiled_once_and_judged_at_two_lengths() -> None:
    given = Input("a0", (5, 4), "float32", stretched=0)
    statements = (Statement("rl.cumsum(a0, 0) - a0.flip(0)", "v1"),)
    program = Program("exact", 2, (given,), statements, ("v1",))
    assert [v.shape for v in (*program.values(0), *program.values(1))] == [(5, 4), (8, 4)]
    with config.override(cache_max_bytes=0):
        assert judge(program) is None
    ran = subprocess.run([sys.executable, "-c", program.text()], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout.count("array(") == 4, ran.stderr


class Scripted(Search):
    """A search whose workers find a fault at 3, crash at 5."""

    SCRIPT = """
import os, sys
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    print("seed", seed, flush=True)
    if seed == 3:
        print("fault: seed 3, jit", flush=True)
        print("import ridgeline as rl", flush=True)
    if seed == 5:
        os.abort()
"""

    def command(self, first: int, end: int) -> list[str]:
        return [sys.executable, "-c", self.SCRIPT, str(first), str(end)]


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_program_is_accounted_for(
    jobs: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    search = Scripted(8, "cpu", jobs, folder=tmp_path / "found")
    search.run(0, 12)
    assert search.programs == 12 and sorted(search.faults) == [3, 5]
    said = capfd.readouterr().out
    assert "fault: seed 3, jit\nimport ridgeline as rl" in said
    kept = {file.name: file.read_text() for file in (tmp_path / "found").iterdir()}
    assert kept["seed_3.py"] == "# fault: seed 3, jit\nimport ridgeline as rl\n"
    assert kept["seed_5.py"].startswith("# fault: seed 5 ended its process")
    assert f"seed 5 ended its process with {-signal.SIGABRT}" in said


def test_a_search_ends_at_its_time() -> None:
    search = Scripted(8, "cpu", 2, deadline=0.0)
    search.run(0, 12)
    assert search.programs == 0 and not search.faults
