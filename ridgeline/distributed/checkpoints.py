"""Sharded checkpoints: every rank writes what it has, and any other mesh reads it.

A checkpoint is a folder: a file of each rank that has something to write, and `index.json`, which
says where each part of each value is. It is written under another name and renamed when all is
there, so a folder under its own name is whole. Of what several ranks have alike the first writes.
Reading maps files, and a rank copies the parts that overlap with its own: none holds
the whole. A model is changed when everything has been read.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ridgeline import nn
from ridgeline.communicators.current import Rank, current_rank
from ridgeline.data.dataset import as_array
from ridgeline.devices import is_mesh
from ridgeline.errors import InputFileError, PlacementError
from ridgeline.files import write_whole
from ridgeline.functions.random import chosen_generator
from ridgeline.interop.safetensors import map_tensors, write_tensors
from ridgeline.ops.placed import Partial, Replicate
from ridgeline.record.memory import settled
from ridgeline.record.modes import no_grad
from ridgeline.runtime.buffer import space
from ridgeline.scalars import Array
from ridgeline.sharding.memory import MeshBuffer, RankOnMesh, on_mesh
from ridgeline.sharding.mesh_shapes import Spec, factors, local_shape
from ridgeline.tensors.tensor import Tensor, filled
from ridgeline.weak import WeakMap

FORMAT = "ridgeline-sharded-checkpoint-1"
INDEX = "index.json"
_PATIENCE = 600.0  # seconds that the first rank waits for the files of the others


@dataclass
class Saving:
    """A checkpoint that is being written beside the program."""

    path: Path
    _thread: threading.Thread | None = None
    _failed: list[BaseException] = field(default_factory=list)

    def wait(self) -> None:
        """Return when this rank has written; on the first rank, when the checkpoint is whole."""
        if self._thread is not None:
            self._thread.join()
        if self._failed:
            raise self._failed[0]


def save_checkpoint(
    path: str | Path,
    model: nn.Module,
    optimizer: Any = None,
    loader: Any = None,
    extra: Mapping[str, Any] | None = None,
    asynchronous: bool = False,
) -> Saving:
    """Write a checkpoint; all ranks call it. `extra` is kept as JSON.

    With `asynchronous` it is written beside the program, of the values that there are now.
    """
    folder, rank = Path(path), current_rank()
    world = rank.world
    _wait_for_earlier(rank, folder)
    parts, arrays = dict[str, Any](), dict[str, Array]()
    for name, value in _values(model, optimizer):
        part = _own_part(value, world.rank)
        if part is not None:
            starts, array, shape = part
            # beside the program its memory may be overwritten meanwhile
            arrays[name] = np.array(array) if asynchronous else array
            parts[name] = {"starts": starts, "shape": list(map(int, array.shape)), "whole": shape}
    plain = _plain_state(optimizer, loader, extra) if world.rank == 0 else {}
    saving = Saving(folder)
    work = _Writing(folder, world.rank, world.size, arrays, parts, plain)
    temporary = _temporary(folder)
    if world.rank == 0:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    world.barrier()  # the folder is there, and nothing old is in it
    if not asynchronous:
        work.write()
        world.barrier()
        return saving
    saving._thread = threading.Thread(target=work.guarded, args=(saving._failed,), daemon=False)
    saving._thread.start()
    if rank not in _under_way:
        _under_way[rank] = {}
    _under_way[rank][folder] = saving
    return saving


_under_way: WeakMap[Rank, dict[Path, Saving]] = WeakMap()


def _wait_for_earlier(rank: Rank, folder: Path) -> None:
    """A checkpoint that is still being written under the same name is finished first."""
    earlier = (_under_way.get(rank) or {}).pop(folder, None)
    if earlier is not None:
        earlier.wait()


def _temporary(folder: Path) -> Path:
    return folder.with_name(folder.name + ".partial")


def _before(folder: Path) -> Path:
    """Where the last checkpoint of a name is while the next one takes its place."""
    return folder.with_name(folder.name + ".before")


def find_checkpoint(path: str | Path) -> Path | None:
    """The last whole checkpoint that was written under a name, if there is one.

    A job that was killed while one took the place of another has that of before.
    """
    for folder in (Path(path), _before(Path(path))):
        if (folder / INDEX).is_file():
            return folder
    return None


@dataclass(frozen=True)
class _Writing:
    """What one rank writes."""

    folder: Path
    rank: int
    size: int
    arrays: Mapping[str, Array]
    parts: Mapping[str, Any]
    plain: Mapping[str, Any]

    def guarded(self, failed: list[BaseException]) -> None:
        """Write, and keep what goes wrong for who waits."""
        try:
            self.write()
        except BaseException as error:
            failed.append(error)

    def write(self) -> None:
        """Write this rank's file; the first rank makes the checkpoint whole when all are there."""
        temporary = _temporary(self.folder)
        name = f"rank-{self.rank:05d}.safetensors"
        try:
            write_tensors(temporary / name, self.arrays, {"format": FORMAT})
            said = json.dumps({"file": name, "parts": self.parts})
            write_whole(temporary / f"{self.rank}.json", said.encode())
        except BaseException:
            with suppress(OSError):  # the first rank is told, and does not wait for it
                (temporary / f"{self.rank}.failed").touch()
            raise
        if self.rank == 0:
            self._finish(temporary)

    def _finish(self, temporary: Path) -> None:
        notes = [temporary / f"{rank}.json" for rank in range(self.size)]
        until = time.monotonic() + _PATIENCE
        while not all(note.exists() for note in notes):
            failed = [n for n in range(self.size) if (temporary / f"{n}.failed").exists()]
            if failed or time.monotonic() > until:
                who = f"rank {failed[0]} has not" if failed else "not all ranks have"
                raise InputFileError(f"{temporary}: {who} written its parts")
            time.sleep(0.005)
        values: dict[str, list[Any]] = {}
        for note in notes:
            found = json.loads(note.read_text())
            for name, part in found["parts"].items():
                values.setdefault(name, []).append({"file": found["file"], **part})
            note.unlink()
        index = {"format": FORMAT, "values": values, "state": self.plain}
        with (temporary / INDEX).open("w") as file:
            json.dump(index, file)
            file.flush()
            os.fsync(file.fileno())
        before = _before(self.folder)
        if self.folder.exists():
            shutil.rmtree(before, ignore_errors=True)
            self.folder.rename(before)
        temporary.rename(self.folder)
        shutil.rmtree(before, ignore_errors=True)


