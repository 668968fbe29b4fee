"""torch.hub, as far as weights go: files by their address, kept in a folder; no code is fetched."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import urlopen

from ridgeline.errors import InputFileError, RidgelineError, unreadable
from ridgeline.files import write_atomic
from ridgeline.serialization import load as _load

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_folder = [""]


def get_dir() -> str:
    """The folder of what was fetched: set, or $TORCH_HOME/hub, or below the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    base = os.environ.get("TORCH_HOME", f"{cache}/torch")
    return _folder[0] or os.path.expanduser(f"{base}/hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Keep what is fetched in another folder."""
    _folder[0] = os.path.expanduser(d)


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Fetch a file, whole or not at all; its SHA-256 must begin with `hash_prefix`."""
    try:
        with urlopen(url) as answer:
            data = answer.read()
    except OSError as error:
        raise unreadable(url, error, help=f"put the file at {dst} by hand") from error
    if hash_prefix and not hashlib.sha256(data).hexdigest().startswith(hash_prefix):
        raise InputFileError(f"{url} is not the file whose hash begins with {hash_prefix}")
    write_atomic(Path(dst), data)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> Any:
    """The tensors of a file by its address; it is fetched once."""
    name = file_name or os.path.basename(urlparse(url).path)
    path = Path(model_dir or f"{get_dir()}/checkpoints") / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, str(path), found[1] if found else None, progress)
    return _load(path, map_location)


load_url = load_state_dict_from_url


def load(repo_or_dir: str, model: str, *args: Any, **kwargs: Any) -> Any:
    """Refused: it would run code that somebody else may change."""
    raise RidgelineError(
        f"hub.load would fetch and run the code of {repo_or_dir}",
        help="install the package, and load its weights with load_state_dict_from_url",
    )
