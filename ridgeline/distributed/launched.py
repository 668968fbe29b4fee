"""A rank of `ridgeline launch`: joins its job, then runs a program as Python would."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from ridgeline.communicators.current import world
from ridgeline.distributed import discovery  # noqa: F401  (how a process finds its world)


def main() -> None:
    """Run the program that the arguments name: a file, or a module after `-m`."""
    sys.argv = sys.argv[1:]
    world()  # what fails from here on ends the job, and is known to the launcher
    if sys.argv[0] == "-m":
        sys.argv = sys.argv[1:]
        sys.path.insert(0, "")
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
