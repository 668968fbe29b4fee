"""The site is built from the repository alone, with every warning an error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ridgeline.reference import FOLDER, sections

pytest.importorskip("mkdocs")

from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(r"(?:<script[^>]+src|<link[^>]+href|<img[^>]+src)=\"https?://")


def test_every_page_is_built_and_nothing_is_fetched(tmp_path: Path) -> None:
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    pages = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.html")}
    assert {"index.html", "from_pytorch/index.html", "tutorials/train/index.html"} <= pages.keys()
    assert all(f"reference/{path.stem}/index.html" in pages for path in FOLDER.glob("*.md"))
    assert [name for name, text in pages.items() if FETCHED.search(text)] == []
    names = re.findall(r"<h2 id=\"[^\"]*\">([\w.]+)", "".join(pages.values()))
    assert sections().keys() <= set(names)
    assert "conv2d" in pages["reference/products/index.html"]
