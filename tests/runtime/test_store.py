"""The disk cache: damage, crashes, concurrent writers, eviction and permissions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ridgeline.codegen.caches import OWN, TAG, ObjectCache, cache_root, evict
from ridgeline.config import config


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with config.override(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache" / OWN


def entries(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and path.name != TAG)


def test_what_is_put_comes_back(root: Path) -> None:
    cache = ObjectCache("objects")
    assert cache.get("key") is None
    cache.put("key", b"value")
    cache.put("empty", b"")
    assert cache.get("key") == b"value"
    assert cache.get("empty") == b""
    assert ObjectCache("plans").get("key") is None
    cache.put("key", b"another")
    assert cache.get("key") == b"another"
    assert root.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("place", [0, 10, 30, -1])
def test_damage_is_noticed(root: Path, place: int) -> None:
    cache = ObjectCache("objects")
    cache.put("key", b"x" * 100)
    (path,) = entries(root)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    assert cache.get("key") is None
    assert entries(root) == []
    cache.put("key", b"new")
    assert cache.get("key") == b"new"


def test_truncation_and_exchange_are_noticed(root: Path) -> None:
    cache = ObjectCache("objects")
    cache.put("one", b"1" * 50)
    (one,) = entries(root)
    cache.put("two", b"2" * 50)
    (two,) = (path for path in entries(root) if path != one)
    two.write_bytes(one.read_bytes())
    assert cache.get("two") is None
    one.write_bytes(one.read_bytes()[:40])
    assert cache.get("one") is None
    one.write_bytes(b"")
    assert cache.get("one") is None


def test_a_crash_while_writing_leaves_no_entry(root: Path) -> None:
    script = """
import os
from ridgeline.codegen.caches import ObjectCache
os.replace = lambda *names: os._exit(9)
ObjectCache("objects").put("key", b"half")
"""
    environment = {**os.environ, "RIDGELINE_CACHE_DIR": str(root.parent)}
    assert subprocess.run([sys.executable, "-c", script], env=environment).returncode == 9
    assert ObjectCache("objects").get("key") is None


def test_concurrent_writers_and_readers_see_whole_entries(root: Path) -> None:
    script = """
import sys
from ridgeline.codegen.caches import ObjectCache
cache, mark = ObjectCache("objects"), sys.argv[1].encode()
for round in range(150):
    for key in "abc":
        cache.put(key, mark * (5000 + 100 * round))
        seen = cache.get(key)
        assert seen is not None and len(set(seen)) == 1 and len(seen) >= 5000, key
"""
    environment = {**os.environ, "RIDGELINE_CACHE_DIR": str(root.parent)}
    writers = [
        subprocess.Popen([sys.executable, "-c", script, mark], env=environment) for mark in "123"
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert len(entries(root)) == 3


def test_eviction_removes_the_longest_unused(root: Path) -> None:
    cache = ObjectCache("objects")
    for number in range(10):
        cache.put(str(number), bytes(1000))
    for age, path in enumerate(entries(root)):
        os.utime(path, (age, age))
    assert cache.get("0") is not None  # used just now
    evict(root, 5000)
    assert cache.get("0") is not None
    assert sum(path.stat().st_size for path in entries(root)) <= 5000
    evict(root, 1 << 20)
    assert entries(root)


def test_a_folder_others_can_write_to_is_not_used(root: Path) -> None:
    root.mkdir(parents=True)
    root.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="can write"):
        ObjectCache("objects").put("key", b"value")
    assert ObjectCache("objects").get("key") is None
    assert entries(root) == []


def test_an_unusable_folder_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with config.override(cache_dir=str(tmp_path / "file/cache")):
        with pytest.warns(RuntimeWarning, match="no disk cache"):
            ObjectCache("objects").put("key", b"value")
        assert ObjectCache("objects").get("key") is None


def test_a_cap_of_zero_means_no_cache(root: Path) -> None:
    with config.override(cache_max_bytes=0):
        ObjectCache("objects").put("key", b"value")
        assert ObjectCache("objects").get("key") is None
    assert not root.exists()


def test_the_place_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    with config.override(cache_dir=""):
        monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
        assert cache_root() == Path("/somewhere/ridgeline")
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        monkeypatch.setenv("HOME", "/home/someone")
        assert cache_root() == Path("/home/someone/.cache/ridgeline")


def test_namespaces_are_plain_words() -> None:
    with pytest.raises(ValueError, match="namespace"):
        ObjectCache("../elsewhere")


def test_files_beside_the_cache_and_inside_it_that_it_did_not_write_stay(root: Path) -> None:
    """The folder may be a user's home, and a folder in it may have any name."""
    cache = ObjectCache("objects")
    cache.put("key", bytes(4000))
    (entry,) = entries(root)
    own = [
        root.parent / "thesis.txt", root.parent / "objects" / "ab" / ("a" * 40),
        root / "notes.txt", root / "objects" / "notes.txt", entry.parent / "notes.txt",
        entry.parent / ("b" * 40), entry.parent / ".new-abc", root / "photos" / "zz" / ("c" * 40),
    ]  # fmt: skip
    outside = root.parent / "far"
    for path in (*own, outside / "ab" / ("d" * 40)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(5000))
        os.utime(path, (1, 1))
    (root / "linked").symlink_to(outside)
    (entry.parent / ("e" * 40)).symlink_to(own[0])
    evict(root, 1000)
    assert not entry.exists()
    assert all(path.exists() for path in own)
    assert (outside / "ab" / ("d" * 40)).exists() and (entry.parent / ("e" * 40)).is_symlink()


def test_a_folder_of_its_own_is_tagged_and_another_is_not_taken(tmp_path: Path) -> None:
    with config.override(cache_dir=str(tmp_path)):
        (tmp_path / OWN).mkdir()
        (tmp_path / OWN / "letter.txt").write_text("a user's own")
        with pytest.warns(RuntimeWarning, match="holds other files"):
            ObjectCache("objects").put("key", b"value")
        assert entries(tmp_path) == [tmp_path / OWN / "letter.txt"]
    with config.override(cache_dir=str(tmp_path / "home")):
        ObjectCache("objects").put("key", b"value")
        tag = (tmp_path / "home" / OWN / TAG).read_bytes()
        assert tag.startswith(b"Signature: 8a477f597d28d172789f06886806bc55")


def test_what_a_killed_writer_left_is_swept(root: Path) -> None:
    cache = ObjectCache("objects")
    cache.put("key", b"value")
    (entry,) = entries(root)
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = entry.with_name(f".{entry.name}.{dead.pid}-0123abcd.tmp")
    left.write_bytes(b"half")
    evict(root, 1 << 20)
    assert not left.exists() and cache.get("key") == b"value"


def test_an_unfinished_tag_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f".{TAG}.{_ended_process()}-0123abcd.tmp"
    left.write_bytes(b"Signature")
    evict(tmp_path, 1 << 20)
    assert not left.exists()


def _ended_process() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid
