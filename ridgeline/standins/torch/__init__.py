"""`torch` in a program under `ridgeline run`: importing it puts Ridgeline in its place."""

import ridgeline.as_torch  # noqa: F401
