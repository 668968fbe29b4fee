"""Views that read memory as another element type, and complex parts, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from tests.functions.reference import torch

Z = np.array([[1 + 2j, 3 - 1j, 4j], [0, 5 + 5j, -1]])
WRITES = {
    "view_as_real": lambda lib, z: lib.view_as_real(z)[0, 1].fill_(9.0),
    "real": lambda lib, z: z.real[1].zero_(),
    "imag of a transpose": lambda lib, z: z.T.imag[2].add_(4.0),
    "assigned": lambda lib, z: setattr(z, "real", lib.tensor([1.0, 2.0, 3.0])),
    "view_as_complex of pairs": lambda lib, z: lib.view_as_complex(lib.view_as_real(z)).mul_(1j),
    "view": lambda lib, z: z.view(lib.float64)[:, ::2].neg_(),
}


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("case", WRITES)
def test_writing_through(case: str, tier: str) -> None:
    with rl.config.override(tier=tier):
        wholes = []
        for lib in (rl, torch):
            z = lib.tensor(Z)
            WRITES[case](lib, z)
            wholes.append(z.tolist())
        assert wholes[0] == wholes[1]


@pytest.mark.parametrize("old", ["uint8", "int16", "float32", "float64", "complex64", "bfloat16"])
@pytest.mark.parametrize("new", ["int8", "uint16", "int32", "float64", "complex128", "float16"])
def test_bits_as_another_type(old: str, new: str) -> None:
    results: list[Any] = []
    for lib in (rl, torch):
        x = lib.tensor(np.arange(48.0).reshape(3, 16)).to(getattr(lib, old))
        seen = x[:2].view(getattr(lib, new))
        results.append((list(seen.shape), list(seen.stride()), repr(seen.tolist())))
    assert results[0] == results[1]


def test_memory_is_shared_with_numpy() -> None:
    z = rl.tensor(Z)
    parts = z.real.numpy()
    parts[0, 0] = 7.0
    assert z[0, 0].item() == 7 + 2j
    z.mul_(2)
    assert parts[0, 0] == 14.0


@pytest.mark.parametrize("call", [
    lambda x: x.view(rl.int64), lambda x: x[:, :3].view(rl.float64),
    lambda x: x[0, 0].view(rl.int8),
    lambda x: rl.view_as_complex(x), lambda x: rl.view_as_real(x), lambda x: x.imag,
    lambda x: rl.view_as_complex(x.int().view(5, 2)),
])  # fmt: skip
def test_what_cannot_be_seen_so(call: Any) -> None:
    with pytest.raises(rl.RidgelineError):
        call(rl.ones(2, 5))


def test_derivatives_through_parts() -> None:
    z = rl.tensor(Z, requires_grad=True)
    assert rl.autograd.gradcheck(lambda z: z.real * z.imag, (z,))
    assert rl.autograd.gradgradcheck(lambda z: rl.view_as_real(z) ** 3, (z,))
    x = rl.tensor(np.random.default_rng(0).random((3, 2)), requires_grad=True)
    assert rl.autograd.gradcheck(lambda x: rl.view_as_complex(x) ** 2, (x,))


def test_hashes_of_bits() -> None:
    draw = np.random.default_rng(0)
    for x in (draw.random((3, 4, 5)), draw.integers(-9, 9, (2, 7)), draw.random((6,)) < 0.5):
        for options in ({}, {"dim": 0}, {"dim": -1, "keepdim": True}, {"dim": (0,)}):
            ours = rl.hash_tensor(rl.tensor(x), **options)
            theirs = torch.hash_tensor(torch.tensor(x), **options)
            assert ours.dtype is rl.uint64 and ours.tolist() == theirs.tolist()
    assert rl.zeros(2, 0).hash_tensor(1).tolist() == [0, 0]
    with pytest.raises(rl.RidgelineError, match="needs a dim"):
        rl.hash_tensor(rl.zeros(0))
