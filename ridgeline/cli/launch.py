"""Start a program as several ranks under the mpiexec of the installed MPI, and watch them.

    ridgeline launch -n 4 train.py --epochs 3
    ridgeline launch -n 4 --restarts 3 -m package.module

A rank that dies, or calls another collective than its peers, ends the job on all ranks.
"""

from __future__ import annotations

import argparse

from ridgeline.errors import ArgumentError, MissingFileError, path_of

NAME = "launch"
HELP = "start a program on several ranks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Register the arguments of `ridgeline launch`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("-n", "--ranks", type=int, required=True, help="how many processes")
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="SECONDS",
        help="end the job when a rank waits longer for the others (300); compiling is not counted",
    )  # fmt: skip
    parser.add_argument(
        "--restarts", type=int, default=0, metavar="N",
        help="start the job again, at most so often, when it fails",
    )  # fmt: skip
    parser.add_argument("-m", "--module", action="store_true", help="a module instead of a file")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="train.py …",
        help="a Python file, or a module, with its arguments",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the job; its exit code."""
    from ridgeline.distributed.launcher import LaunchedJob, launch

    command = tuple(arguments.command)
    if not command:
        raise ArgumentError("nothing to launch", help="ridgeline launch -n 4 train.py")
    if arguments.module:
        command = ("-m", *command)
    elif not path_of(command[0], "launch").is_file():
        raise MissingFileError(f"there is no file {command[0]}")
    code = launch(LaunchedJob(arguments.ranks, command, arguments.timeout, arguments.restarts))
    return code if code >= 0 else 1
