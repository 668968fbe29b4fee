"""Every error code of the package has its page, and `ridgeline explain` prints it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ridgeline
from ridgeline.cli.explain import PAGES
from ridgeline.cli.main import main

PACKAGE = Path(ridgeline.__file__).parent
CODE = re.compile(r"^\s+code(?:: \w+(?:\[str\])?)? = \"(RL\d{4})\"", re.MULTILINE)
CODES = sorted({
    code for path in PACKAGE.rglob("*.py") for code in CODE.findall(path.read_text("utf-8"))
})  # fmt: skip


def test_codes_and_pages_are_the_same_set() -> None:
    assert len(CODES) > 20
    assert sorted(page.stem for page in PAGES.glob("RL*.md")) == CODES


@pytest.mark.parametrize("code", CODES)
def test_explain_prints_the_page(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", code.lower()]) == 0
    printed = capsys.readouterr().out
    title, _, body = printed.partition("\n")
    assert re.fullmatch(rf"# {code}: [^A-Z].+[^.]", title)
    assert len(body.split()) > 20  # says more than the message did
    assert all(len(line) <= 100 for line in printed.splitlines())


def test_an_unknown_code_is_an_error_with_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "RL9999"]) == 2
    assert "RL0712" in capsys.readouterr().err


def test_the_printed_error_begins_with_its_code() -> None:
    with pytest.raises(ridgeline.RidgelineError) as caught:
        ridgeline.ones(2) + ridgeline.ones(3)
    text = str(caught.value)
    assert text.startswith("RL0101: ") and "[2]" in text and "[3]" in text
    assert "test_error_codes.py" in text  # where the operands were made
