"""Modules that are no language models: traced on an example, cut into blocks, planned, run."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist, nn, optim
from ridgeline.cli.main import main
from ridgeline.planner.constants import DEFAULT
from ridgeline.planner.layouts import Job, ParallelLayout
from ridgeline.planner.machines import gpu_named, usual_cluster
from ridgeline.planner.memory import rank_memory
from ridgeline.planner.named_models import shape_named
from ridgeline.planner.parts import parts_of
from ridgeline.planner.search import FORMULA_MARGIN, search
from ridgeline.planner.software import PROFILES
from ridgeline.planner.step import StepModel
from ridgeline.planner.traced_models import TracedShape, traced_shape
from ridgeline.planner.work import TimedCluster

H100 = TimedCluster(usual_cluster(gpu_named("h100")), DEFAULT)
OWN = """
import ridgeline as rl
from ridgeline import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(12, 16)
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x).relu()
        return self.head(x)

model = Net
example = rl.zeros(8, 12)
def made():
    return (rl.zeros(4, 12),)
number = 3
flat = rl.zeros(())
images = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
def fails():
    raise ValueError("no input")
def leaves():
    raise SystemExit(3)

class Backwards(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(12, 12) for _ in range(4))

    def forward(self, x):
        for block in reversed(self.blocks):
            x = block(x)
        return x
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return str(path)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["plan", *words])
    out, error = capsys.readouterr()
    return code, out, error


@cache
def traced(name: str) -> TracedShape:
    shape = shape_named(name)
    assert isinstance(shape, TracedShape)
    return shape


def test_a_resnet_is_counted_exactly() -> None:
    shape = traced("resnet50")
    assert shape.parameters() == 25_557_032
    # 4.089 billion multiplications forwards, as published for 224 x 224
    assert shape.flops_per_token(1, causal=False) == 3 * 2 * 4_089_184_256
    assert shape.layers == 6 and shape.listed  # the longest list of its blocks, that of layer 3


def test_a_vision_transformer_is_counted_exactly() -> None:
    shape = traced("vit-b16")
    rows, width = 197, 768
    layer = 2 * rows * 12 * width**2 + 4 * rows**2 * width
    around = 2 * 196 * (3 * 16 * 16) * width + 2 * width * 2
    assert shape.flops_per_token(1, causal=False) == 3 * (12 * layer + around)


def test_a_loop_is_counted_as_often_as_it_runs() -> None:
    with nn.deferred():
        shape = traced_shape(nn.LSTM(16, 32, batch_first=True), [rl.zeros(2, 12, 16)], "lstm")
    assert shape.flops_per_token(1, False) == 3 * 12 * 2 * 4 * 32 * (16 + 32)
    assert shape.layers == 1 and not shape.listed


def test_parts_hold_every_block_once_and_none_is_much_heavier() -> None:
    shape = traced("vit-b16")
    for count in range(1, 13):
        parts = parts_of(shape, count, 1)
        assert [part.start for part in parts] == [
            sum(one.layers for one in parts[:index]) for index in range(count)
        ]
        assert sum(part.layers for part in parts) == 12 and min(p.layers for p in parts) >= 1
        assert max(part.layers for part in parts) - 12 / count < 2


def test_every_layout_of_a_traced_model_is_one_that_there_can_be() -> None:
    shape, software = traced("resnet50"), PROFILES["ridgeline"]
    found = search(Job(shape, 1, 1024), 16, software, H100)
    assert {one.layout.tensor * one.layout.context for one in found.found} == {1}
    for one in found.found:
        assert one.layout.pipeline * one.layout.chunks <= shape.layers
        if one.simulated:
            assert one.bound <= one.tokens * (1 + FORMULA_MARGIN)
    assert found.found[0].layout.data == 16  # replicas alone are best for a small model


def test_a_stage_holds_less_than_the_whole_and_recomputing_saves() -> None:
    job, software = Job(traced("vit-b16"), 1, 256), PROFILES["ridgeline"]
    whole = rank_memory(job, ParallelLayout(microbatch=64), software, 0)
    again = rank_memory(job, ParallelLayout(microbatch=64, recompute="full"), software, 0)
    stage = rank_memory(job, ParallelLayout(pipeline=4, microbatch=64), software, 3)
    assert again.activations < 0.5 * whole.activations
    assert stage.activations < 0.5 * whole.activations and stage.weights < 0.4 * whole.weights
    slower = StepModel(job, ParallelLayout(microbatch=64, recompute="full"), software, H100)
    faster = StepModel(job, ParallelLayout(microbatch=64), software, H100)
    assert slower.estimate().seconds > faster.estimate().seconds


