"""What the site has besides `docs/`: the pages of the reference and documents of the root.

`mkdocs build --strict` calls the functions named `on_…`. Documents keep the links that they have in
the repository: those to other documents become links between pages, and those to source files,
which the site does not have, plain text.
"""

from __future__ import annotations

import inspect
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page as SitePage

import ridgeline as rl
from ridgeline.reference import FOLDER, Page, Section, page

ROOT = Path(__file__).parents[1]
# documents outside of docs/, by the page that shows them
DOCUMENTS = {
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "benchmarks.md": "benchmarks/README.md",
}
PAGES = {source: target for target, source in DOCUMENTS.items()} | {"README.md": "index.md"}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files of docs/."""
    for target, source in DOCUMENTS.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=text))
    pages = {path.stem: page(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.md")}
    for name, made in pages.items():
        text = reference_page(made)
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    files.append(File.generated(config, "reference/index.md", content=index_page(pages)))
    return files


def on_page_markdown(markdown: str, *, page: SitePage, config: Any, files: Files) -> str:
    """Links of a document as links of its page."""
    target = page.file.src_uri
    source = DOCUMENTS.get(target, f"docs/{target}")
    return relinked(markdown, source, target)


def relinked(text: str, source: str, target: str) -> str:
    """A document of the repository with its links as the page `target` has them."""

    def link(found: re.Match[str]) -> str:
        label, path, anchor = found[1], found[2], found[3] or ""
        if not path or "://" in path:
            return found[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        there = wanted.removeprefix("docs/") if wanted.startswith("docs/") else PAGES.get(wanted)
        if there is None:
            return label
        return f"[{label}]({posixpath.relpath(there, posixpath.dirname(target) or '.')}{anchor})"

    return _LINK.sub(link, text)


def reference_page(made: Page) -> str:
    """A page of the reference: for each name its signature, the docstring, text and examples."""
    shared = [made.shared, ""] if made.shared else []
    parts = [f"# {made.title}", "", *shared]
    for section in made.sections:
        parts += section_text(section)
    return "\n".join(parts)


def section_text(section: Section) -> Iterable[str]:
    """A section with what the source says."""
    for name in section.names:
        value = found(name)
        summary = (inspect.getdoc(value) or "").partition("\n\n")[0]
        yield from (f"## {name}", "", "```python", f"rl.{name}{signature(value)}", "```", "")
        yield from (summary, "")
    yield from fenced(section.text.splitlines())
    yield ""


def fenced(lines: Iterable[str]) -> Iterable[str]:
    """Indented examples as coloured blocks."""
    inside = False
    for line in lines:
        code = line.startswith("    ")
        if code != inside:
            yield "```pycon" if code else "```"
        inside = code
        yield line[4:] if code else line
    if inside:
        yield "```"


def found(name: str) -> Any:
    """What a name of the reference means."""
    value: Any = rl
    for part in name.split("."):
        value = getattr(value, part)
    return value


def signature(value: Any) -> str:
    """The signature of a callable without quotes; nothing where there is none."""
    try:
        return str(inspect.signature(value)).replace("'", "")
    except (TypeError, ValueError):
        return ""


def index_page(pages: dict[str, Page]) -> str:
    """Every name with its page, in alphabetical order."""
    where = {n: stem for stem, made in pages.items() for part in made.sections for n in part.names}
    lines = [
        "# All names", "",
        "Examples begin with these lines:", "",
        "```python",
        "import math", "import numpy as np", "import ridgeline as rl",
        "from ridgeline import nn, optim", "from ridgeline.nn import functional as F",
        "```", "",
        "`help(rl.conv2d)` shows the same text. Functions that give a tensor take `out=`; `axis=`",
        "and `keepdims=` are understood for `dim=` and `keepdim=`; most are methods too.", "",
    ]  # fmt: skip
    letter = ""
    for name in sorted(where, key=str.casefold):
        first = name.rpartition(".")[0] or name[0].upper()
        if first != letter:
            letter = first
            lines += ["", f"**{letter}**", ""]
        anchor = re.sub(r"[^\w]", "", name.lower())
        lines.append(f"[{name.rpartition('.')[2]}]({where[name]}.md#{anchor})")
    return "\n".join(lines)
