"""Attack: jitted functions that change Python objects outside, and read them.

Statements are drawn that leave tensors, numbers and containers in attributes, lists, dicts, sets
and names, and that read what is there by value, by length, by identity or as a whole. Every call
must return, and leave behind, what the plain function does; a refusal names the line.
"""

from __future__ import annotations

import linecache
import random
import warnings
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

import ridgeline as rl
from tests.attacks.attack import Attack
from tests.fuzz.faults import Fault

_CALLS = 7
_VALUES = (
    "x * 2", "x + 1", "y", "k", "f", "f * 2", "k + 1", "k * 0.5", "(y, x)", "(y, k)", "[y]",
    "[k, f]", "{'a': y}", "len(rows)", "None", "x", "w", "[]", "box.n", "'t'",
)  # fmt: skip
_PLACES = ("box.a", "box.b", "table['a']", "table[k]", "rows[0]", "G", "table['b']")
_CHANGES = (
    "rows.append({})", "rows.insert(0, {})", "rows.extend([{}, {}])", "row.append({})",
    "table.update(a={})", "table.setdefault('z', []).append({})", "table.setdefault('y', {})",
    "found.add(k)", "found.add(f)", "box.n += 1", "box.n = k", "rows.pop() if rows else None",
    "del rows[:-2]", "rows.clear()", "table.pop('a', None)", "box.list = rows[-2:]",
    "rows[:] = [{}]", "setattr(box, 'c', {})", "queue.append({})", "rows.reverse()",
    "box.inner.v = {}", "box.inner = N(v={})",
    "if len(rows) > 2: rows.pop(0)", "if 'a' in table: del table['a']", "G2 = {}; box.g = G2",
)  # fmt: skip
_READS = (
    "len(rows)", "len(table)", "total(rows)", "total(table.values())", "total([box.a])",
    "total(row)", "total([box.b, box.a])", "len(found)", "box.n", "total(queue)", "total([G])",
    "float('a' in table)", "float(hasattr(box, 'c'))",
    "total([box.inner.v])", "float(bool(rows))", "total(rows[-1:])",
    "total([table.get('a')])", "float(box.a is None)", "total(list(vars(box).values()))",
    "0.0",
)  # fmt: skip
_PAIRS = (
    ("rows.append(y)", "len(rows)", "total(rows)", "total(rows[-2:])", "rows[len(rows) // 2]"),
    ("row.append(y)", "len(row)", "row[0]", "total(row)"),
    ("table[k] = y", "len(table)", "total(table.values())", "float(2 in table)"),
    ("box.a = [y]", "0.0", "len(box.a)"), ("G = [k, f]", "0.0", "G[1]"), ("box.b = f * 2", "0.0"),
    ("table['a'] = f + 1", "0.0", "len(table)"), ("rows[0] = [y]", "0.0"),
    ("box.c = y", "float(hasattr(box, 'c'))", "len(vars(box))", "total(vars(box).values())"),
)  # fmt: skip


def _text(seed: int) -> str:
    draw = random.Random(seed)
    lines = ["global G", "y = x * w"]
    if draw.random() < 0.5:  # what is added is read again at once
        kept, *reads = draw.choice(_PAIRS)
        return _written([*lines, kept, f"return y + {draw.choice(reads)}"])
    for _ in range(draw.choice((1, 1, 2, 3, 5))):
        value = [draw.choice(_VALUES if draw.random() < 0.6 else _VALUES[:3]) for _ in range(2)]
        if draw.random() < 0.5:
            lines.append(f"{draw.choice(_PLACES)} = {value[0]}")
        else:
            lines += draw.choice(_CHANGES).format(*value).split("; ")
        if draw.random() < 0.35:
            lines.append(f"y = y + {draw.choice(_READS)}")
    reads = [draw.choice(_READS) for _ in range(draw.randint(0, 2))]
    return _written([*lines, f"return {' + '.join(['y', *reads])}"])


def _written(lines: Sequence[str]) -> str:
    return "def f(x, k, f):\n    " + "\n    ".join(lines) + "\n"


def total(values: Any) -> Any:
    """A number or a tensor to which everything in some values adds."""
    found: Any = 0.0
    for value in values:
        if isinstance(value, list | tuple | deque):
            found = found + total(value)
        elif isinstance(value, dict):
            found = found + total(value.values())
        elif isinstance(value, SimpleNamespace):
            found = found + total(vars(value).values())
        elif isinstance(value, rl.Tensor | int | float):
            found = found + value
    return found


class _World:
    """The objects that a function changes, and the function itself."""

    def __init__(self, text: str, file: str) -> None:
        box = SimpleNamespace(a=None, b=1.5, n=0, list=[], inner=SimpleNamespace(v=None))
        self.objects: dict[str, Any] = {
            "box": box, "table": {}, "rows": [rl.zeros(2)], "found": set(),
            "queue": deque(maxlen=3), "row": [], "G": 0,
        }  # fmt: skip
        self.names = {
            **self.objects, "rl": rl, "total": total, "w": rl.tensor([0.5, 2.0]),
            "N": SimpleNamespace,
        }  # fmt: skip
        exec(compile(text, file, "exec"), self.names)

    def shown(self) -> Any:
        """All objects as they are now."""
        return _shown([self.names[name] for name in self.objects])


def _shown(value: Any) -> Any:
    if isinstance(value, rl.Tensor):
        return ("tensor", np.array(value.tolist()).round(6).tolist())
    if isinstance(value, dict):
        return {str(key): _shown(part) for key, part in value.items()}
    if isinstance(value, list | tuple | deque):
        return type(value).__name__, [_shown(part) for part in value]
    if isinstance(value, set):
        return sorted(map(repr, value))
    if isinstance(value, SimpleNamespace):
        return _shown(vars(value))
    return type(value).__name__, repr(value)


def trial(seed: int) -> None:
    """Raise where a jitted function returns or leaves other things than the plain one."""
    text, file, draw = _text(seed), f"<effects {seed}>", random.Random(seed)
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    plain, jitted = _World(text, file), _World(text, file)
    with warnings.catch_warnings(), rl.config.override(tier="interpreter"):
        warnings.simplefilter("ignore")
        call = rl.jit(jitted.names["f"])
        held: list[tuple[Any, Any]] = []
        for number in range(_CALLS):
            k = draw.choice((1, 1, 2, 3))
            f = draw.choice((0.5, 0.5, 1.5))
            given = [float(number), 1.0]
            try:
                wanted = plain.names["f"](rl.tensor(given), k, f)
            except Exception:
                return  # such as a tensor under an unlike key: no business of jit's
            try:
                found = call(rl.tensor(given), k, f)
            except rl.RidgelineError:
                return
            seen = _shown(found), jitted.shown()
            due = _shown(wanted), plain.shown()
            held.append((wanted, found))
            assert seen == due, f"call {number}: {seen}\ninstead of {due}\n{text}"
    for wanted, found in held:
        assert _shown(wanted) == _shown(found), f"a result changed later\n{text}"


ATTACK = Attack(
    "effects",
    "a jitted function leaves in objects outside what the plain one does, and finds it there",
    trial,
    short=60,
    faults=(
        Fault("a list that was left passes for another one", "tracing.reads.recorder",
              "ReadRecorder.leaves", "is_a(value, _CONTAINERS)", "False"),
        Fault("what was added to is compared before the addition", "tracing.reads.recorder",
              "ReadRecorder.note", "look in _WHOLE", "False"),
        Fault("a number is kept open", "tracing.reads.kinds", "kept_value",
              "return value.plain()", "return value"),
    ),
)  # fmt: skip
