"""Writes `docs/torch_names.md`: which of torch's public names are here, ranked by their use.

`tools/torch_names.csv` has the names that ten public repositories use, with how many of these use
each, how often, and by which keywords. A name exists if it is here and its case in
`tests/names/cases.txt` agrees with torch. `python tools/torch_names.py` writes the page; a test
compares it.
"""

from __future__ import annotations

import ast
import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

TABLE = ROOT / "tools" / "torch_names.csv"
PAGE = ROOT / "docs" / "torch_names.md"
CASES = ROOT / "tests" / "names" / "cases.txt"
_SHORT = {"torch": "", "nn": "nn", "F": "nn.functional"}
# names that are here and do less, or something else, than in torch
DIFFERENCES = {
    "utils.checkpoint.checkpoint": "the function runs once; what it recorded is computed again",
    "jit.script": "a function is captured when it is called; a module stays as it is",
    "jit.is_tracing": "True while `rl.jit` captures a function",
    "nn.DataParallel": "one device computes the whole batch",
    "nn.attention.sdpa_kernel": "the compiler chooses how attention is computed",
    "backends.cudnn.benchmark": "kept and read back; schedules are chosen by the compiler",
    "utils.data.DataLoader": "workers are started by a fork server: datasets must be picklable; "
    "tuples are collated to tuples",
    "load": "no code of a file ever runs, whatever `weights_only` says; `safe_globals` allows "
    "classes",
    "__version__": "Ridgeline's own; under `ridgeline run` that of the torch it stands for",
    "Tensor.resize_": "new elements are zeros",
    "empty": "elements are zeros until they are written",
    "Tensor.new_empty": "elements are zeros until they are written",
    "compile": "`backend`, `mode` and `options` change nothing",
}


@dataclass(frozen=True)
class Row:
    """A name of torch without `torch.`, by how many repositories it is used, how often and how."""

    name: str
    repos: int
    uses: int
    keywords: frozenset[str]


def rows() -> list[Row]:
    """The table, most used first."""
    with TABLE.open() as file:
        return [
            Row(r["name"], int(r["repos"]), int(r["uses"]), frozenset(r["keywords"].split()))
            for r in csv.DictReader(file)
        ]


def covered(tree: ast.AST) -> Iterator[tuple[str, set[str]]]:
    """The names of torch in an expression, as the table spells them, with their keywords."""
    keywords = {
        id(node.func): {k.arg for k in node.keywords if k.arg}
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            path, root = [node.attr], node.value
            while isinstance(root, ast.Attribute):
                path.insert(0, root.attr)
                root = root.value
            given = keywords.get(id(node), set())
            if isinstance(root, ast.Name) and root.id in _SHORT:
                yield ".".join([*filter(None, [_SHORT[root.id]]), *path]), given
            yield f"Tensor.{node.attr}", given
        elif isinstance(node, ast.Name) and _SHORT.get(node.id):
            yield _SHORT[node.id], set()


def exists(name: str) -> bool:
    """Whether a name is here."""
    import ridgeline

    found: object = ridgeline
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except (AttributeError, ImportError):
            return False
    return True


def page() -> str:
    """The text of the page."""
    from ridgeline.torch_names import reason

    listed = rows()
    here = {row.name for row in listed if exists(row.name)}
    first = sum(row.name in here for row in listed[:500])
    lines = [
        "# torch's names",
        "",
        f"Of the {len(listed)} public names of torch that ten public repositories use, {len(here)} "
        f"exist here; of the 500 most used, {first}. They behave as torch's do: "
        "`tests/names/cases.txt` calls each of the first 500, with the keywords that are used, and "
        "compares. This page is written by `python tools/torch_names.py`.",
        "",
        "## Different here",
        "",
        "| name | repositories | uses | |",
        "|---|---|---|---|",
    ]
    by_name = {row.name: row for row in listed}
    for name in sorted(DIFFERENCES, key=lambda n: (-by_name[n].repos, -by_name[n].uses)):
        row = by_name[name]
        lines.append(f"| `{name}` | {row.repos} | {row.uses} | {DIFFERENCES[name]} |")
    lines += ["", "## Missing", "", "| name | repositories | uses | why |", "|---|---|---|---|"]
    for row in listed:
        if row.name not in here:
            why = reason(row.name) or "not asked for often enough yet"
            lines.append(f"| `{row.name}` | {row.repos} | {row.uses} | {why} |")
    lines += ["", "## All", "", "By repositories, then uses; ~ differs, ✗ is missing.", ""]
    for repos in sorted({row.repos for row in listed}, reverse=True):
        marked = [
            f"`{row.name}`" + ("" if row.name in here else " ✗") + " ~" * (row.name in DIFFERENCES)
            for row in listed
            if row.repos == repos
        ]
        lines += [f"**{repos} of 10**: " + ", ".join(marked), ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
