"""Numbers of a jitted function that stand for those of later calls, where they become text.

Python itself, without jit, says what each call has to give.
"""

from __future__ import annotations

import collections
import dataclasses
import io
import json
import linecache
import pprint
import reprlib
import textwrap
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import ridgeline as rl

pytestmark = pytest.mark.filterwarnings("ignore::ridgeline.tracing.report.RetraceWarning")


@dataclasses.dataclass
class Row:
    """Of which `dataclasses` writes the text."""

    a: Any
    b: Any = 1


class Pair(NamedTuple):
    """Of which `namedtuple` writes the text."""

    a: Any
    b: Any = 2


class Own:
    """Writes its texts itself."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Own({self.value})"

    def __str__(self) -> str:
        return "own %s" % self.value  # noqa: UP031

    def __format__(self, spec: str) -> str:
        return format(self.value, spec or "")


def caught(function: Callable[[], Any]) -> Any:
    """What an error says."""
    try:
        return function()
    except ValueError as error:
        return str(error), repr(error), error.args


def fails(number: Any) -> None:
    """Raises an error about a number."""
    raise ValueError(number)


def printed(number: Any) -> str:
    """What `print` writes to a text that is read again."""
    text = io.StringIO()
    print(number, [number], file=text)
    return text.getvalue()


EXPRESSIONS = r"""
f"{k}"
f"{k!r} {k!s} {k!a}"
f"{k:>6}"
f"{k=} {-k} {k * 2} {k / 2:.3f}"
f"{[k]} {(k,)} {dict(a=k)}"
"{} {:4} {!r}".format(k, k, k)
"{a}".format(a=k)
"{a}".format_map({"a": k})
"{0[0]} {1.a}".format([k], types.SimpleNamespace(a=k))
"%s" % k
"%s %s" % (k, [k])
"%(a)s" % {"a": k}
str(k) + repr(k) + ascii(k)
format(k) + format(k, "5")
k.__str__() + k.__repr__() + k.__format__("4")
str([k]) + str((k, 1)) + str({1: (k,)})
repr(Row(k, [k])) + f"{Row(k)}"
str(Pair(k))
repr(Own(k)) + str(Own(k)) + f"{Own(k)}"
", ".join(f"{v}" for v in [k, k + 1])
", ".join(map(str, [k, k]))
json.dumps(k)
json.dumps({"a": [k, k + 1]})
json.dumps(collections.OrderedDict(a=k))
pprint.pformat({"a": [k]})
reprlib.repr([k])
textwrap.dedent(f" {k}")
repr(types.SimpleNamespace(a=k))
repr(collections.deque([k]))
repr(collections.OrderedDict(a=k))
str(collections.defaultdict(list, a=k))
f"{k}".encode()
float(str(k))
{str(k): 1}
caught(lambda: fails(k))
caught(lambda: int(f"x{k}"))
str(ValueError(k)) + repr(KeyError("a", k))
printed(k)
getattr(types.SimpleNamespace(**{f"a{k}": k}), f"a{k}")
"""
_NAMES = {"collections": collections, "json": json, "pprint": pprint, "reprlib": reprlib,
          "textwrap": textwrap, "types": types, "Row": Row, "Pair": Pair, "Own": Own,
          "caught": caught, "fails": fails, "printed": printed, "w": rl.ones(2)}  # fmt: skip
WAYS = {
    "number": (2, 3, 4, 2, 7),
    "length": (2, 3, 4, 2, 7),
    "float": (2.5, 3.5, 4.25, 2.5, 7.0),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("expression", [e for e in EXPRESSIONS.split("\n") if e])
def test_a_text_has_the_number_of_its_call(expression: str, way: str) -> None:
    first = "    k = k.shape[0]\n" if way == "length" else ""
    text = f"def f(k):\n{first}    v = {expression}\n    return v, w + 1\n"
    file = f"<{expression} {way}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names: dict[str, Any] = dict(_NAMES)
    exec(compile(text, file, "exec"), names)
    plain: Callable[..., Any] = names["f"]
    with rl.config.override(tier="interpreter"):
        jitted = rl.jit(plain, dynamic={"k": 0} if way == "length" else None)
        for k in WAYS[way]:
            given = rl.ones(int(k)) if way == "length" else k
            wanted, found = plain(given)[0], jitted(given)[0]
            assert type(found) is type(wanted) and found == wanted
    assert "every call runs Python" not in jitted.history[0] or "printed" in expression


def test_what_is_printed_does_not_tie_a_trace_to_a_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @rl.jit
    def step(x: rl.Tensor, k: int, rate: float) -> rl.Tensor:
        print("at", k, [k, rate])
        return x * k * rate

    for k, rate in ((2, 0.5), (3, 0.75), (4, 1.5), (7, 2.5)):
        np.testing.assert_array_equal(step(rl.ones(3), k, rate).numpy(), np.full(3, k * rate))
    assert step.traces <= 3
    assert capsys.readouterr().out.splitlines()[0] == "at 2 [2, 0.5]"


def test_code_without_source_gets_plain_numbers() -> None:
    kind = eval("lambda k: type(k).__name__")

    def f(x: rl.Tensor, k: Any, asks: bool) -> Any:
        return (kind(k) if asks else ""), x * k

    for numbers, name in (((2, 3, 4), "int"), ((0.5, 1.5, 2.5), "float")):
        jitted = rl.jit(f)
        for number in numbers:
            jitted(rl.ones(1), number, False)
        assert jitted(rl.ones(1), numbers[-1] + 1, True)[0] == name
