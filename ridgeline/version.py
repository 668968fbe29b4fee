"""torch.version: what a build was made for; this one uses the driver that it finds."""

from __future__ import annotations

from ridgeline import __version__ as __version__

cuda: str | None = None
hip: str | None = None
xpu: str | None = None
git_version = ""
debug = False