def test_a_module_of_ones_own(capsys: pytest.CaptureFixture[str], own: str, tmp_path: Path) -> None:
    asked = ("--gpus", "4", "--gpu", "h100", "--batch", "64")
    code, out, _ = said(capsys, f"{own}:model", *asked)
    assert code == 0 and "4 blocks, traced" in out and "samples/s/GPU" in out
    assert "no published run of a model that is no language model" in out
    for more in (("--input", "12"), ("--example", "made"), ("--input", "7x12")):
        assert said(capsys, f"{own}:model", *asked, *more)[0] == 0
    code, out, _ = said(capsys, f"{own}:Backwards", *asked)
    assert code == 0 and "1 blocks" in out  # stages go through a list in its order
    code, out, _ = said(capsys, f"{own}:images", *asked, "--input", "3x32x32")
    assert code == 0 and "1 blocks" in out
    page = tmp_path / "plan.html"
    assert said(capsys, f"{own}:model", *asked, "--page", str(page))[0] == 0
    assert "samples/s/GPU" in page.read_text()


@pytest.mark.parametrize(
    ("name", "words", "why"),
    [
        ("model", ["--input", "13"], "13"),
        ("model", ["--input", "3y4"], "no size of a sample"),
        ("model", ["--input", "12:int9"], "no input of 'int9'"),
        ("model", ["--input", "0x12"], "0 elements"),
        ("model", ["--input", "999999999999x999999999999"], "elements"),
        ("model", ["--example", "number"], "expected tensors"),
        ("model", ["--example", "flat"], "no axis of samples"),
        ("model", ["--example", "fails"], "no input"),
        ("model", ["--seq", "128"], "takes samples"),
        ("model", ["--batch-tokens", "1M"], "takes samples"),
        ("model", ["--explain", "tp2 dp4"], "replicas and stages alone"),
        ("model", ["--explain", "pp8 dp1"], "8 parts of 4 layers"),
        ("model", ["--optimizer", "lora"], "LoRA"),
        ("number", [], "expected a ridgeline.nn.Module"),
        ("leaves", [], "SystemExit: 3"),
        ("model", ["--input", "12,12"], "what forward() takes"),
    ],
)
def test_requests_that_cannot_be(
    capsys: pytest.CaptureFixture[str], own: str, name: str, words: list[str], why: str
) -> None:
    asked = ("--gpus", "8", "--gpu", "h100", "--batch", "64")
    code, _, error = said(capsys, f"{own}:{name}", *asked, *words)
    assert code == 2 and why in error and "Traceback" not in error


def _net() -> Any:
    space: dict[str, Any] = {}
    exec(OWN, space)
    return space["Net"]


def _losses(make: Any, data: Any, mesh: Any = None, plan: dist.Plan | None = None) -> list[float]:
    rl.manual_seed(0)
    model = make()
    if mesh is not None:
        model = dist.parallelize(model, dist.Mesh(**mesh), plan)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(rl.tensor(data)).float().square().mean()
        loss.backward()
        optimizer.step()
        found.append(float(loss.item()))
    return found


def test_what_the_plan_wrote_trains_a_module(capsys: pytest.CaptureFixture[str], own: str) -> None:
    """The JSON goes to `parallelize` as it is, and four ranks train as one process does."""
    asked = ("--gpus", "4", "--gpu", "h100", "--batch", "8", "--json")
    code, out, _ = said(capsys, f"{own}:model", *asked, "--explain", "pp2 dp2 mb2")
    written = json.loads(out)
    assert code == 0 and written["mesh"] == {"dp": 2, "pp": 2, "cp": 1, "tp": 1}
    assert sum(written["plan"]["stages"]) == 4
    plan, make = dist.Plan.from_json(out), _net()
    data = np.random.default_rng(0).standard_normal((8, 12)).astype("float32")
    alone = _losses(make, data)
    ranks = dist.run(lambda: _losses(make, data, written["mesh"], plan), ranks=4)
    for one in ranks:
        assert one == pytest.approx(alone, rel=1e-4)
