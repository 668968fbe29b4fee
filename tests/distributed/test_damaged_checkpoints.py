"""Sharded checkpoints after a killed save, a full disk or damage: whole, or a clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist, nn
from ridgeline.distributed import checkpoints
from ridgeline.errors import InputFileError, RidgelineError


def model(value: float) -> nn.Module:
    made = nn.Linear(3, 2)
    with rl.no_grad():
        for parameter in made.parameters():
            parameter.fill_(value)
    return made


def values(of: nn.Module) -> set[float]:
    return {float(v) for parameter in of.parameters() for v in parameter.detach().numpy().ravel()}


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("renames", [0, 1])
def test_a_save_that_was_killed_leaves_one_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    folder = tmp_path / "c"
    dist.save_checkpoint(folder, model(1.0))
    rename, left = Path.rename, [renames]

    def until_killed(self: Path, target: Any) -> Path:
        if not left[0]:
            raise Killed
        left[0] -= 1
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", until_killed)
    with pytest.raises(Killed):
        dist.save_checkpoint(folder, model(2.0))
    monkeypatch.undo()
    found = model(0.0)
    dist.load_checkpoint(folder, found)
    assert values(found) == {1.0}
    dist.save_checkpoint(folder, model(3.0))
    dist.load_checkpoint(folder, found)
    assert values(found) == {3.0}
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_nobody_waits_for_a_rank_that_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = checkpoints.write_tensors

    def full(path: Path, *rest: Any) -> None:
        if path.name == "rank-00001.safetensors":
            raise OSError(28, "No space left on device")
        write(path, *rest)

    monkeypatch.setattr(checkpoints, "write_tensors", full)
    with pytest.raises((OSError, RidgelineError), match=r"No space left|rank 1 has not"):
        dist.run(lambda: dist.save_checkpoint(tmp_path / "c", model(1.0)), ranks=2)
    assert not (tmp_path / "c").exists()


def _changed(part: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**part, **changes}


DAMAGE = {
    "no values": lambda index: index.pop("values"),
    "no parts": lambda index: index["values"].update({"model.weight": []}),
    "parts that are text": lambda index: index["values"].update({"model.weight": "much"}),
    "a file elsewhere": lambda index: index["values"]["model.weight"][0].update(file="../x"),
    "another file": lambda index: index["values"]["model.weight"][0].update(
        file="rank-00009.safetensors"
    ),
    "a start below zero": lambda index: index["values"]["model.weight"][0].update(starts=[-1, 0]),
    "a shorter part": lambda index: index["values"]["model.weight"][0].update(shape=[1, 3]),
    "parts that overlap": lambda index: index["values"].update(
        {"model.weight": 2 * [_changed(index["values"]["model.weight"][0], shape=[1, 3])]}
    ),
    "no state": lambda index: index.pop("state"),
    "a random state of text": lambda index: index["state"].update(random=["a", "b"]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_index_is_an_error_and_changes_nothing(tmp_path: Path, damage: Any) -> None:
    folder = tmp_path / "c"
    dist.save_checkpoint(folder, model(1.0))
    index = json.loads((folder / "index.json").read_text())
    damage(index)
    (folder / "index.json").write_text(json.dumps(index))
    found = model(7.0)
    with pytest.raises(InputFileError):
        dist.load_checkpoint(folder, found)
    assert values(found) == {7.0}


def test_what_is_missing_at_the_end_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    dist.save_checkpoint(folder, model(1.0))
    index = json.loads((folder / "index.json").read_text())
    del index["values"]["model.bias"]
    (folder / "index.json").write_text(json.dumps(index))
    found = model(7.0)
    with pytest.raises(InputFileError, match=r"no value 'model\.bias'"):
        dist.load_checkpoint(folder, found)
    assert values(found) == {7.0}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"zero": "3"}', '{"zero": [1]}', '{"roles": 3}', '{"roles": {"a": []}}',
     '{"stages": "abc"}', '{"stages": 4}', '{"sequence": "no"}', '{"chunks": 1e9}',
     '{"recompute": {}}', '{"plan": {"zero": 9}}', "[" * 100_000],
)  # fmt: skip
def test_hostile_plans_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(RidgelineError):
        dist.Plan.load(path)
    path.write_bytes(np.arange(128, 255, dtype=np.uint8).tobytes())
    with pytest.raises(RidgelineError):
        dist.Plan.load(path)
