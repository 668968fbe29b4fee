"""Programs of torch.export's as modules of ours, against torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops import scan, while_loop

import ridgeline as rl
from ridgeline import torch_backend
from ridgeline.config import config
from ridgeline.torch_backend.exported import TorchExportError
from tests.torch_backend.modules import MODELS, built


def close(ours: Any, theirs: torch.Tensor) -> None:
    want = theirs.detach().numpy()
    np.testing.assert_allclose(ours.detach().numpy(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_models_compute_what_torch_computes(name: str) -> None:
    model, given = built(name)
    program = torch.export.export(model.eval(), (given,))
    with config.override(tier="interpreter"):
        close(rl.from_torch_export(program)(rl.tensor(given.numpy())), model(given))


def test_a_file_is_read_and_keeps_names_of_weights(tmp_path: Path) -> None:
    model, given = built("convolutions")
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(model.eval(), (given,)), path)
    own = rl.from_torch_export(path)
    assert set(own.state_dict()) == set(model.state_dict())
    close(rl.jit(own)(rl.tensor(given.numpy())), model(given))


def test_a_module_trains() -> None:
    model, given = built("convolutions")
    own = rl.from_torch_export(torch.export.export(model.train(), (given,)))
    for library, module, x in ((torch, model, given), (rl, own, rl.tensor(given.numpy()))):
        optimizer = library.optim.SGD(module.parameters(), lr=0.1)  # type: ignore[attr-defined]
        for _ in range(2):
            optimizer.zero_grad()
            module(x).square().sum().backward()
            optimizer.step()
    for key, value in model.state_dict().items():
        close(own.state_dict()[key], value)


class Nested(nn.Module):
    def forward(self, pair: Any, *, scale: torch.Tensor) -> dict[str, Any]:
        first, table = pair
        length = first.shape[0]
        return {"sum": (first + table["x"]) * scale, "rest": [first[1:], length * table["x"]]}


def test_arguments_and_results_are_nested() -> None:
    x, y, scale = torch.randn(3), torch.randn(3), torch.tensor(2.0)
    batch = torch.export.Dim("batch", min=3, max=64)
    program = torch.export.export(
        Nested(), ((x, {"x": y}),), {"scale": scale},
        dynamic_shapes={"pair": ({0: batch}, {"x": {0: batch}}), "scale": None},
    )  # fmt: skip
    own = rl.from_torch_export(program)
    for length in (3, 5):
        x, y = torch.randn(length), torch.randn(length)
        want = Nested()((x, {"x": y}), scale=scale)
        given = (rl.tensor(x.numpy()), {"x": rl.tensor(y.numpy())})
        got = own(given, scale=rl.tensor(2.0))
        close(got["sum"], want["sum"])
        for one, two in zip(got["rest"], want["rest"]):
            close(one, two)


def test_an_operator_that_is_missing_is_named_with_its_line() -> None:
    class Rare(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.aten._pdist_forward(x)

    with pytest.raises(TorchExportError, match=r"aten\._pdist_forward"):
        rl.from_torch_export(torch.export.export(Rare(), (torch.randn(3, 2),)))


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.layer(x).sin(), lambda x: x * 2, (x,))


class Doubling(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def grows(turns: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return turns + 1, x * 2

        start = (torch.tensor(0), x)
        return while_loop(lambda turns, x: turns < 3, grows, start)  # type: ignore[no-any-return]


class Running(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def step(sums: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return sums + row, (sums * row).clone()

        return scan(step, x[0] * 1, x, dim=0)  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [Branches, Doubling, Running])
@pytest.mark.parametrize("sign", [1, -1])
def test_control_flow_is_read_and_compiled(kind: type[nn.Module], sign: int) -> None:
    """Both ways of a branch, and loops: exported, jitted, and under torch.compile."""
    torch._dynamo.reset()
    torch_backend.reset()
    model, x = kind(), sign * torch.rand(4, 3)
    with torch.no_grad():
        wanted = _several(model(x))
        compiled = _several(torch.compile(model, backend="ridgeline")(x))
    own = rl.from_torch_export(torch.export.export(model, (x,)))
    for run in (own, rl.jit(own)):
        for one, two in zip(_several(run(rl.tensor(x.numpy()))), wanted, strict=True):
            close(one, two)
    torch.testing.assert_close(compiled, wanted)
    assert not torch_backend.by_torch()


def _several(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]
