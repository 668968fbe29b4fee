"""Folders of runs: no run overwrites another."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ridgeline.cli import train
from ridgeline.train.folders import check_free, holds_run, last_folder, new_folder


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    return parser.parse_args(["lenet", *words])


def finish(folder: Path) -> Path:
    (folder / "log.jsonl").write_text("{}\n")
    return folder


def test_runs_without_a_name_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for wanted in ("lenet", "lenet-2", "lenet-3"):
        assert finish(train._folder(parsed())) == Path("runs", wanted)
        assert train._folder(parsed("--resume")) == Path("runs", wanted)


def test_a_named_folder_with_a_run_is_refused(tmp_path: Path) -> None:
    named = ("--out", str(tmp_path))
    assert train._folder(parsed(*named)) == tmp_path
    (tmp_path / "notes.txt").write_text("a user's own")
    (tmp_path / "log.jsonl").write_text("")  # of a run that never began
    assert train._folder(parsed(*named)) == tmp_path
    for name in ("checkpoint.safetensors", "model.safetensors", "log.jsonl"):
        (tmp_path / name).write_bytes(b"something")
        assert holds_run(tmp_path)
        with pytest.raises(OSError, match="holds a run already"):
            train._folder(parsed(*named))
        assert train._folder(parsed(*named, "--resume")) == tmp_path
        (tmp_path / name).unlink()


def test_of_two_that_begin_at_once_one_gets_a_folder(tmp_path: Path) -> None:
    first, second = (new_folder(tmp_path / "run") for _ in range(2))
    assert (first.name, second.name) == ("run", "run-2") and second.is_dir()
    finish(first)
    assert last_folder(tmp_path / "run") == first  # the other never began


def test_a_file_in_the_way_is_passed_over_and_a_folder_that_cannot_be_made_is_an_error(
    tmp_path: Path,
) -> None:
    (tmp_path / "run").write_text("a file")
    assert new_folder(tmp_path / "run").name == "run-2"
    with pytest.raises(OSError, match="cannot make"):
        new_folder(tmp_path / "run" / "inside")
    check_free(tmp_path / "elsewhere", "--resume")
