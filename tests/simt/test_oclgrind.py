"""Of Oclgrind's 90 kernels those that the language can say: each error found, nothing else."""

import pytest

from ridgeline import simt
from ridgeline.simt.frontend.problems import KernelLanguageError
from tests.simt import oclgrind_memory, oclgrind_races
from tests.simt.oclgrind import SAID, UNSAID, Said

FILES = (oclgrind_memory, oclgrind_races)  # loading them fills SAID
REFUSED = "memcheck/write_read_only_memory"  # where it is written, before any launch


def test_the_list_is_whole() -> None:
    assert len(SAID) + len({REFUSED}) + len(UNSAID) == 90
    assert len(SAID) >= 65


@pytest.mark.parametrize("said", SAID.values(), ids=lambda said: said.name)
def test_kernels(said: Said) -> None:
    found = said.kernel.simulate(
        said.grid, said.block, *said.arguments, shared=said.shared, **said.sizes
    )
    assert {finding.kind for finding in found.findings} == ({said.found} - {None})
    for name, values in said.results.items():
        assert found.outputs[name].tolist() == values


def test_a_write_to_memory_that_is_only_read() -> None:
    with pytest.raises(KernelLanguageError, match="x is read only"):
        simt.kernel("def f(x: i32['n'], y: out[i32['n']]):\n    x[0] += 1\n    y[0] = x[0]")


def test_what_is_printed() -> None:
    kernel = SAID["misc/printf"].kernel
    found = kernel.simulate(1, 1, 7, 42.0)
    assert [line.strip() for line in found.printed] == ["int = 7", "float = 42.0"]
