"""The list of the compiler's passes: printed, stopped at, and the same way for everybody."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.compiler.pipeline import PIPELINE
from ridgeline.config import ConfigError
from ridgeline.errors import ArgumentError
from ridgeline.loops.text.printer import print_kernel
from tests.compiler.pass_examples import EXAMPLES, FILE, printed

RNG = np.random.default_rng(0)


def tensor(*shape: int) -> rl.Tensor:
    return rl.tensor(RNG.standard_normal(shape).astype(np.float32))


def step(x: rl.Tensor, w: rl.Tensor, places: rl.Tensor) -> rl.Tensor:
    """Something for most passes: a product, a softmax, a gather, a gradient, a complex number."""
    w = w.detach().requires_grad_()
    scores = ((x @ w) * 1).softmax(-1)
    scores[:, places].square().sum().backward()
    assert w.grad is not None
    turned = rl.complex(x, x) * 1j
    return w.grad + turned.real.sum()


def test_names_are_unique_and_every_pass_says_what_it_does() -> None:
    names = [each.name for each in PIPELINE]
    assert len(set(names)) == len(names)
    assert all(each.doc and "\n" not in each.doc for each in PIPELINE)


def test_every_pass_does_what_its_example_shows() -> None:
    assert set(EXAMPLES) == {each.name for each in PIPELINE}
    found = printed()
    assert "(as it is)" not in found
    assert found == FILE.read_text(), "python -m tests.compiler.pass_examples writes it anew"


@pytest.fixture
def compiled() -> Any:
    with rl.config.override(tier="compiled"):
        made = rl.jit(step)
        arguments = tensor(4, 6), tensor(6, 5), rl.tensor([0, 2])
        yield made, arguments, made(*arguments).numpy()


def listed(function: Any) -> dict[str, bool]:
    """The passes that `explain(stages=True)` prints, and whether each changed something."""
    lines = function.passes().splitlines()
    return {line[2:].split()[0]: line.startswith("*") for line in lines}


def test_stages_are_listed_in_order(compiled: Any, capsys: pytest.CaptureFixture[str]) -> None:
    function, _, _ = compiled
    function.explain(stages=True)
    assert capsys.readouterr().out.rstrip("\n") == function.passes()
    found = listed(function)
    order = [each.name for each in PIPELINE if each.name in found]
    assert [name for name in found if name in order] == order
    changed = {name for name, has in found.items() if has}
    assert {
        "strip_autograd", "check_indices", "split_complex", "simplify", "materialize", "group",
        "fuse", "schedule", "expand_math",
    } <= changed  # fmt: skip
    assert "channels_last" not in found  # of a GPU's libraries


def test_the_program_after_a_pass(compiled: Any) -> None:
    function, _, _ = compiled
    assert not re.search("= (tag|variable) ", function.passes("strip_autograd"))
    assert "complex64" in function.passes("check_indices")
    assert "= mul" in function.passes("simplify")
    loops = function.passes("fuse")
    assert loops.count("kernel ") < function.passes("group").count("kernel ")
    assert "vector" not in loops and "vector" in function.passes("schedule")
    with pytest.raises(ArgumentError, match="no pass called 'flatten'"):
        function.passes("flatten")


def test_leaving_out_later_passes_changes_no_result(compiled: Any) -> None:
    function, arguments, wanted = compiled
    kernels = {}
    for name in listed(function):
        if name not in [each.name for each in PIPELINE]:
            continue
        with rl.config.override(passes_until=name):
            np.testing.assert_allclose(function(*arguments).numpy(), wanted, rtol=1e-5, atol=1e-6)
            kernels[name] = len(function.program.layout.calls)
            for other in [n for n, has in listed(function).items() if has]:
                if other in kernels and not _required(other):
                    assert list(kernels).index(other) <= list(kernels).index(name)
    assert kernels["group"] > kernels["fuse"]


def _required(name: str) -> bool:
    (each,) = [each for each in PIPELINE if each.name == name]
    return each.required or each.otherwise is not None


def test_deferred_work_stops_too() -> None:
    x = tensor(64, 64)
    x.numpy()
    with rl.config.override(tier="compiled"):
        wanted = (x.exp() + 1).sum(0).numpy()
        with rl.config.override(passes_until="simplify"):
            np.testing.assert_allclose((x.exp() + 1).sum(0).numpy(), wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["flatten", "unpipe"])
def test_a_name_that_is_no_pass_to_end_with(name: str) -> None:
    function = rl.jit(lambda x: x + 1)
    with (
        rl.config.override(passes_until=name),
        pytest.raises(ConfigError, match=f"(?s)'{name}' is none.*LEGALIZE come after them"),
    ):
        function(rl.ones(2))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 1 + 0).softmax(-1),
        lambda x: x.reshape(2, 3, 40).permute(2, 0, 1).reshape(40, 6).sum(0),
        lambda x: x @ x.T + 1,
        lambda x: rl.nn.functional.conv2d(x.reshape(1, 1, 6, 40), x.reshape(60, 1, 2, 2)[:3]),
        lambda x: x @ x.reshape(3, 2, 40).permute(2, 1, 0).reshape(40, 6),
        lambda x: rl.nn.functional.layer_norm(x, (40,)) * 2.0 * 3.0,
    ],
)
def test_loops_are_those_that_jit_runs(function: Any) -> None:
    x = tensor(6, 40)
    loops = rl.loops(function, x)
    with rl.config.override(tier="compiled"), rl.enable_grad():
        made = rl.jit(function)
        wanted = made(x).numpy()
    (kernel,) = made.program.stages.kernels
    plain = print_kernel(kernel.group.loops.kernel)
    assert str(loops) == plain
    found = loops.default()(x)
    assert isinstance(found, rl.Tensor) and tuple(found.shape) == tuple(wanted.shape)
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_loops_of_narrow_operands_read_them_as_they_are() -> None:
    """What jit converts inside a product is no kernel of its own here either."""
    a, b = tensor(16, 32), tensor(32, 16).bfloat16()
    assert "bfloat16[32, 16]" in str(rl.loops(lambda a, b: a @ b.float(), a, b))
