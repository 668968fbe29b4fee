"""Entry point of the `ridgeline` command.

A verb is a module in this folder with `NAME`, `HELP`, `add_arguments(parser)` and
`run(arguments) -> int`. Exit codes: 0 done, 1 a finding or failure the user asked to hear of,
2 wrong usage or unreadable input.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from ridgeline import __version__
from ridgeline.errors import OutputFileError, RidgelineError

VERBS = (
    "collectives", "diagnose", "explain", "export", "gpu", "launch",
    "onnx", "plan", "run", "simt", "train",
)  # fmt: skip


def build_parser() -> argparse.ArgumentParser:
    """The parser of all verbs; a verb's module is imported here but its work is not."""
    parser = argparse.ArgumentParser(
        prog="ridgeline", description="Deep learning, from a line of Python to the roofline."
    )
    parser.add_argument("--version", action="version", version=f"ridgeline {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name in VERBS:
        module = importlib.import_module(f"ridgeline.cli.{name}")
        verb = verbs.add_parser(module.NAME, help=module.HELP, description=module.__doc__)
        module.add_arguments(verb)
        verb.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; a user's mistake prints as an error, never as a traceback."""
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except RidgelineError as error:
        print(f"error {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe has seen enough
        _drop_output()
        return 0
    except OSError as error:
        _drop_output()
        what = error.filename or "standard output"
        failure = OutputFileError(f"cannot use {what}: {error.strerror or error}")
        print(f"error {failure}", file=sys.stderr)
        return 2
    return code


def _drop_output() -> None:
    """Lead what is still to be written nowhere; Python would fail on it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
