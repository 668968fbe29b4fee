"""Run a PyTorch program as it is, with `torch` meaning Ridgeline: `ridgeline run train.py --lr 1`.

Names of torch that are not here are listed before the first line runs, as far as the source of the
program shows them. Exit codes: the program's own, 1 for an error in it, 2 if there is no such
program.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import runpy
import sys
from pathlib import Path
from types import TracebackType

from ridgeline.cli.sources import findings, report
from ridgeline.errors import MissingFileError

NAME = "run"
HELP = "run a PyTorch program with torch meaning Ridgeline"
_RUNPY = "<frozen runpy>"  # the file of Python's module that runs modules


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ridgeline run`."""
    parser.add_argument("--check", action="store_true", help="only list what is not supported")
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is a module's name")
    parser.add_argument("program", metavar="PROGRAM", help="a file, or with -m a module")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="…", help="the program's own arguments"
    )


def run(arguments: argparse.Namespace) -> int:
    """Look at the program, and run it as `__main__`."""
    program = arguments.program
    if not arguments.module and not Path(program).is_file():
        raise MissingFileError(f"there is no program {program}")
    import ridgeline.as_torch

    folder = os.getcwd() if arguments.module else str(Path(program).resolve().parent)
    sys.path.insert(0, folder)
    found = findings(_file(program, arguments.module), Path(folder))
    if found:
        print(report(found), file=sys.stderr, flush=True)
    if arguments.check:
        return int(bool(found))
    ridgeline.as_torch.lead(os.environ)
    sys.argv = [program, *arguments.arguments]
    try:
        if arguments.module:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            _run_file(program)
    except BrokenPipeError:  # the reader of a pipe has seen enough: no matter for the program
        raise
    except Exception as error:
        error.with_traceback(_from_program(error.__traceback__))
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _from_program(trace: TracebackType | None) -> TracebackType | None:
    """A traceback that begins with the program, as it does where Python runs it."""
    while trace and trace.tb_frame.f_code.co_filename in (__file__, _RUNPY):
        trace = trace.tb_next
    return trace


def _file(program: str, is_module: bool) -> Path:
    if not is_module:
        return Path(program)
    spec = importlib.util.find_spec(program)
    return Path(spec.origin) if spec is not None and spec.origin else Path(program)


def _run_file(program: str) -> None:
    """Run a file as the module `__main__`, which stays: workers and pickles look for it there."""
    main = type(sys)("__main__")
    main.__file__ = os.path.abspath(program)
    sys.modules["__main__"] = main
    code = compile(Path(program).read_bytes(), os.path.abspath(program), "exec")
    exec(code, vars(main))
