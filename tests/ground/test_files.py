"""Files are written whole; what killed writers left is removed, what others write is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ridgeline as rl
from ridgeline.errors import OutputFileError
from ridgeline.files import sweep, write_whole
from ridgeline.interop.safetensors import write_atomic

WRITER = """
import os, sys, time
from pathlib import Path
from ridgeline import files
def wait(*names):
    print("written", flush=True)
    time.sleep(60)
os.replace = wait
files.write_whole(Path(sys.argv[1]), b"half" * 1000)
"""


def writer(path: Path) -> subprocess.Popen[str]:
    """A process in the middle of a save."""
    words = [sys.executable, "-c", WRITER, str(path)]
    made = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None and made.stdout.readline() == "written\n"
    return made


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_killed_save_is_cleaned_up_by_the_next_and_one_under_way_is_left(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_atomic(path, b"old")
    killed, busy = writer(path), writer(tmp_path / "other")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(names(tmp_path)) == 3
    for aged in tmp_path.glob(".*"):
        os.utime(aged, (1, 1))  # age alone says nothing while a writer lives
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert len([name for name in names(tmp_path) if name.startswith(".other.")]) == 1
    assert not [name for name in names(tmp_path) if name.startswith(".model")]
    busy.kill()
    busy.wait()
    sweep(tmp_path)
    assert names(tmp_path) == {"model.safetensors"}


def test_a_name_like_ours_is_left_while_its_process_may_live(tmp_path: Path) -> None:
    fresh = tmp_path / f".model.{os.getpid()}-0123abcd.tmp"
    own = tmp_path / ".model.backup.tmp"
    for path in (fresh, own):
        path.write_bytes(b"something")
    os.utime(own, (1, 1))
    sweep(tmp_path)
    assert names(tmp_path) == {fresh.name, own.name}
    before = time.time() - 3600
    os.utime(fresh, (before, before))
    sweep(tmp_path)
    assert names(tmp_path) == {own.name}


@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    path = tmp_path / "model"
    write_whole(path, b"old")

    def fail(*names: object) -> None:
        raise kind

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(kind):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old" and names(tmp_path) == {"model"}


def test_a_full_disk_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputFileError, match="No space left"):
        write_atomic(tmp_path / "deep" / "model", b"new")
    assert names(tmp_path / "deep") == set()
    assert issubclass(OutputFileError, rl.RidgelineError)
