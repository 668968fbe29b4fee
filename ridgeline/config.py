"""Settings: one typed dataclass, one instance, one environment prefix.

`config.threads = 4` changes a setting for the process, `with config.override(threads=4):` for a
block. Every change is validated and moves `config.epoch`, which jit guards compare. Environment
variables named RIDGELINE_<FIELD> give the first values and are read once, at import.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any, Literal, get_args

from ridgeline.atomic import Block
from ridgeline.errors import RidgelineError

Tier = Literal["auto", "interpreter", "compiled"]
Isa = Literal["auto", "avx2"]
Products = Literal["model", "library", "own"]
PREFIX = "RIDGELINE_"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


_UNSET = object()
_EPOCHS = itertools.count(1)  # `next` is atomic, so no change is lost between threads


class ConfigError(RidgelineError, ValueError):
    """A setting with an impossible value, or a setting that does not exist."""

    code = "RL0010"


@dataclass
class Config:
    """What a user may set. Sizes are bytes; a zero means what its comment says."""

    cache_dir: str = ""  # empty: $XDG_CACHE_HOME/ridgeline, else ~/.cache/ridgeline
    cache_max_bytes: int = 2 << 30  # compiled code and plans on disk; 0: no disk cache
    buffer_cache_bytes: int = 0  # freed memory kept for reuse; 0: a quarter of the machine's
    threads: int = 0  # 0: every usable core
    tier: Tier = "auto"
    huge_pages: bool = True
    calibrate: bool = True  # measure this CPU's rates once; False: plan for those of a common one
    deterministic: bool = False  # two runs of a program on one machine are equal to the bit
    isa: Isa = "auto"  # the widest instructions of a CPU to use; fixed at import
    portable: bool = False  # on Linux, run as on systems without its own calls; fixed at import
    allow_tf32: bool = False  # float32 matrix products on a GPU in its shortened format
    allow_tf32_convolutions: bool = True  # the same of convolutions, as torch has it
    products: Products = "model"  # on a GPU: whose matrix products, where there are two kinds
    audit: bool = False  # jit traces now and then instead of replaying, and compares
    allow_winograd: bool = True  # 3×3 convolutions by steady filters in fewer multiplications
    verify: bool = False  # check the form of what every pass of the compiler gives
    background: bool = True  # compile beside the program, which is interpreted meanwhile
    tape: bool = True  # match calls of undecorated code against those before
    native_tape: bool = True  # by machine code, where there is some for this Python
    announce: bool = True  # say on stderr what is being compiled where that takes long
    passes_until: str = ""  # the last pass of the compiler to run, of those that can be left out

    epoch = 0  # not a setting: moves forward with every change

    def __setattr__(self, name: str, value: Any) -> None:
        self._check(name, value)
        if self.__dict__.get(name, _UNSET) != value:
            self.__dict__[name] = value
            self.__dict__["epoch"] = next(_EPOCHS)

    def _check(self, name: str, value: Any) -> None:
        """Raise where a setting cannot have a value."""
        check = _CHECKS.get(name)
        if check is None:
            raise ConfigError(
                f"there is no setting called {name!r}", help=f"settings: {', '.join(_CHECKS)}"
            )
        check(name, value)
        fixed = name in ("isa", "portable") and self is globals().get("config")
        if fixed and value != getattr(self, name):
            raise ConfigError(
                f"{name} cannot change while a program runs: its machine code is loaded",
                help=f"set {PREFIX}{name.upper()} in the environment before the program starts",
            )

    def override(self, **settings: Any) -> Block:
        """Change settings (of the whole process) for a block; they come back on the way out."""
        for name, value in settings.items():
            self._check(name, value)
        before: list[dict[str, Any]] = []
        tables = repeat(vars(self))
        values = map(itemgetter(*settings, "tier"), tables)  # one more, so that it is a tuple
        keep = map(before.append, map(dict, map(zip, repeat(tuple(settings)), values)))
        change = map(dict.update, tables, repeat(settings))
        back = map(dict.update, tables, map(list.pop, repeat(before)))
        moved = map(dict.__setitem__, tables, repeat("epoch"), _EPOCHS)
        entered = map(itemgetter(-1), zip(keep, change, moved, repeat(self)))
        return Block(entered, zip(back, moved))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Config:
        """Defaults, replaced by the RIDGELINE_* variables that are set, and not to nothing."""
        made = cls()
        for field in fields(cls):
            text = environment.get(PREFIX + field.name.upper(), "")
            if not text.strip():
                continue
            try:
                setattr(made, field.name, _parse(getattr(made, field.name), text))
            except ConfigError as error:
                raise ConfigError(
                    f"{PREFIX}{field.name.upper()}={text!r}: {error.message}", help=error.help
                ) from None
        return made


def _parse(default: object, text: str) -> object:
    """Read a variable's text as the type of the setting's default."""
    text = text.strip()
    if isinstance(default, bool):
        if text.lower() not in _TRUE + _FALSE:
            raise ConfigError("is neither true nor false", help="use 1 or 0")
        return text.lower() in _TRUE
    if isinstance(default, int):
        unit = _UNITS.get(text[-1:].upper(), 1)
        digits = text[:-1] if unit > 1 else text
        if not (digits.isascii() and digits.isdigit()):
            raise ConfigError("is not a whole number", help="use digits, or digits and K, M, G, T")
        return int(digits) * unit
    return text


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"{name} must be a whole number of at least 0, not {value!r}")


def _check_threads(name: str, value: Any) -> None:
    _check_count(name, value)
    if value > 4096:
        raise ConfigError(f"{name} is {value}; at most 4096 make sense")


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str) or "\0" in value:
        raise ConfigError(f"{name} must be a path as text, not {value!r}")


def _check_name(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be the name of a pass, or empty, not {value!r}")


def _check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, not {value!r}")


def _check_choice(kind: Any, name: str, value: Any) -> None:
    if value not in get_args(kind):
        raise ConfigError(f"{name} must be one of {', '.join(get_args(kind))}, not {value!r}")


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    "cache_dir": _check_text,
    "cache_max_bytes": _check_count,
    "buffer_cache_bytes": _check_count,
    "threads": _check_threads,
    "tier": partial(_check_choice, Tier),
    "huge_pages": _check_flag,
    "calibrate": _check_flag,
    "deterministic": _check_flag,
    "isa": partial(_check_choice, Isa),
    "portable": _check_flag,
    "allow_tf32": _check_flag,
    "allow_tf32_convolutions": _check_flag,
    "products": partial(_check_choice, Products),
    "audit": _check_flag,
    "allow_winograd": _check_flag,
    "passes_until": _check_name,
    "announce": _check_flag,
    "background": _check_flag,
    "tape": _check_flag,
    "native_tape": _check_flag,
    "verify": _check_flag,
}

config = Config.from_environment(os.environ)


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """`config.deterministic` under torch's name; there is nothing here that has to be refused."""
    config.deterministic = mode


def are_deterministic_algorithms_enabled() -> bool:
    """True where `config.deterministic` is on."""
    return config.deterministic
