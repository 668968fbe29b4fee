"""A tensor that gradients flow through is apart from equal expressions inside of functions.

Its gradient, and what its hooks see, are of its own uses: not of those of the sigmoid inside of a
SiLU, of the difference inside of a loss, or of the slice inside of an index.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.config import config
from ridgeline.graph.graph import Graph
from ridgeline.graph.passes.legalize.decompose import strip_autograd
from ridgeline.record.values import read

torch = pytest.importorskip("torch")

WAYS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "deferred": nullcontext,
    "interpreted": lambda: config.override(tier="interpreter"),
    "eager": rl.eager,
}
VARIABLES = {
    "w": [0.5, -0.25, 0.75], "m": [[0.1, 0.2, 0.3], [0.4, -0.5, 0.6]],
    "s": [[0.1, 0.2], [0.3, 0.4]], "q": [[[0.1, 0.2], [0.3, -0.4]]],
}  # fmt: skip
# Each makes `a`, and `b` by a function or index that has an equal expression inside, and a loss.
CASES: dict[str, tuple[str, str]] = {
    "slice in select": ("a = w[1:2]; b = w[1]", "a.sum()*3 + b*5"),
    "permute in flatten": ("a = m.permute(1,0); b = m.T.flatten()", "a.sum()*3 + (b*b).sum()"),
    "permute in movedim-flat": (
        "a = m.t(); b = m.swapaxes(0,1).reshape(-1)",
        "a.sum()*3+(b*b).sum()",
    ),
    "row in elem": ("a = m[0]; b = m[0,1]", "a.sum()*3+b*b"),
    "none": ("a = m[None]; b = m[None, 0]", "a.sum()*3+(b*b).sum()"),
    "cols": ("a = m[:, 1:2]; b = m[:, 1]", "a.sum()*3+(b*b).sum()"),
    "step": ("a = m[:, ::2]; b = m[0, ::2]", "a.sum()*3+(b*b).sum()"),
    "chunk": ("a = m[:, :1]; b = m[:, 0]", "a.sum()*3+(b*b).sum()"),
    "unbind": ("a = m[0:1]; b = m.unbind(0)[0]", "a.sum()*3+(b*b).sum()"),
    "expand in bcast": ("a = w.expand(2,3); b = m + w", "a.sum()*3+(b*b).sum()"),
    "unsq in bcast": ("a = w[None]; b = m + w", "a.sum()*3+(b*b).sum()"),
    "reshape in bcast": ("a = w.reshape(1,3); b = m * w", "a.sum()*3+(b*b).sum()"),
    "cast": ("a = w.float(); b = w.float().double()", "a.sum().double()*3+(b*b).sum()"),
    "diag": ("a = s.flatten(); b = s.diagonal()", "(a*a).sum()*3+(b*b).sum()"),
    "transpose in matmul": ("a = m.t(); b = F.linear(w, m)", "a.sum()*3+(b*b).sum()"),
    "neg in sub": (
        "a = -w; b = lib.sigmoid(w) + F.softplus(w)+ F.logsigmoid(w)",
        "a.sum()*3+b.sum()",
    ),
    "abs in softsign": ("a = w.abs(); b = F.softsign(w)", "a.sum()*3+b.sum()"),
    "sq in norm": ("a = w*w; b = w.norm() + w.std()", "a.sum()*3+b"),
    "square in norm": ("a = w.square(); b = w.norm() + w.var()", "a.sum()*3+b"),
    "pow in mse": ("a = w - x; b = F.mse_loss(w, x)", "a.sum()*3+b"),
    "mean in var": ("a = w.mean(); b = w.var() + w.std()", "a*3+b"),
    "mean in ln": (
        "a = w.mean(-1, keepdim=True); b = F.layer_norm(w, (3,))",
        "a.sum()*3+(b*x).sum()",
    ),
    "sum in softmax": (
        "a = w.exp(); b = lib.softmax(w, 0); c=lib.logsumexp(w,0)",
        "a.sum()*3+(b*x).sum()+c",
    ),
    "max in softmax": (
        "a = w.amax(0, keepdim=True); b = lib.softmax(w, 0)",
        "a.sum()*3+(b*x).sum()",
    ),
    "shift": ("a = w - w.max(); b = lib.softmax(w, 0)", "a.sum()*3+(b*x).sum()"),
    "logsm in ce": (
        "a = lib.log_softmax(m, 1); b = F.cross_entropy(m, lib.tensor([0,2]))",
        "a.sum()*3+b",
    ),
    "sigmoid in silu": ("a = w.sigmoid(); b = F.silu(w)", "a.sum()*3+b.sum()"),
    "tanh in gelu": ("a = w.tanh(); b = F.gelu(w, approximate='tanh')", "a.sum()*3+b.sum()"),
    "bce": (
        "a = w.sigmoid(); c = a.log(); b = F.binary_cross_entropy(a, x.sigmoid())",
        "a.sum()*3+b+c.sum()",
    ),
    "recip": ("a = 1/w; b = x/w", "a.sum()*3+b.sum()"),
    "rsqrt": ("a = w.square().sum().sqrt(); b = F.normalize(w, dim=0)", "a.sum()*3+(b*x).sum()"),
    "relu in res": ("a = w.relu(); b = F.relu6(w)+F.elu(w)+F.leaky_relu(w)", "a.sum()*3+b.sum()"),
    "var mean": (
        "a = m.mean(0); b = F.batch_norm(m, None, None, training=True)",
        "a.sum()*3+(b*m).sum()",
    ),
    "outer": ("a = w[:,None]; b = lib.outer(w,x)", "a.sum()*3+(b*b).sum()"),
    "einsum": ("a = w*x; b = lib.einsum('i,i->', w, x); c = (w@x)", "a.sum()*3+b+c*c"),
    "cos sim": ("a = w*x; b = F.cosine_similarity(w, x, dim=0)", "a.sum()*3+b"),
    "lerp": ("a = x - w; b = lib.lerp(w, x, 0.3)", "a.sum()*3+b.sum()"),
    "addcmul": ("a = w*x; b = lib.addcmul(x, w, x)", "a.sum()*3+b.sum()"),
    "rms": ("a = w*w; b = F.rms_norm(w, (3,))", "a.sum()*3+(b*x).sum()"),
    "stack": ("a = w[None]; b = lib.stack([w, x])", "a.sum()*3+(b*b).sum()"),
    "cumsum": ("a = w.flip(0); b = w.flip(0).cumsum(0)", "a.sum()*3+(b*b).sum()"),
    "pad": ("a = F.pad(w,(1,1)); b = F.avg_pool1d(w[None],3,1,1)", "a.sum()*3+(b*b).sum()"),
    "attn": (
        "a = q @ q.transpose(-1,-2); b = F.scaled_dot_product_attention(q,q,q)",
        "a.sum()*3+(b*b).sum()",
    ),
    "gru": ("a = w.tanh(); b = lib.tanh(w)*lib.tanh(w)", "a.sum()*3+b.sum()"),
    "iadd": ("a = w*2; b = w*1; b += w*2", "a.sum()*3+(b*b).sum()"),
    "imul": ("a = w*2; b = w.clone(); b.mul_(2)", "a.sum()*3+(b*b).sum()"),
    "idx": ("a = w[[0,2]]; b = m[:, [0,2]] + w[lib.tensor([0,2])]", "a.sum()*3+(b*b).sum()"),
    "where": ("a = -w; b = lib.where(w > 0, w, -w)", "a.sum()*3+(b*b).sum()"),
}


def _made(lib: Any, case: str, later: bool) -> dict[str, Any]:
    kind = lib.float64
    names = {n: lib.tensor(v, dtype=kind).requires_grad_() for n, v in VARIABLES.items()}
    names |= {"lib": lib, "F": lib.nn.functional, "x": lib.tensor([1.0, 2.0, 4.0], dtype=kind)}
    lines = CASES[case][0].split("; ")
    if later and not any("(a" in line or "a." in line for line in lines):
        lines.sort(key=lambda line: line.startswith("a ="))
    exec("\n".join(lines), names)
    return names


def _loss(names: dict[str, Any], case: str) -> Any:
    return eval(CASES[case][1], names)


def _gradients(lib: Any, case: str, later: bool) -> list[Any]:
    """By `a`, `b` and the variables, asked for."""
    names = _made(lib, case, later)
    wanted = [names["a"], names["b"], *(names[n] for n in VARIABLES)]
    return [*lib.autograd.grad(_loss(names, case), wanted, allow_unused=True)]


def _seen(lib: Any, case: str) -> list[Any]:
    """What hooks see, and what is retained."""
    names, seen = _made(lib, case, False), dict[str, Any]()
    for name in "ab":
        names[name].register_hook(lambda g, name=name: seen.update({name: g}))
        names[name].retain_grad()
    _loss(names, case).backward()
    return [seen["a"], seen["b"], names["a"].grad, names["b"].grad]


def _same(found: list[Any], wanted: list[Any]) -> None:
    assert [g is None for g in found] == [g is None for g in wanted]
    for a, b in zip(found, wanted):
        if a is not None:
            np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_equal_expressions_are_apart(case: str, way: str) -> None:
    with WAYS[way]():
        _same(_gradients(rl, case, False), _gradients(torch, case, False))
        _same(_gradients(rl, case, True), _gradients(torch, case, True))
        _same(_seen(rl, case), _seen(torch, case))


@pytest.mark.parametrize("case", CASES)
def test_equal_expressions_are_apart_inside_jit(case: str) -> None:
    with config.override(tier="interpreter"):
        found = rl.jit(lambda: [g for g in _gradients(rl, case, False) if g is not None])()
    _same(found, [g for g in _gradients(torch, case, False) if g is not None])


def test_what_is_computed_has_equal_expressions_once() -> None:
    """They are apart for differentiation alone."""

    def nodes(w: rl.Tensor) -> int:
        gate = w.sigmoid()
        made = gate * 3 + rl.nn.functional.silu(w)
        return len(strip_autograd(Graph([read(made)], [read(w)])).order)

    with config.override(tier="interpreter"):
        values = [0.5, -0.25, 0.75]
        assert nodes(rl.tensor(values, requires_grad=True)) == nodes(rl.tensor(values))
