"""Write a jitted function as a program file, or look at one: `ridgeline export train.py:step`.

FUNCTION is FILE.py:NAME or MODULE:NAME, a function of tensors or a module; the file is run up to
its end, not as the main program. `--input` gives the type of an argument, in order or by name. See
docs/deploy.md.
"""

from __future__ import annotations

import argparse
import importlib
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import ridgeline as rl
from ridgeline.errors import BadValueError, MissingFileError
from ridgeline.tracing.jit import JitFunction

NAME = "export"
HELP = "write a function as a program file, for Python or C"
_INPUT = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<dtype>\w+)\[(?P<shape>[\d,\s]*)\]")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ridgeline export`."""
    parser.add_argument(
        "subject", metavar="FUNCTION", help="FILE.py:NAME or MODULE:NAME; or a program file"
    )
    parser.add_argument("--check", action="store_true", help="only check a program file")
    parser.add_argument("--header", action="store_true", help="print the C header of a file")
    parser.add_argument(
        "--input", action="append", default=[], metavar="[NAME=]DTYPE[SHAPE]",
        help="an argument, such as x=float32[64,1,32,32]",
    )  # fmt: skip
    parser.add_argument(
        "--dynamic", action="append", default=[], metavar="NAME:AXIS",
        help="an axis of an argument that may have any length, such as x:0",
    )  # fmt: skip
    parser.add_argument("-o", "--output", metavar="PATH", help="the file to write (NAME.rlx)")
    parser.add_argument("--object", action="store_true", help="write an object to link (NAME.o)")
    parser.add_argument("--prefix", default="rlx", help="what names of functions in C begin with")
    parser.add_argument(
        "--instruction-sets", default="", metavar="A,B", help="such as x86-64-v3,native"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check, print a header, or export."""
    if arguments.check or arguments.header:
        return _look(arguments)
    found, name = _found(arguments.subject)
    axes = [_axis(text) for text in arguments.dynamic]
    jitted = found
    if axes or not isinstance(found, JitFunction):
        jitted = rl.jit(getattr(found, "function", found), dynamic=axes or False)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for text in arguments.input:
        given, tensor = _example(text)
        if given:
            kwargs[given] = tensor
        else:
            args.append(tensor)
    suffix = ".o" if arguments.object else ".rlx"
    chosen = [each for each in arguments.instruction_sets.split(",") if each]
    path = jitted.export(
        arguments.output or name + suffix,
        *args,
        instruction_sets=chosen,
        prefix=arguments.prefix,
        **kwargs,
    )
    print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


def _look(arguments: argparse.Namespace) -> int:
    from ridgeline.deploy.file import read_program
    from ridgeline.deploy.header import header

    content, manifest = read_program(arguments.subject)
    if arguments.header:
        print(header(manifest, arguments.prefix), end="")
        return 0
    print(f"{arguments.subject}: {manifest['name']}, {len(content):,} bytes, whole")
    for kind in ("inputs", "outputs", "state"):
        for row in manifest[kind]:
            print(f"  {kind.removesuffix('s'):7} {row['name']}: {row['dtype']}{row['shape']}")
    for row in manifest["sizes"]:
        print(f"  size    {row['name']}: {row['low']} to {row['high']}")
    print(f"  code    {', '.join(manifest['instruction_sets'])}")
    return 0


def _found(subject: str) -> tuple[Any, str]:
    """A function by where it is, and its name."""
    where, _, name = subject.rpartition(":")
    if not where:
        raise BadValueError(f"{subject!r} names no function", help="give FILE.py:NAME")
    if where.endswith(".py"):
        if not Path(where).is_file():
            raise MissingFileError(f"there is no file {where}")
        sys.path.insert(0, str(Path(where).resolve().parent))
        names = runpy.run_path(where, run_name=Path(where).stem)
    else:
        sys.path.insert(0, "")
        names = vars(importlib.import_module(where))
    if name not in names:
        raise BadValueError(f"{where} has no {name}")
    return names[name], name


def _axis(text: str) -> tuple[str | int, int]:
    """An axis of an argument by name, or by its place."""
    name, _, axis = text.rpartition(":")
    if not name or not axis.isdecimal():
        raise BadValueError(f"{text!r} is no axis", help="give one such as x:0")
    return int(name) if name.isdecimal() else name, int(axis)


def _example(text: str) -> tuple[str, Any]:
    """A tensor of zeros of the type that a text names."""
    match = _INPUT.fullmatch(text.strip())
    kind = getattr(rl, match["dtype"], None) if match else None
    if match is None or not isinstance(kind, rl.DType):
        raise BadValueError(f"{text!r} is no input", help="give one such as x=float32[64,10]")
    shape = [int(length) for length in match["shape"].split(",") if length.strip()]
    return match["name"] or "", rl.zeros(*shape, dtype=kind)
