"""The log of a run: one JSON object a line, appended and flushed as things happen."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, TextIO

from ridgeline.errors import unwritable

_HELP = "choose another folder with --out"


class RunLog:
    """Appends events to a file; every line has `event` and `time` (seconds since 1970)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: TextIO = open(path, "a", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise unwritable(path, error, help=_HELP) from error

    def write(self, event: str, **fields: Any) -> None:
        """Append one event."""
        line = json.dumps({"event": event, "time": round(time.time(), 3), **fields})
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            raise unwritable(self.path, error, help=_HELP) from error

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()
