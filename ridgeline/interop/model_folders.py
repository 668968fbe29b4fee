"""Where published models lie on this machine: a folder, or what Hugging Face's tools downloaded.

`folder_of("org/name")` finds the newest download of that name; nothing is fetched.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ridgeline.errors import MissingFileError, path_of

_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def folder_of(given: object, what: str) -> Path:
    """The folder that a path or the name of a downloaded model means."""
    path = path_of(given, what)
    if path.is_dir():
        return path
    name = path.as_posix()
    found = _downloaded(name) if _NAME.fullmatch(name) else None
    if found is not None:
        return found
    raise MissingFileError(
        f"there is no folder {path}",
        help="give the folder that holds config.json and the weights; nothing is fetched: "
        f"`hf download {name}` (of the package huggingface_hub) brings a published model here, "
        "and its name is enough then"
        if _NAME.fullmatch(name)
        else "give the folder that holds config.json and the weights",
    )


def _downloaded(name: str) -> Path | None:
    """The folder of a download, by the rules of the package huggingface_hub."""
    model = _cache() / f"models--{name.replace('/', '--')}"
    try:
        commit = (model / "refs" / "main").read_text().strip()
    except OSError:
        return None
    folder = model / "snapshots" / commit
    return folder if re.fullmatch(r"\w+", commit) and folder.is_dir() else None


def _cache() -> Path:
    settings = os.environ
    home = settings.get("XDG_CACHE_HOME") or "~/.cache"
    base = settings.get("HF_HOME") or f"{home}/huggingface"
    return Path(settings.get("HF_HUB_CACHE") or f"{base}/hub").expanduser()
