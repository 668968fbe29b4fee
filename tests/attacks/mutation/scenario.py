"""A scenario: a place that keeps a value, a way to reach it, to use it, and to change it.

Texts are templates. `OLD` and `NEW` stand for the value before and after, `V` for the place's own
name of the value, `READ` for the way to reach it.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: two values that differ, ways to use one, and ways to change it in place."""

    name: str
    old: str
    new: str
    uses: tuple[str, ...]  # expressions of `x` and `v`
    inside: tuple[str, ...] = ()  # statements that change `V` itself
    setup: str = ""
    advances: bool = False  # every use changes it


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is kept: `setup` puts it there, `reads` reach it, `changes` put another there.

    `target` names the value for a change inside it. `FUNCTION` in the setup is where the function
    is defined, otherwise after it; `parameters` are names that it takes besides `x`.
    """

    name: str
    setup: str
    reads: tuple[str, ...]
    changes: tuple[str, ...]
    target: str | None = None
    parameters: str = ""
    kinds: str = "any"  # "any", "data" (nothing callable), "plain" (numbers and strings), "int"
    nests: bool = True  # whether a helper may read it in place of the function


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario that is written out: a module that defines `f`, and what changes."""

    name: str
    text: str
    change: str = "pass"
    back: str = ""  # the second change; the first again where it is empty
    advances: bool = False  # every call changes the state, so that order matters
    differs: bool = False  # no two calls may agree: a clock, real random numbers
    arguments: str = ""  # what `f` takes besides `x`
    live: bool = True  # the change shows in the result


_IMPORTS = """\
import array, bisect, builtins, collections, contextlib, contextvars, copy, dataclasses, enum
import functools, importlib, io, itertools, json, math, operator, os, queue, random, re, secrets
import string, sys, threading, time, types, typing, uuid, weakref
import numpy as np
import ridgeline as rl
from ridgeline import nn, optim
"""

SHAPES = ("inline", "helper", "lambda", "comprehension", "nested", "method", "caught", "expression")


def compose(place: Place, kind: Kind, read: str, use: str, change: str, shape: str) -> Case:
    """A place, a kind of value and how they are read and changed, as one module."""
    function = _function(place, read, use, shape)
    setup = _put(place.setup, OLD=kind.old)
    if "USE" in setup:
        text = _put(setup, USE=use)
    elif "FUNCTION" in setup:
        text = re.sub(
            r"^( *)FUNCTION$", lambda m: textwrap.indent(function, m[1]), setup, flags=re.M
        )
    else:
        text = f"{setup}\n{function}"
    first = _put(change, NEW=kind.new, V=place.target or "")
    name = f"{place.name} | {read} | {kind.name}: {use} | {change} | {shape}"
    return Case(
        name=name,
        text=f"{kind.setup}\n{text}\n",
        change=first,
        back=_put(change, NEW=kind.old, V=place.target or ""),
        advances=kind.advances,
        arguments=place.parameters,
    )


def source(case: Case) -> str:
    """The text of a case's module."""
    return _IMPORTS + case.text


def _put(text: str, **values: str) -> str:
    return re.sub(rf"\b({'|'.join(values)})\b", lambda found: values[found[0]], text)


def _function(place: Place, read: str, use: str, shape: str) -> str:
    """The function `f`, which reads in one of the shapes in which people write it."""
    taken = ", ".join(name for name in ("x", place.parameters) if name)
    block = read if read.startswith("v = ") or "\n" in read else f"v = {read}"
    expression = block.removeprefix("v = ") if "\n" not in block else None
    if shape in ("lambda", "comprehension", "expression") and expression is None:
        shape = "helper"
    if not place.nests:
        shape = "inline"
    lines = textwrap.indent(block, "    ")
    if shape == "helper":
        given = place.parameters
        return (
            f"def read({given}):\n{lines}\n    return v\n"
            f"def f({taken}):\n    v = read({given})\n    return {use}\n"
        )
    if shape == "lambda":
        given = place.parameters
        return (
            f"def f({taken}):\n    read = lambda {given}: {expression}\n"
            f"    v = read({given})\n    return {use}\n"
        )
    if shape == "comprehension":
        return f"def f({taken}):\n    return [{use} for v in [{expression}]][0]\n"
    if shape == "nested":
        inner = textwrap.indent(lines, "    ")
        return (
            f"def f({taken}):\n    def read():\n{inner}\n        return v\n"
            f"    v = read()\n    return {use}\n"
        )
    if shape == "method":
        inner = textwrap.indent(lines, "    ")
        return (
            f"class Model:\n    def step(self, {taken}):\n{inner}\n        return {use}\n"
            "f = Model().step\n"
        )
    if shape == "caught":
        inner = textwrap.indent(lines, "    ")
        return (
            f"def f({taken}):\n    try:\n{inner}\n        return {use}\n"
            "    finally:\n        pass\n"
        )
    if shape == "expression":
        return f"f = lambda {taken}: (lambda v: {use})({expression})\n"
    return f"def f({taken}):\n{lines}\n    return {use}\n"
