"""Whole modules and objects of users in files: only classes that the reader allows are used."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import enum
import io
import pathlib
import pickle
import types
from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline import nn

RAN: list[str] = []


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(5, 4), nn.LSTM(4, 3)
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.layers[1].weight = self.layers[0].weight  # tied
        self.activation, self.mask = nn.functional.relu, None
        self.drop = nn.Dropout(0.1)
        self.register_buffer("shift", rl.ones(3))

    def forward(self, x: Any) -> Any:
        h = self.rnn(self.embedding(x))[0]
        for layer in self.layers:
            h = self.activation(layer(h))
        return self.drop(h) + self.shift


PARTS = [Tagger, nn.Embedding, nn.LSTM, nn.Linear, nn.ModuleList, nn.Dropout, nn.functional.relu]


class Kind(enum.Enum):
    FIRST = 1
    SECOND = 2


@dataclasses.dataclass
class Settings:
    width: int = 3
    kind: Kind = Kind.FIRST


class Counting:
    """Has a state of its own kind, and slots."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        RAN.append("init")
        self._count = 1


def there_and_back(value: Any, allowed: list[Any] | None = None) -> Any:
    file = io.BytesIO()
    rl.save(value, file)
    file.seek(0)
    with rl.serialization.safe_globals(allowed or []):
        return rl.load(file)


@pytest.mark.parametrize("way", ["deferred", "eager", "jit"])
def test_a_module_comes_back_as_it_was(way: str) -> None:
    made = Tagger().eval()
    made.drop.p = 0.5
    found = there_and_back(made, PARTS)
    assert type(found) is Tagger and not found.training and found.drop.p == 0.5
    assert found.layers[1].weight is found.layers[0].weight
    x = rl.tensor([[1, 2], [3, 4]])
    with rl.eager() if way == "eager" else rl.enable_grad():
        values = [(rl.jit(net) if way == "jit" else net)(x).detach() for net in (made, found)]
    np.testing.assert_array_equal(values[0].numpy(), values[1].numpy())
    found.train()(x).sum().backward()
    rl.optim.SGD(found.parameters(), 0.5).step()
    assert found.layers[0].weight.grad is not None


def test_what_programs_save_beside_their_weights_needs_nothing() -> None:
    plain = {
        "args": argparse.Namespace(lr=0.5, sizes=[1, 2]),
        "space": types.SimpleNamespace(a=1),
        "lists": collections.defaultdict(list, {"a": [1]}),
        "last": collections.deque([1, 2], 3),
        "when": datetime.datetime(2020, 1, 2, 3),
        "how long": datetime.timedelta(1, 2),
        "where": pathlib.Path("/tmp/x"),
        "number": np.float32(2),
    }
    found = there_and_back(plain)
    assert found == plain
    assert found["lists"]["new"] == [] and found["last"].maxlen == 3
    file = io.BytesIO()
    rl.save(plain, file)
    file.seek(0)
    assert torch.load(file, weights_only=False) == plain
    file = io.BytesIO()
    torch.save(plain, file)
    file.seek(0)
    assert rl.load(file) == plain


def test_classes_are_used_only_where_they_are_allowed() -> None:
    settings = Settings(4, Kind.SECOND)
    assert there_and_back(settings, [Settings, Kind]) == settings
    for allowed in ([], [Settings], [Kind]):
        with pytest.raises(rl.RidgelineError, match=r"safe_globals\(\[(Settings|Kind)\]\)"):
            there_and_back(settings, allowed)
    RAN.clear()
    made = Counting()
    assert there_and_back(made, [Counting])._count == 1 and RAN == ["init"]
    rl.serialization.add_safe_globals([Settings, (Kind, f"{Kind.__module__}.Kind")])
    try:
        assert there_and_back(settings) == settings
        assert rl.serialization.get_safe_globals() == [Settings, Kind]
    finally:
        rl.serialization.clear_safe_globals()
    with pytest.raises(rl.RidgelineError, match="safe_globals"):
        there_and_back(settings)


def test_what_cannot_be_found_again_is_not_written(tmp_path: pathlib.Path) -> None:
    class Local:
        pass

    for value in (Local(), lambda: 1, open("/dev/null"), (n for n in [1])):  # noqa: SIM115
        with pytest.raises(rl.RidgelineError, match="cannot be written"):
            rl.save({"x": value}, tmp_path / "x.pt")
    assert not (tmp_path / "x.pt").exists()


@pytest.mark.parametrize(
    "text",
    [
        b"cbuiltins\ndict\n((((((ttttltR.",
        b"cbuiltins\nlist\n(X\x01\x00\x00\x00atR.",
        b"cridgeline.record.mutation\nTable\n(]tR.",
        b"cargparse\nNamespace\n)\x81K\x05b.",
        b"cargparse\nNamespace\n)\x81}K\x01K\x02sb.",
        b"ccollections\ndefaultdict\n(cos\nsystem\ntR.",
        b"cbuiltins\nlist\n)\x81.",
    ],
)
def test_names_of_plain_classes_are_no_way_in(text: bytes) -> None:
    head = b"".join(pickle.dumps(n, 2) for n in (0x1950A86A20F9469CFC6C, 1001, {}))
    file = io.BytesIO(head + b"\x80\x02" + text)
    with pytest.raises(rl.RidgelineError):
        rl.load(file)


def test_a_class_of_an_object_stays() -> None:
    file = io.BytesIO()
    made = argparse.Namespace()
    vars(made)["__class__"] = Settings
    rl.save(made, file)
    file.seek(0)
    with rl.serialization.safe_globals([Settings]):
        assert type(rl.load(file)) is argparse.Namespace
