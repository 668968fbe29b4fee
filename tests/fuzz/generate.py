"""Making a random program: statements are chosen one by one and run at once in the interpreter.

Because the program so far has run, a maker of statements sees shapes and types as they are, and a
statement that leaves the exact numbers is dropped.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import ridgeline as rl
from tests.fuzz.program import Flavour, Input, Program, Statement, settings
from tests.fuzz.ways import Rejected, exact_only

MOST_ELEMENTS = 3000
_SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33)
_EXACT_TYPES = ("float32",) * 8 + (
    "float64", "int32", "int64", "int64", "uint8", "bool", "bool", "bfloat16", "float16", "int16",
    "int8", "complex64", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
_UNDER_GRADIENT = 0.4  # programs that begin with something to differentiate by
_DIFFERENTIATED = 0.8  # programs that end with the gradient of what is tracked by then
_STRETCHED = 0.15  # programs that are called with several lengths of an axis
_SMOOTH_TYPES = ("float32",) * 6 + ("float64", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Var:
    """A variable of the program so far."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    tracked: bool

    @property
    def rank(self) -> int:
        """How many axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements."""
        total = 1
        for length in self.shape:
            total *= length
        return total

    @property
    def floating(self) -> bool:
        """True for real element types."""
        return "float" in self.dtype

    @property
    def rare(self) -> bool:
        """True for element types that only some functions take: complex numbers and bytes."""
        return self.dtype.startswith(("complex", "float8"))

    @property
    def half(self) -> bool:
        """True for element types of two bytes."""
        return self.dtype in ("bfloat16", "float16")


@dataclass
class Maker:
    """The program so far, and what makers of statements ask it."""

    rng: random.Random
    flavour: Flavour
    inputs: list[Input] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    longer: dict[str, Any] = field(
        default_factory=dict
    )  # with stretched axes, where there are some
    numbers: int = 0

    def fresh(self) -> str:
        """A new variable's name."""
        self.numbers += 1
        return f"v{self.numbers}"

    def variables(self) -> list[Var]:
        """Everything bound so far."""
        found = []
        for name, value in self.names.items():
            if isinstance(value, rl.Tensor) and name != "S":
                shape = tuple(int(s) for s in value.shape)
                found.append(Var(name, shape, value.dtype.name, bool(value.requires_grad)))
        return found

    def pick(self, suits: Callable[[Var], bool] = lambda v: True, rare: bool = False) -> Var | None:
        """A variable that suits, the newer the likelier, and those under a gradient too."""
        fitting = [v for v in self.variables() if suits(v) and (rare or not v.rare)]
        if not fitting:
            return None
        tracked = [v for v in fitting if v.tracked]
        if tracked and self.rng.random() < 0.5:
            fitting = tracked
        place = max(self.rng.randrange(len(fitting)), self.rng.randrange(len(fitting)))
        return fitting[place]

    def let(self, text: str, portable: bool = True) -> Statement:
        """A statement that binds a new variable."""
        return Statement(text, self.fresh(), portable)

    def bounded(self, text: str, always: bool = False) -> str:
        """An expression kept small: by a remainder, or smoothly where numbers are not whole."""
        if self.flavour == "smooth":
            return f"rl.tanh({text})"
        return (
            f"({text}) % {self.rng.choice((5, 7))}" if always or self.rng.random() < 0.6 else text
        )

    def axis(self, var: Var) -> int:
        """An axis of a variable that has one, counted from either end."""
        place = self.rng.randrange(var.rank)
        return place - var.rank if self.rng.random() < 0.3 else place


