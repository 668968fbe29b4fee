"""The examples in a small form: they run, learn something, and leave what they promise."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples"
DOCS = Path(__file__).parents[2] / "docs" / "examples.md"
HOST = ("kmeans.py",)  # estimators work on the host
TEXT = "The cat sat on the mat. The dog sat on the log. The frog sat on the bog. " * 60


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def example(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
):
    """Runs an example on a device, in a folder of its own; what it printed."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: str) -> str:
        place = () if name in HOST else ("--device", request.param)
        monkeypatch.setattr(sys, "argv", [name, *arguments, *place])
        runpy.run_path(str(FOLDER / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def numbers(pattern: str, text: str) -> list[float]:
    """The numbers that a pattern's group matches."""
    return [float(found) for found in re.findall(pattern, text)]


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")


def test_all_are_short_and_listed() -> None:
    listed = DOCS.read_text()
    for path in FOLDER.glob("*.py"):
        assert len(path.read_text().splitlines()) < 100, path
        assert path.name in listed, f"{path.name} is not in docs/examples.md"


def test_digits(example) -> None:
    (accuracy,) = numbers(r"accuracy ([\d.]+)%", example("digits.py", "--epochs", "4"))
    assert accuracy > 50


def test_char_gpt_and_generation(example, tmp_path: Path, capsys) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    small = ("--length", "16", "--width", "32", "--layers", "1", "--out", "run")
    example("char_gpt.py", "text.txt", "--epochs", "8", *small)
    assert (tmp_path / "run" / "config.json").exists()
    log = (tmp_path / "run" / "log.jsonl").read_text()
    losses = numbers(r'"loss": ([\d.]+)', log)
    assert len(losses) == 8 and losses[-1] < 0.6 * losses[0]
    out = example("generation.py", "run", "--prompt", "The ", "--tokens", "12", "--top-k", "3")
    assert out.startswith("The ") and len(out) == 4 + 12 + 1
    greedy = [example("generation.py", "run", "--tokens", "8", "--temperature", "0") for _ in "ab"]
    assert greedy[0] == greedy[1]


def test_lstm(example, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    out = example("lstm.py", "text.txt", "--epochs", "6", "--length", "16", "--hidden", "32")
    losses = numbers(r"loss ([\d.]+)", out)
    assert losses[-1] < 0.9 * losses[0] and "The cat sa" in out


def test_autoencoder(example, tmp_path: Path) -> None:
    out = example("autoencoder.py", "--epochs", "3", "--picture", "p.png")
    ((noisy, made),) = re.findall(r"error ([\d.]+) with noise, ([\d.]+) reconstructed", out)
    assert float(made) < 0.5 * float(noisy) and is_png(tmp_path / "p.png")


def test_gan(example, tmp_path: Path) -> None:
    arguments = ("--epochs", "1", "--width", "4", "--batch", "480", "--picture", "p.png")
    out = example("gan.py", *arguments)
    assert np.isfinite(numbers(r"generator ([\d.]+)", out)).all() and is_png(tmp_path / "p.png")


def test_gcn(example) -> None:
    (right,) = numbers(r"(\d+) of 34", example("gcn.py", "--epochs", "60"))
    assert right >= 28


def test_kmeans(example, tmp_path: Path) -> None:
    (share,) = numbers(r"([\d.]+)% of the images", example("kmeans.py", "--picture", "p.png"))
    assert share > 70 and is_png(tmp_path / "p.png")


def test_reinforce(example) -> None:
    out = example("reinforce.py", "--updates", "30", "--limit", "80")
    assert numbers(r"reward ([\d.]+)", out)[-1] > 45, "at random the pole falls after 22 steps"


def test_dqn(example) -> None:
    out = example("dqn.py", "--steps", "800", "--limit", "100")
    assert max(numbers(r"reward ([\d.]+)", out)) > 45


def test_fine_tuning(example) -> None:
    out = example("fine_tune.py", "--epochs", "6", "--file", "w.safetensors")
    ((tuned, fresh),) = re.findall(r"accuracy ([\d.]+)% tuned, ([\d.]+)% fresh", out)
    assert float(tuned) > float(fresh)
