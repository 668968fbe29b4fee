"""Where the figures of a GPU are kept: with their date, the device and the version of torch."""

from __future__ import annotations

import datetime
import json
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"


def store(figures: dict[str, Any], subject: str = "", out: Path | None = None) -> Path:
    """Write figures to `out`, or to a file named by date, device and subject; where they are."""
    import ridgeline as rl

    now = datetime.datetime.now(datetime.UTC)
    device = rl.cuda.get_device_name()
    data = {
        "date": now.isoformat(timespec="seconds"),
        "device": device,
        "torch": metadata.version("torch"),
        **figures,
    }
    parts = [now.date().isoformat(), device.replace(" ", "-"), *([subject] if subject else ())]
    path = out or RESULTS / f"{'-'.join(parts)}.json"
    path.write_text(json.dumps(data, indent=1) + "\n")
    return path
