"""Files are written whole; what killed writers left is removed, what others write is not."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import ridgeline as rl
from ridgeline.errors import OutputFileError
from ridgeline.files import sweep, write_atomic, write_whole

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


def test_through_a_link_the_file_is_written_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    target, link = tmp_path / "runs" / "first", tmp_path / "latest"
    target.write_bytes(b"old")
    link.symlink_to(target)
    rl.save(rl.ones(2), link)
    assert link.is_symlink() and rl.load(target).tolist() == [1, 1]
    assert names(tmp_path) == {"runs", "latest"} and names(tmp_path / "runs") == {"first"}


def test_who_may_read_a_file_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"old")
    path.chmod(0o600)
    rl.save(rl.ones(2), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without named pipes")
def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    """As `/dev/stdout` and `/dev/null` are: a new file in their place would be everybody's."""
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_atomic(pipe, b"content")
    reader.join()
    assert read == [b"content"] and stat.S_ISFIFO(pipe.stat().st_mode)
    assert names(tmp_path) == {"pipe"}


def _vocabulary(path: Path) -> None:
    rl.data.CharTokenizer(["a", "b"]).save(path)


def _trace(path: Path) -> None:
    with rl.profiler.profile() as measured:
        pass
    measured.export_chrome_trace(str(path))


@pytest.mark.parametrize("write", [
    _vocabulary, _trace,
    lambda path: rl.vision.io.write_file(path, rl.zeros(9, dtype=rl.uint8)),
    lambda path: rl.jit(lambda x: x + 1).export(path, rl.ones(2)),
    lambda path: rl.onnx.export(rl.nn.Linear(2, 2), (rl.ones(1, 2),), str(path)),
    lambda path: rl.save(rl.ones(2), path),
])  # fmt: skip
def test_a_full_disk_leaves_every_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], object]
) -> None:
    path = tmp_path / "file"
    write(path)
    before = path.read_bytes()

    def full(number: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputFileError, match=r"cannot write .*: No space left"):
        write(path)
    assert path.read_bytes() == before and names(tmp_path) == {"file"}


def test_two_writers_of_events_have_files_of_their_own(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        with rl.utils.tensorboard.SummaryWriter(str(tmp_path)) as writer:
            writer.add_scalar("loss", value)
    assert len(names(tmp_path)) == 2 and all(path.stat().st_size for path in tmp_path.iterdir())
