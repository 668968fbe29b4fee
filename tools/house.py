"""Figures of the code itself: `python tools/house.py [ROOT] [--beside OTHER]`.

Net lines (no blanks, comments, docstrings), sizes of files and functions, the files and functions
of the package that one matrix product enters with a cold cache, and cycles of imports. Imports
inside functions count; those for type checkers and those of `__init__` files do not. With
`--beside`, the net lines of each folder stand beside those of another checkout, such as one of
`git worktree add OTHER REVISION`: where the package grew and where it shrank.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path

PASSED_OVER = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
)  # fmt: skip

# Comprehensions are no functions (Python 3.12 has no calls for them), nor are bodies of modules and
# classes: these are loaded beforehand, but for what needs a GPU.
ENTERED = """
import sys
entered = set()
passed_over = {"<listcomp>", "<dictcomp>", "<setcomp>", "<module>", "find_spec"}
def observe(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_name not in passed_over and code.co_flags & 1:
        entered.add((code.co_filename, code.co_qualname, code.co_firstlineno))
import importlib, pkgutil
import ridgeline as rl
for module in pkgutil.walk_packages(rl.__path__, "ridgeline."):
    folder = module.name.split(".")[1]
    if folder in ("codegen", "compiler", "runtime") and "cuda" not in module.name:
        importlib.import_module(module.name)
a, b = rl.ones(300, 300), rl.ones(300, 300)
import threading
threading.setprofile(observe)
sys.setprofile(observe)
(a @ b).numpy()
sys.setprofile(None)
own = {e for e in entered if e[0].startswith(sys.argv[1])}
for path in sorted({path for path, _, _ in own}):
    print(path)
print(len(own), "functions")
"""


def net_lines(text: str) -> int:
    """Lines that hold code: not blank, no comment, no docstring."""
    documented = {line for node in ast.walk(ast.parse(text)) for line in _docstring_lines(node)}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in PASSED_OVER:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def net_lines_by_folder(root: Path) -> dict[str, int]:
    """Net lines of each folder of a checkout's package, its modules outside folders as `.`."""
    package = root / "ridgeline"
    found: dict[str, int] = {}
    for path in sorted(package.rglob("*.py")):
        folder, *inside = path.relative_to(package).parts
        name = folder if inside else "."
        found[name] = found.get(name, 0) + net_lines(path.read_text())
    return found


def print_beside(root: Path, other: Path) -> None:
    """Print what each folder has in both checkouts, what grew most first."""
    here, there = net_lines_by_folder(root), net_lines_by_folder(other)
    change = {name: here.get(name, 0) - there.get(name, 0) for name in here.keys() | there.keys()}
    print(f"{'folder':16}{'beside':>8}{'here':>8}{'change':>8}")
    for name in sorted(change, key=lambda name: (-change[name], name)):
        print(f"{name:16}{there.get(name, 0):8}{here.get(name, 0):8}{change[name]:+8}")
    print(f"{'all':16}{sum(there.values()):8}{sum(here.values()):8}{sum(change.values()):+8}")


def _docstring_lines(node: ast.AST) -> Iterator[int]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def function_lengths(text: str) -> list[int]:
    """How many lines each function has."""
    return [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def modules_of(package: Path) -> dict[str, Path]:
    """Every module of the package by its full name, `__init__` files left out."""
    return {
        ".".join(path.relative_to(package.parent).with_suffix("").parts): path
        for path in sorted(package.rglob("*.py"))
        if path.name != "__init__.py"
    }


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of the package that a module imports, anywhere but for type checkers."""
    found: set[str] = set()
    for node in _run_time_nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names] + [node.module]
        else:
            continue
        found.update(name for name in names if name in known)
    return found


def _run_time_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _run_time_nodes(child)


def cycles(package: Path) -> list[list[str]]:
    """Groups of modules that import one another, the largest first (Tarjan, without recursion)."""
    known = modules_of(package)
    edges = {name: sorted(imports(path, known) - {name}) for name, path in known.items()}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    for root in edges:
        if root in index:
            continue
        work: list[tuple[str, Iterator[str]]] = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            name, left = work[-1]
            following = next(left, None)
            if following is not None:
                if following not in index:
                    index[following] = low[following] = len(index)
                    stack.append(following)
                    work.append((following, iter(edges[following])))
                elif following in stack:
                    low[name] = min(low[name], index[following])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[name])
            if low[name] == index[name]:
                at = stack.index(name)
                group, stack[at:] = stack[at:], []
                if len(group) > 1:
                    found.append(sorted(group))
    return sorted(found, key=len, reverse=True)


def entered_by_a_product(root: Path) -> tuple[list[str], int]:
    """The files, and how many functions, that `(a @ b).numpy()` enters with a cold cache."""
    with tempfile.TemporaryDirectory() as cache:
        variables = {
            **os.environ, "PYTHONPATH": str(root), "RIDGELINE_CACHE_DIR": cache,
            "RIDGELINE_CALIBRATE": "0", "RIDGELINE_TIER": "compiled", "RIDGELINE_VERIFY": "0",
        }  # fmt: skip
        words = [sys.executable, "-c", ENTERED, str(root / "ridgeline")]
        said = subprocess.run(
            words,
            env=variables,
            capture_output=True,
            text=True,
            check=True,
            cwd=root,
        )
    *files, count = said.stdout.splitlines()
    return files, int(count.split()[0])


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--beside", type=Path, help="another checkout, compared folder by folder")
    options = parser.parse_args()
    root: Path = options.root.resolve()
    if options.beside is not None:
        print_beside(root, options.beside.resolve())
        return
    package = root / "ridgeline"
    texts = {path: path.read_text() for path in sorted(package.rglob("*.py"))}
    net = sum(map(net_lines, texts.values()))
    longest = max(texts, key=lambda path: texts[path].count("\n"))
    lengths = sorted(n for text in texts.values() for n in function_lengths(text))
    print(f"net lines of code: {net} in {len(texts)} files")
    print(f"longest file: {longest.relative_to(root)}, {texts[longest].count(chr(10))} lines")
    short = [path for path, text in texts.items() if text.count("\n") < 60]
    print(f"files under 60 lines: {len(short)}")
    print(f"functions: p90 {lengths[len(lengths) * 9 // 10]} lines, longest {lengths[-1]}")
    files, functions = entered_by_a_product(root)
    print(f"a matrix product enters {len(files)} files and {functions} functions")
    groups = cycles(package)
    print(f"cycles of imports: {len(groups)}, of {[len(group) for group in groups]} modules")
    for group in groups[:3]:
        folders = sorted({name.rpartition(".")[0] for name in group})
        print(f"  across {', '.join(folders)}")


if __name__ == "__main__":
    main()