def _values(model: nn.Module, optimizer: Any) -> Iterator[tuple[str, Tensor]]:
    """Tensors by name: the model's, and the optimizer's by parameter and kind."""
    names = {}
    for name, value in model.state_dict(keep_vars=True).items():
        yield f"model.{name}", value
    for name, parameter in model.named_parameters():
        names[id(parameter)] = name
    if optimizer is not None:
        for parameter, state in optimizer.state.items():
            for kind, value in state.items():
                if isinstance(value, Tensor):
                    yield f"optimizer.{names.get(id(parameter), '?')}.{kind}", value


def _own_part(value: Tensor, rank: int) -> tuple[list[int], Array, list[int]] | None:
    """Where this rank's part of a value begins, and the part; None where another writes it."""
    whole = list(map(int, value.shape))
    if not is_mesh(value.device):
        return ([0] * len(whole), as_array(value), whole) if rank == 0 else None
    memory: MeshBuffer = settled(value._cell).buffer
    here = on_mesh(value.device.index or 0)
    if any(isinstance(p, Partial) for p in memory.spec):
        raise PlacementError("a value in parts that are still to be summed cannot be saved")
    if memory.local is None or not _writes(here, memory):
        return None
    shape = local_shape(here.shape, memory.spec, whole, here.place)
    return _starts(here, memory.spec, whole), memory.local.array(value.dtype, shape), whole


def _writes(here: RankOnMesh, memory: MeshBuffer) -> bool:
    """True for the first of the ranks that have the same part."""
    for name, place, placement in zip(here.shape.names, here.place, memory.spec):
        first = memory.stages[0] if name == "pp" and memory.stages is not None else 0
        if isinstance(placement, Replicate) and place != first:
            return False
    return True


def _starts(here: RankOnMesh, spec: Spec, whole: list[int]) -> list[int]:
    found = []
    for dim, size in enumerate(whole):
        (part,) = factors(here.shape, spec, dim, size, here.place)
        found.append(part.start)
    return found


def _plain_state(optimizer: Any, loader: Any, extra: Mapping[str, Any] | None) -> dict[str, Any]:
    groups = []
    for group in [] if optimizer is None else optimizer.param_groups:
        settings = {key: value for key, value in dict.items(group) if key != "params"}
        groups.append(settings)
    return {
        "groups": groups,
        "loader": None if loader is None else loader.state_dict(),
        "random": list(chosen_generator().get_state()),
        "extra": dict(extra or {}),
    }


