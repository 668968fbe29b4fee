"""A short form of the whole suites: torch's own samples for its ops, in value and gradient.

Every entry of torch's op database that names one of our functions is tried on a few float32
samples. The whole run, over all samples and element types, is `tools/run_suites.py`; what differs
there, and why, is in docs/conformance.md.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ridgeline as rl

torch = pytest.importorskip("torch")
database = pytest.importorskip("torch.testing._internal.common_methods_invocations")

SAMPLES = 2
MOST = 4000  # elements of a sample's tensors
# what cannot be compared by value: random, uninitialised, sparse, private, or answers that are
# fixed only up to a sign, a phase or the order of equal elements (see docs/conformance.md)
SKIPPED = re.compile(
    r"rand|dropout|bernoulli|multinomial|^normal|empty|cauchy|exponential|geometric|log_normal|"
    r"uniform|sparse|poisson$|rrelu|jiterator|fractional_max_pool|lowrank|^ops\.|^torch\.ops|"
    r"^svd|linalg\.(eig|eigh|svd|ldl)|as_strided|native_layer_norm|^allclose|_$"
)
# the database puts the differentiable argument first; these put the public order back
ORDER: dict[str, Callable[[list[Any]], list[Any]]] = {
    "einsum": lambda a: [a[1], *a[0]],
    "polygamma": lambda a: [a[1], a[0]],
    "special.polygamma": lambda a: [a[1], a[0]],
    "where": lambda a: [a[1], a[0], *a[2:]],
    "nn.functional.embedding": lambda a: [a[1], a[0], *a[2:]],
}


def found(lib: Any, name: str) -> Callable[..., Any] | None:
    """The function that a user calls by a name, or the method."""
    place = lib
    for part in name.split("."):
        place = getattr(place, part, None)
    if callable(place):
        return place
    if "." not in name and hasattr(lib.Tensor, name):
        return lambda x, *a, **k: (
            getattr(x, name)(*a, **k) if callable(getattr(x, name)) else getattr(x, name)
        )
    return None


def entries() -> list[Any]:
    return [
        op for op in database.op_db
        if not SKIPPED.search(op.name) and torch.float32 in op.supported_dtypes("cpu")
        and found(torch, op.name) and found(rl, op.name)
    ]  # fmt: skip


def samples(op: Any, dtype: Any, requires_grad: bool = False) -> Iterator[Any]:
    """torch's samples for an op, made as they are asked for.

    `op.sample_inputs` gives the same ones, but looks through the stack for the test that asks.
    """
    return iter(op.sample_inputs_func(op, "cpu", dtype, requires_grad))


class Foreign(Exception):
    """A value that means nothing outside torch: a layout, a module, an options object."""


def array(value: Any) -> Any:
    """A tensor of torch's as an array."""
    value = value.detach().cpu().resolve_conj().resolve_neg()
    if value.dtype == torch.bfloat16:
        return value.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return value.numpy()


def translated(value: Any, leaves: list[rl.Tensor], place: str = "cpu") -> Any:
    """torch's arguments as ours, on a device; tensors that require gradients are collected."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            raise Foreign
        made = rl.tensor(array(value), device=place, requires_grad=value.requires_grad)
        if value.requires_grad:
            leaves.append(made)
        return made
    if isinstance(value, torch.dtype):
        return getattr(rl, str(value).split(".")[1])
    if isinstance(value, torch.device):
        return place
    if isinstance(value, list | tuple):
        parts = [translated(v, leaves, place) for v in value]
        return parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, dict):
        return {key: translated(v, leaves, place) for key, v in value.items()}
    if (
        value is None
        or value is ...
        or isinstance(value, bool | int | float | complex | str | slice)
    ):
        return value
    raise Foreign


def tensors(value: Any, kind: type) -> Iterator[Any]:
    """The tensors inside nested values, in order."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors(part, kind)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()), kind)


def close(ours: Any, theirs: Any, tolerance: float) -> None:
    if theirs.dtype == torch.bfloat16:
        ours, theirs = ours.float(), theirs.float()
    wanted = theirs.detach().resolve_conj().resolve_neg().numpy(force=True)
    scale = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)) if wanted.size else 1.0
    atol = tolerance * max(1.0, scale) / 10
    np.testing.assert_allclose(ours.detach().cpu().numpy(), wanted, rtol=tolerance, atol=atol)


def check(op: Any, sample: Any, place: str = "cpu") -> None:
    """One sample on a device: the values, and the gradients by every argument that has one."""
    arguments = ORDER.get(op.name, list)([sample.input, *sample.args])
    inputs = [t for t in tensors([arguments, sample.kwargs], torch.Tensor) if t.requires_grad]
    leaves: list[rl.Tensor] = []
    values, named = translated([arguments, sample.kwargs], leaves, place)
    try:
        theirs = list(tensors(found(torch, op.name)(*arguments, **sample.kwargs), torch.Tensor))
    except Exception:  # some samples need the harness they come from
        return
    ours = list(tensors(found(rl, op.name)(*values, **named), rl.Tensor))
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs):
        close(mine, other, 1e-4)
    smooth = [
        (mine, other) for mine, other in zip(ours, theirs)
        if other.requires_grad and other.dtype == torch.float32
    ]  # fmt: skip
    if not smooth or not inputs:
        return
    seed = torch.Generator().manual_seed(1)
    seeds = [torch.rand(other.shape, generator=seed) for _, other in smooth]
    wanted = torch.autograd.grad([o for _, o in smooth], inputs, seeds, allow_unused=True)
    given = [rl.tensor(s.numpy(), device=place) for s in seeds]
    got = rl.autograd.grad([m for m, _ in smooth], leaves, given, allow_unused=True)
    for mine, other in zip(got, wanted):
        if other is None:
            assert mine is None or not mine.cpu().numpy().any()
        else:
            close(mine, other, 1e-3)


ENTRIES = entries()


def test_the_table_is_broad() -> None:
    assert len(ENTRIES) > 500


def differences(start: int, step: int, place: str) -> list[str]:
    """What differs from torch on a device, over every `step`-th entry."""
    wrong = []
    for op in ENTRIES[start::step]:
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        tried = 0
        for sample in samples(op, torch.float32, op.supports_autograd):
            total = [sample.input, sample.args, sample.kwargs]
            if op.name.endswith("multi_head_attention_forward") and sample.kwargs["training"]:
                continue  # it drops at random
            if sum(t.numel() for t in tensors(total, torch.Tensor)) > MOST:
                continue
            try:
                check(op, sample, place)
            except Foreign:
                continue
            except Exception as error:
                wrong.append(f"{op.full_name}: {type(error).__name__} {error}"[:300])
            tried += 1
            if tried == SAMPLES:
                break
    return wrong


@pytest.mark.parametrize("start", range(16))
def test_a_sample_of_torchs_ops(start: int) -> None:
    with rl.config.override(tier="interpreter"):
        wrong = differences(start, 16, "cpu")
    assert not wrong, "\n".join(wrong)
