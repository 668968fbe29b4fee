"""Tests keep compiled code in a folder of their own, so that a run starts cold."""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("RIDGELINE_CACHE_DIR", tempfile.mkdtemp(prefix="ridgeline-tests-"))