def load_checkpoint(
    path: str | Path, model: nn.Module, optimizer: Any = None, loader: Any = None
) -> dict[str, Any]:
    """Take a checkpoint into a model on any mesh, or on none; what `extra` was."""
    _wait_for_earlier(current_rank(), Path(path))
    folder = find_checkpoint(path) or Path(path)
    index = _index(folder)
    files: dict[str, Mapping[str, Array]] = {}
    read: list[tuple[Tensor, Tensor]] = []
    with no_grad():
        for name, value in _values(model, optimizer):
            parts = index["values"].get(name)
            if parts is None:
                raise InputFileError(
                    f"{folder} has no value {name!r}", help="is the model another?"
                )
            if parts[0]["whole"] != list(map(int, value.shape)):
                raise InputFileError(
                    f"{folder}: {name} has shape {parts[0]['whole']}, expected {list(value.shape)}"
                )
            found_here = _read(value, name, parts, folder, files)
            if found_here is not None:
                read.append((value, found_here))
        for value, values in read:
            value.data = values
    state = index["state"]
    for group, saved in zip([] if optimizer is None else optimizer.param_groups, state["groups"]):
        group.update({k: tuple(v) if isinstance(v, list) else v for k, v in saved.items()})
    if loader is not None and state["loader"] is not None:
        loader.load_state_dict(state["loader"])
    seed, offset = state["random"]
    chosen_generator().set_state((seed, offset))
    found: dict[str, Any] = state["extra"]
    return found


def _index(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / INDEX).read_text())
    except (OSError, ValueError) as error:
        raise InputFileError(
            f"{folder} is no whole checkpoint: its index cannot be read",
            note=str(error),
            help="a folder that ends in .partial was not finished; use the one before",
        ) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputFileError(f"{folder} is not a sharded checkpoint")
    if not _is_index(found):
        raise InputFileError(
            f"{folder}: its index is damaged", help="use another copy of the checkpoint"
        )
    return found


def _is_index(found: dict[str, Any]) -> bool:
    """True where an index says what one has to say, of files in its own folder."""
    values, state = found.get("values"), found.get("state")
    if not isinstance(values, dict) or not isinstance(state, dict):
        return False
    groups, extra, random = (state.get(name) for name in ("groups", "extra", "random"))
    if not isinstance(groups, list) or not isinstance(extra, dict) or "loader" not in state:
        return False
    if not isinstance(random, list) or [type(number) for number in random] != [int, int]:
        return False
    return all(isinstance(p, list) and p and all(map(_is_part, p)) for p in values.values())


def _is_part(part: Any) -> bool:
    if not isinstance(part, dict) or not isinstance(part.get("file"), str):
        return False
    sizes: list[Any] = [part.get(name) for name in ("starts", "shape", "whole")]
    if not all(map(_are_sizes, sizes)) or len(set(map(len, sizes))) != 1:
        return False
    return re.fullmatch(r"rank-\d+\.safetensors", part["file"]) is not None


def _are_sizes(found: Any) -> bool:
    return isinstance(found, list) and all(type(n) is int and n >= 0 for n in found)


def _read(
    value: Tensor, name: str, parts: list[Any], folder: Path, files: dict[str, Mapping[str, Array]]
) -> Tensor | None:
    """This rank's part of a saved value, as a tensor like one of the model; None if it has none."""
    whole = list(map(int, value.shape))
    if not is_mesh(value.device):
        array = np.empty(whole, value.dtype.numpy)
        _copy(array, [0] * len(whole), name, parts, folder, files)
        return filled(value._type, space(value.device).take_in(array))
    memory: MeshBuffer = settled(value._cell).buffer
    here = on_mesh(value.device.index or 0)
    if memory.local is None:
        return None
    local = np.empty(local_shape(here.shape, memory.spec, whole, here.place), value.dtype.numpy)
    _copy(local, _starts(here, memory.spec, whole), name, parts, folder, files)
    own = space(here.device).take_in(local)
    made = MeshBuffer(memory.device, own, memory.spec, memory.nbytes, memory.stages)
    return filled(value._type, made)


def _copy(
    target: Array,
    starts: list[int],
    name: str,
    parts: list[Any],
    folder: Path,
    files: dict[str, Mapping[str, Array]],
) -> None:
    """Copy what overlaps of every part."""
    is_there = np.zeros(target.shape, bool)
    for part in parts:
        low = [max(a, b) for a, b in zip(starts, part["starts"])]
        ends = [
            min(a + n, b + m)
            for a, n, b, m in zip(starts, target.shape, part["starts"], part["shape"])
        ]
        if any(end <= begin for begin, end in zip(low, ends)):
            continue
        if part["file"] not in files:
            files[part["file"]] = map_tensors(folder / part["file"])[0]
        source = files[part["file"]].get(name)
        if source is None or list(source.shape) != part["shape"]:
            raise InputFileError(f"{folder}: {part['file']} does not have its part of {name}")
        into = tuple(slice(b - s, e - s) for b, e, s in zip(low, ends, starts))
        out_of = tuple(slice(b - s, e - s) for b, e, s in zip(low, ends, part["starts"]))
        target[into] = source[out_of]
        is_there[into] = True
    if not is_there.all():
        raise InputFileError(f"{folder}: parts of {name} are missing")
