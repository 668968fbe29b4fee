"""Damaged and hostile program files: an error each, before anything of them is mapped.

A seed damages one file in several ways. Half of the damages go with a new hash, as a hostile writer
would make it: then what the manifest and the headers say must be refused, or be sound.
"""

from __future__ import annotations

import tempfile
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from random import Random

import ridgeline as rl
from ridgeline.deploy.file import checked
from tests.attacks.attack import Attack
from tests.fuzz.faults import Fault

DAMAGES = 50  # of a seed
_DIGEST = 32


@lru_cache(maxsize=1)
def whole() -> bytes:
    """A small program file."""
    weight = rl.arange(12.0).reshape(3, 4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.rlx"
        jitted = rl.jit(lambda x: (x @ weight).relu())
        jitted.export(path, rl.ones(2, 3), instruction_sets=["x86-64-v3"])
        return path.read_bytes()


def damaged(random: Random) -> bytes:
    """The file with bits flipped, parts lost, doubled, zeroed or moved."""
    content = bytearray(whole())
    size = len(content)
    first, length = random.randrange(size), random.choice((1, 2, 8, 64, 4096))
    kind = random.randrange(7)
    if kind == 0:
        content[first] ^= 1 << random.randrange(8)
    elif kind == 1:
        del content[first:]
    elif kind == 2:
        del content[first : first + length]
    elif kind == 3:
        content[first:first] = content[first : first + length]
    elif kind == 4:
        content[first : first + length] = bytes(length)
    elif kind == 5:
        content[first : first + length] = random.randbytes(length)
    else:
        content += random.randbytes(length)
    return bytes(content)


def trial(seed: int) -> None:
    """Damage the file in many ways; every way is an error of ours."""
    random = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.rlx"
        for _ in range(DAMAGES):
            content = damaged(random)
            if content == whole():
                continue
            path.write_bytes(content)
            try:
                rl.load_program(path)
            except rl.RidgelineError:
                pass
            else:
                raise AssertionError(f"a file with {len(content)} bytes was loaded, damaged")
            hashed(content)
    for field in range(16):
        hostile(random, field)


def hashed(content: bytes) -> None:
    """A damage with the hash that belongs to it: refused, or described without harm."""
    body = content[:-_DIGEST]
    try:
        checked(body + blake2b(body, digest_size=_DIGEST).digest(), "hashed")
    except rl.RidgelineError:
        return


def hostile(random: Random, field: int) -> None:
    """Sizes and offsets of the ELF header's segments that lie outside of the file are refused."""
    content = bytearray(whole()[:-_DIGEST])
    at = 64 + 56 * (field % 4) + (8, 32, 40, 48)[field // 4]  # offset, stored, extent, alignment
    wrong = random.choice((1 << 62, len(content) + (1 << 24) + 1, (1 << 64) - 1))
    content[at : at + 8] = wrong.to_bytes(8, "little")
    body = bytes(content)
    try:
        checked(body + blake2b(body, digest_size=_DIGEST).digest(), "hostile")
    except rl.RidgelineError:
        return
    raise AssertionError(f"a segment outside of the file was accepted (field {field})")


ATTACK = Attack(
    "program_files",
    "a damaged or hostile program file is an error, before any of it is mapped",
    trial,
    short=10,
    faults=(
        Fault("the hash is not looked at", "deploy.file", "checked",
              "!= content[-_DIGEST:]", "== b\"\""),
        Fault("a segment may lie outside of the file", "deploy.file", "_check_segments",
              "if not (fits and apart and aligned):", "if not (apart and aligned):"),
    ),
)  # fmt: skip
