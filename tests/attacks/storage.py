"""Killed processes, full disks and damaged files: what was saved is whole, and nothing else goes.

A trial runs a process that saves models, checkpoints and cache entries into a folder with files of
a user's beside them, kills it at a random moment or limits what it may write, or damages a file.
Afterwards every file is the old one or the new one, the next save cleans up, and the user's files
are as they were.
"""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import ridgeline as rl
from ridgeline.codegen.caches import OWN, ObjectCache, evict
from ridgeline.config import config
from ridgeline.interop.safetensors import read_tensors, write_tensors
from tests.attacks.attack import Attack
from tests.fuzz.faults import Fault

_WRITER = """
import sys, itertools, resource
import numpy as np
from pathlib import Path
from ridgeline.codegen.caches import ObjectCache
from ridgeline.interop.safetensors import write_tensors
folder, limit = Path(sys.argv[1]), int(sys.argv[2])
if limit:
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
print("begun", flush=True)
for number in itertools.count():
    values = np.full(50_000, number % 256, np.uint8)
    try:
        write_tensors(folder / "model.safetensors", {"w": values}, {})
    except OSError as error:
        assert "File too large" in str(error), error
        break
    ObjectCache("objects").put(f"key{number % 7}", bytes(values))
"""
_USERS = (
    "thesis.txt", "ridgeline-cache.txt", ".model.safetensors.tmp", "objects/ab/notes",
    f"{OWN}/objects/ab/{'a' * 40}",  # even inside the cache, under a name like an entry's
)  # fmt: skip


def _begin(folder: Path, limit: int) -> subprocess.Popen[str]:
    """A process that saves until it is stopped."""
    variables = {**os.environ, "RIDGELINE_CACHE_DIR": str(folder)}
    words = [sys.executable, "-W", "ignore", "-c", _WRITER, str(folder), str(limit)]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=variables)
    assert child.stdout is not None and child.stdout.readline() == "begun\n"
    return child


def _check_saved(folder: Path) -> None:
    """What lies there is one whole save; entries of the cache are whole or not there."""
    path = folder / "model.safetensors"
    if path.exists():
        arrays, _ = read_tensors(path)
        assert arrays["w"].size == 50_000 and len(set(arrays["w"].tolist())) == 1
    with config.override(cache_dir=str(folder)):
        for number in range(7):
            found = ObjectCache("objects").get(f"key{number}")
            assert found is None or (len(found) == 50_000 and len(set(found)) == 1)
        evict(folder / OWN, 60_000)  # so little that most entries go
        evict(folder / OWN, 0)


def _check_clean(folder: Path) -> None:
    """After one more save nothing unfinished is left, of models or of the cache."""
    write_tensors(folder / "model.safetensors", {"w": rl.ones(3).numpy()}, {})
    left = [p for p in folder.rglob(".*.tmp") if p.name not in _USERS]
    assert not left, f"left behind: {left}"


def _check_full(folder: Path) -> None:
    """A disk that is full when the last bytes should reach it."""
    path = folder / "model.safetensors"
    before, sync = path.read_bytes(), os.fsync

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    os.fsync = full
    try:
        write_tensors(path, {"w": rl.zeros(9).numpy()}, {})
    except OSError as error:
        assert "No space left" in str(error), error
    else:
        raise AssertionError("a full disk went unnoticed")
    finally:
        os.fsync = sync
    assert path.read_bytes() == before
    assert not [p for p in folder.glob(".*.tmp") if p.name not in _USERS]


def _damage(path: Path, draw: random.Random) -> None:
    """Cut off, overwritten, emptied, or a byte changed."""
    content = bytearray(path.read_bytes())
    kind = draw.randrange(4)
    if kind == 0:
        content = content[: draw.randrange(len(content))]
    elif kind == 1:
        content = bytearray(draw.randbytes(len(content)))
    elif kind == 2:
        content = bytearray()
    else:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def _check_damage(folder: Path, draw: random.Random) -> None:
    """A damaged model is an error that says so, or its numbers are as they were."""
    path = folder / "model.safetensors"
    _damage(path, draw)
    try:
        arrays, _ = read_tensors(path)
    except rl.RidgelineError:
        return
    assert arrays["w"].tolist() == [1, 1, 1], "damage was not noticed"


def trial(seed: int) -> None:
    """One process, stopped at a moment or by a limit of the seed."""
    draw = random.Random(seed)
    with TemporaryDirectory(prefix="ridgeline-storage-") as name:
        folder = Path(name)
        for own in _USERS:
            (folder / own).parent.mkdir(parents=True, exist_ok=True)
            (folder / own).write_text("a user's own")
            os.utime(folder / own, (1, 1))
        full = draw.random() < 0.3
        child = _begin(folder, 30_000 if full else 0)
        if full:
            assert child.wait(60) == 0
        else:
            time.sleep(draw.random() * 0.05)
            child.kill()
            child.wait()
        _check_saved(folder)
        _check_clean(folder)
        _check_full(folder)
        _check_damage(folder, draw)
        for own in _USERS:
            assert (folder / own).read_text() == "a user's own", own


ATTACK = Attack(
    "storage",
    "saves are whole or not there, and only what was written here is ever removed",
    trial,
    short=4,
    faults=(
        Fault("files are written in place", "files", "write_whole",
              'path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")', "path"),
        Fault("whatever killed writers left stays", "files", "sweep",
              '_remove_if_abandoned(Path(entry.path), int(found["process"]))', "pass"),
        Fault("eviction does not look at what it removes", "codegen.caches", "_is_entry",
              "file.read(len(_MAGIC)) == _MAGIC", "True"),
    ),
)  # fmt: skip
