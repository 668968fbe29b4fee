"""A random program as data: inputs, statements in Python, and which variables it returns.

Statements call the public names through `rl`, so that the same text runs on Ridgeline and, where
every statement is `portable`, on torch, whose functions have the same names and meaning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Literal

import ml_dtypes  # noqa: F401  (NumPy learns bfloat16)
import numpy as np

Array = np.ndarray[Any, Any]
Flavour = Literal["exact", "smooth"]
STRETCH = 3
_NAME = re.compile(r"\b[av]\d+\b")


@dataclass(frozen=True, slots=True)
class Input:
    """An argument of the program; its values follow from the flavour and a seed."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    special: bool = False  # with infinities and NaN among the values
    stretched: int | None = None  # an axis that is longer in every second call

    def value(self, flavour: Flavour, seed: int, longer: bool = False) -> Array:
        """Small whole numbers for exact programs, numbers away from zero for smooth ones."""
        rng = np.random.default_rng((seed, int(self.name[1:])))
        shape = list(self.shape)
        if longer and self.stretched is not None:
            shape[self.stretched] += STRETCH
        if self.dtype == "bool":
            return np.asarray(rng.random(shape) < 0.5)
        if flavour == "smooth" and self.dtype.startswith(("float", "bfloat")):
            raw = rng.uniform(0.25, 2.0, shape) * rng.choice([-1.0, 1.0], shape)
            return np.asarray(raw).astype(self.dtype)
        low = 0 if self.dtype.startswith("u") else -4
        raw = np.asarray(rng.integers(low, 5, shape)).astype(self.dtype)
        if self.dtype.startswith("complex"):
            raw = raw + 1j * rng.integers(-4, 5, shape).astype(self.dtype)
        if self.special and raw.size:
            flat = raw.reshape(-1)
            flat[rng.integers(0, raw.size, 2)] = [np.nan, np.inf]
        return raw


@dataclass(frozen=True, slots=True)
class Statement:
    """One line; `target` is the variable it binds, if any."""

    text: str
    target: str | None = None
    portable: bool = True

    @property
    def uses(self) -> set[str]:
        """The variables that the line reads or changes."""
        return set(_NAME.findall(self.text)) - {self.target}

    @property
    def line(self) -> str:
        """The line as Python."""
        return self.text if self.target is None else f"{self.target} = {self.text}"


@dataclass(frozen=True, slots=True)
class Program:
    """A whole program; `seed` gives its inputs."""

    flavour: Flavour
    seed: int
    inputs: tuple[Input, ...]
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]

    @property
    def portable(self) -> bool:
        """True where torch can run it.

        Its sign and its remainder treat NaN in their own way, and the gradient of its scatters
        wants as many places as elements, which a longer axis changes.
        """
        odd = (i.special or i.stretched is not None or "float8" in i.dtype for i in self.inputs)
        return not any(odd) and all(s.portable for s in self.statements)

    @property
    def reads_outside(self) -> bool:
        """True where a line uses the tensor from outside."""
        return any(re.search(r"\bS\b", statement.text) for statement in self.statements)

    def body(self, outputs: tuple[str, ...] | None = None) -> str:
        """The function as Python text."""
        names = ", ".join(i.name for i in self.inputs)
        lines = [f"def program({names}):"]
        lines += [f"    {s.line}" for s in self.statements]
        shown = self.outputs if outputs is None else outputs
        return "\n".join([*lines, f"    return [{', '.join(shown)}]"])

    def values(self, offset: int = 0) -> list[Array]:
        """The arguments of a call; an odd offset gives others, with a stretched axis longer."""
        return [i.value(self.flavour, self.seed + offset, offset % 2 == 1) for i in self.inputs]

    @property
    def dynamic(self) -> dict[str, int]:
        """The axes of arguments that have several lengths."""
        return {i.name: i.stretched for i in self.inputs if i.stretched is not None}

    def text(self, place: str = "cpu") -> str:
        """The whole program, runnable: what the interpreter says and what jit says on a device."""
        lines = [
            "import ridgeline as rl",
            "from tests.fuzz.program import Input, settings",
            "",
            f"globals().update(settings(rl, place={place!r}))",
            "",
            "",
            self.body(),
            "",
            "",
            f"inputs = [{', '.join(map(repr, self.inputs))}]",
            "",
            "",
            "def given(longer=False):",
            f"    arrays = [i.value({self.flavour!r}, {self.seed}, longer) for i in inputs]",
            "    return [rl.tensor(array, device=D) for array in arrays]",
            "",
            "",
            'with rl.config.override(tier="interpreter"), rl.eager():',
            "    print([r.numpy() for r in program(*given())])",
            f"jitted = rl.jit(program, dynamic={self.dynamic or False})",
            "print([r.numpy() for r in jitted(*given())])",
        ]
        if self.dynamic:
            lines += [
                'with rl.config.override(tier="interpreter"), rl.eager():',
                "    print([r.numpy() for r in program(*given(longer=True))])",
                "print([r.numpy() for r in jitted(*given(longer=True))])",
            ]
        return "\n".join(lines)

    def with_statements(self, statements: tuple[Statement, ...]) -> Program:
        """The program with other lines."""
        return replace(self, statements=statements)


def settings(module: Any, wide: bool = False, place: str = "cpu") -> dict[str, Any]:
    """The names a program's text uses besides its variables.

    `wide` makes every float a float64: the truth that smooth programs are measured against. `D` is
    the device. `K` and `BOX` are Python state that changes between calls, `S` is a tensor from
    outside that programs read and write.
    """
    floats = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
    named = {k: getattr(module, "float64" if wide else v) for k, v in floats.items()}
    state = {"K": 2, "BOX": SimpleNamespace(scale=3, shifts=[1, 2])}
    kept = module.zeros(3, dtype=named["f32"], device=place)
    return {**named, **state, "S": kept, "rl": module, "D": place}
