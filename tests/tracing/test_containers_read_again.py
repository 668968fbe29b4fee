"""A jitted function that adds to a container and then reads it: torch says what is right."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import pytest

import ridgeline as rl

torch = pytest.importorskip("torch")

BODIES = [
    "rows.append(w * x); return lib.cat(rows)",
    "rows.append(w * x); return len(rows) * w",
    "rows.append(w * x); return sum(rows)",
    "rows.append(w * x); return rows[-1] + rows[0]",
    "rows.append(w * x); return rows[len(rows) // 2]",
    "rows.append(w * x); return w * 2 if rows[-1] is rows[0] else w",
    "rows.append(w * x); del rows[:-3]; return lib.stack(rows).sum(0)",
    "n = len(rows); rows.append(w * x); return w * n + w * len(rows)",
    "table['a'] = w * x; return len(table) * w + table['a']",
    "table['a'] = w * x; table.setdefault('b', w); return lib.stack(list(table.values()))",
    "table[len(rows)] = w * x; rows.append(w); return sum(table.values())",
]


def _outcome(lib: Any, body: str, wrap: Callable[[Any], Any]) -> list[Any]:
    names: dict[str, Any] = {"lib": lib, "w": lib.tensor([1.0, 2.0]), "rows": [], "table": {}}
    lines = "\n    ".join(body.split("; "))
    file = f"<{body}>"
    text = f"def f(x):\n    {lines}\n"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), names)
    call = wrap(names["f"])
    return [call(lib.tensor([float(number), 1.0])).tolist() for number in range(7)]


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("body", BODIES)
def test_what_was_added_is_read_in_every_call(body: str, tier: Any) -> None:
    with rl.config.override(tier=tier):
        found = _outcome(rl, body, rl.jit)
    assert found == _outcome(torch, body, lambda f: f)