def generate(seed: int, size: int = 8) -> Program:
    """The random program of a seed, with about `size` statements."""
    from tests.fuzz import exact, flow, smooth  # their makers use this module's types

    rng = random.Random(seed)
    flavour: Flavour = "smooth" if rng.random() < 0.35 else "exact"
    makers = exact.MAKERS if flavour == "exact" else smooth.MAKERS
    maker = Maker(rng, flavour)
    _add_inputs(maker)
    wanted = max(2, round(rng.expovariate(1 / size)) + 1)
    with rl.config.override(tier="interpreter"), rl.eager():
        _begin(maker, seed)
        if rng.random() < _UNDER_GRADIENT:
            _add(maker, flow.begin_gradient(maker), seed)
        attempts = 0
        while len(maker.statements) < min(wanted, 3 * size) and attempts < 8 * wanted:
            attempts += 1
            _add(maker, rng.choices(makers[0], makers[1])[0](maker), seed)
        if rng.random() < _DIFFERENTIATED:
            _add(maker, flow.end_gradient(maker), seed)
        variables = [v for v in maker.variables() if v.name.startswith("v") and _judged(v, flavour)]
    if not variables:
        return generate(seed + 1_000_003, size)
    last = variables[-1].name
    others = [v.name for v in variables[:-1]]
    outputs = sorted({last, *rng.sample(others, min(len(others), rng.randint(0, 3)))})
    return Program(flavour, seed, tuple(maker.inputs), tuple(maker.statements), tuple(outputs))


def _judged(var: Var, flavour: Flavour) -> bool:
    """Errors are measured of real numbers."""
    return flavour == "exact" or not var.dtype.startswith("complex")


def _add_inputs(maker: Maker) -> None:
    rng = maker.rng
    types = _EXACT_TYPES if maker.flavour == "exact" else _SMOOTH_TYPES
    for number in range(rng.randint(1, 3)):
        shape = tuple(rng.choice(_SIZES) for _ in range(rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))))
        if rng.random() < 0.04 and shape:
            shape = (0, *shape[1:])
        while _count(shape) > MOST_ELEMENTS:
            shape = shape[1:]
        dtype = rng.choice(types)
        special = (
            maker.flavour == "exact" and dtype in ("float32", "float64") and rng.random() < 0.08
        )
        maker.inputs.append(Input(f"a{number}", shape, dtype, special))
    if rng.random() < _STRETCHED:
        place = rng.randrange(len(maker.inputs))
        given = maker.inputs[place]
        if given.shape and given.shape[0] > 1:
            maker.inputs[place] = replace(given, stretched=rng.randrange(len(given.shape)))


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _begin(maker: Maker, seed: int) -> None:
    """Run the program so far from its inputs."""
    maker.names = _started(maker, seed, longer=False)
    stretched = any(given.stretched is not None for given in maker.inputs)
    maker.longer = _started(maker, seed, longer=True) if stretched else {}


def _started(maker: Maker, seed: int, longer: bool) -> dict[str, Any]:
    names = settings(rl)
    rl.manual_seed(seed)
    for given in maker.inputs:
        names[given.name] = rl.tensor(given.value(maker.flavour, seed, longer))
    for statement in maker.statements:
        exec(statement.line, names)
    return names


def _add(maker: Maker, made: Statement | list[Statement] | None, seed: int) -> None:
    """Add statements if they run, stay exact and stay small."""
    if made is None:
        return
    made = [made] if isinstance(made, Statement) else made
    try:
        with exact_only() if maker.flavour == "exact" else nullcontext():
            for statement in made:
                exec(statement.line, maker.names)
                if any(v.size > MOST_ELEMENTS for v in maker.variables()):
                    raise Rejected("too large")
                # computed now, so that the check sees it
                for v in maker.variables():
                    maker.names[v.name].detach().numpy()
        if maker.longer:
            _run_longer(maker, made)
        maker.statements += made
    except Rejected:
        _begin(maker, seed)
    except Exception as error:
        body = "\n".join(s.line for s in (*maker.statements, *made))
        raise AssertionError(f"seed {seed}: a statement does not run\n{body}") from error


def _run_longer(maker: Maker, made: list[Statement]) -> None:
    """Reject statements that hold for one length only, such as a reshape to given numbers."""
    try:
        for statement in made:
            exec(statement.line, maker.longer)
    except Exception as error:
        raise Rejected("it needs the length at hand") from error
