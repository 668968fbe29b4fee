"""torch's paths lead to our modules, missing names say what is near, and einops knows tensors."""

from __future__ import annotations

import struct
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import ridgeline as rl
from ridgeline.utils.tensorboard import SummaryWriter, checksum

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("path", "name", "home"),
    [
        ("nn.modules.linear", "Linear", "nn"), ("nn.modules.conv", "Conv2d", "nn"),
        ("nn.modules.activation", "MultiheadAttention", "nn"), ("utils.data", "DataLoader", "data"),
        ("utils.data.dataloader", "DataLoader", "data"), ("cuda.amp", "GradScaler", "amp.cuda"),
        ("distributions.categorical", "Categorical", "distributions"), ("jit", "script", "jit"),
        ("optim.adamw", "AdamW", "optim"), ("backends.cudnn", "benchmark", "backends.cudnn"),
    ],
)  # fmt: skip
def test_a_path_of_torch_has_our_names(path: str, name: str, home: str) -> None:
    found, own = getattr(import_module(f"ridgeline.{path}"), name), rl
    for part in home.split("."):
        own = getattr(own, part, None) or import_module(f"ridgeline.{home}")
    assert found is getattr(own, name)


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        (rl, "matmull", "Did you mean matmul"), (rl.nn, "Linar", "Did you mean Linear"),
        (rl, "export", "from_torch_export reads"), (rl.nn.functional, "relux", "Did you mean relu"),
        (rl.nn, "interpolate", "nn.functional.interpolate"), (rl.optim, "Adamm", "Adam"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_missing_name_says_what_is_near(module: object, name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=said):
        getattr(module, name)


def test_dir_is_complete_and_clean() -> None:
    shown = dir(rl)
    assert {"nn", "utils", "load", "compile", "FloatTensor", "relu_", "func"} <= set(shown)
    assert not {"importlib", "partial", "codegen", "upcalls", "Any", "ModuleType"} & set(shown)
    assert all(hasattr(rl, name) for name in shown)


@pytest.mark.parametrize("first", ["ridgeline", "einops"])
def test_einops_knows_tensors_in_either_order(first: str) -> None:
    pytest.importorskip("einops")
    second = "einops" if first == "ridgeline" else "ridgeline"
    program = f"import {first}, {second}\nx = ridgeline.ones(2, 3)\n"
    program += "print(tuple(einops.rearrange(x, 'a b -> b a').shape))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "(3, 2)"


def test_a_child_prints_itself() -> None:
    class Named(rl.nn.Module):
        def __repr__(self) -> str:
            return "Named!"

    net = rl.nn.Sequential(Named())
    assert "(0): Named!" in repr(net) and "Named!" in net._repr_html_()


def test_event_files_are_records_with_checksums(tmp_path: Path) -> None:
    assert checksum(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) % 2**32
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", rl.tensor(0.5), 3)
        writer.add_histogram("weights", rl.arange(10.0), 3)
        writer.add_image("image", rl.ones(3, 4, 5), 3)
        writer.add_text("note", "words")
    (file,) = tmp_path.iterdir()
    data, events = file.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event = data[12 : 12 + length]
        assert struct.unpack("<I", data[8:12])[0] == checksum(data[:8])
        assert struct.unpack("<I", data[12 + length : 16 + length])[0] == checksum(event)
        events.append(event)
        data = data[16 + length :]
    assert len(events) == 5 and b"brain.Event:2" in events[0]
    assert b"\x0a\x04loss\x15" + struct.pack("<f", 0.5) in events[1]
    assert b"\x89PNG" in events[3]
