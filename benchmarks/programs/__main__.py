"""`python -m benchmarks.programs [--memory] [NAMES…] [--default] [--steps N]`.

Losses against float64 (`check.py`), or with `--memory` what processes take (`memory.py`).
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.programs import NAMES, check, memory

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(NAMES)}")
parser.add_argument("--memory", action="store_true", help="what processes take, not losses")
parser.add_argument("--default", action="store_true", help="the authors' sizes, not small ones")
parser.add_argument("--steps", type=int, help="50 for losses, 10,000 for memory")
arguments = parser.parse_args()
names = arguments.names or list(NAMES)
if arguments.memory:
    sys.exit(memory.report(names, not arguments.default, arguments.steps or 10_000))
sys.exit(check.report(names, not arguments.default, arguments.steps or 50))
