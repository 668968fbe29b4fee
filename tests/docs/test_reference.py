"""The reference: every public name is explained, with examples that print what they say."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import ridgeline as rl
from ridgeline.reference import FOLDER, Page, page, sections

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import reference  # a tool, not a package

PAGES = {path.stem: page(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.md"))}
# whose callables are all explained
NAMESPACES = (
    "", "linalg", "fft", "special", "masked", "signal.windows", "nn", "nn.functional", "nn.init",
    "nn.utils", "optim", "optim.lr_scheduler", "distributions",
)  # fmt: skip
INTERNAL = re.compile(r"\b(Node|Operand|Sizes|Dims|Order|Number|Pooled)\b")


def public_callables(namespace: str) -> dict[str, Any]:
    """What a namespace shows that can be called."""
    path = f"ridgeline.{namespace}" if namespace else "ridgeline"
    module = importlib.import_module(path)
    names = getattr(module, "__all__", None) or dir(module)
    found = {name: getattr(module, name) for name in names if name[0] != "_"}
    if namespace == "nn.init":  # it shows what it imports, too
        found = {n: v for n, v in found.items() if getattr(v, "__module__", "") == path}
    return {
        name: value
        for name, value in found.items()
        if callable(value) and not isinstance(value, rl.DType) and not inspect.ismodule(value)
    }


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_every_public_name_is_explained_with_an_example(namespace: str) -> None:
    bare = [
        name
        for name, value in public_callables(namespace).items()
        if ">>> " not in (inspect.getdoc(value) or "")
    ]
    assert bare == []


def run_examples(texts: dict[str, str], known: dict[str, Any]) -> str:
    """What is wrong with the examples of some texts, each on its own."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    said: list[str] = []
    for title, text in texts.items():
        rl.manual_seed(0)
        test = doctest.DocTestParser().get_doctest(f"{text}\n", dict(known), title, title, 0)
        assert test.examples, f"{title} has no example"
        runner.run(test, out=said.append)
    return "".join(said)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # examples write files


@pytest.mark.parametrize("name", PAGES)
def test_examples_print_what_the_page_says(name: str) -> None:
    texts = {section.names[0]: section.text for section in PAGES[name].sections}
    bad = [n for n, text in texts.items() if "Traceback" in text or "<BLANKLINE>" in text]
    assert bad == []  # nothing that a reader would stumble over
    assert run_examples(texts, reference.names()) == ""


def test_examples_of_docstrings_print_what_they_say() -> None:
    texts = {}
    for namespace in NAMESPACES:
        for name, value in public_callables(namespace).items():
            own = (inspect.getdoc(value) or "").partition("\n\n## ")[0]
            if ">>> " in own and not any(part.text in own for part in sections().values()):
                texts[f"{namespace}.{name}"] = own
    assert run_examples(texts, reference.names()) == ""


# Ours alone, or printed in another way; what differs is said in the text.
NOT_IN_TORCH = {
    "nn.MixtureOfExperts",
    "autograd.detect_anomaly", "broadcast_shapes", "cumulative_sum", "func.grad_and_value",
    "get_rng_state", "linalg.LinAlgError", "nn.deferred", "nn.init.fans", "optim.AveragedModel",
    "optim.LAMB", "optim.Lion", "repeat", "standard_gamma",
}  # fmt: skip
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?|inf|nan")


def plain(text: str) -> str:
    """An output without the names of packages, of classes of named tuples, and line breaks."""
    text = re.sub(r"(torch|ridgeline)\.(return_types\.)?", "", text)
    text = re.sub(r"\b[A-Za-z]\w*\(\s*(?=\w+=)", "(", text)
    return re.sub(r"\s+", " ", text).strip()


@pytest.mark.parametrize("name", sorted(PAGES.keys() - {"programs", "data", "train", "models"}))
def test_examples_print_the_same_in_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    known = reference.names() | {
        "rl": torch, "nn": torch.nn, "F": torch.nn.functional, "optim": torch.optim
    }  # fmt: skip
    different = []
    for section in PAGES[name].sections:
        if section.names[0] in NOT_IN_TORCH:
            continue
        torch.manual_seed(0)
        found = dict(known)
        for example in doctest.DocTestParser().get_examples(f"{section.text}\n"):
            theirs, ours = plain(reference.printed(example.source, found)), plain(example.want)
            numbers = [[float(n) for n in NUMBER.findall(text)] for text in (theirs, ours)]
            alike = NUMBER.sub("#", theirs) == NUMBER.sub("#", ours)
            if not alike or numbers[0] != pytest.approx(numbers[1], 2e-4, 2e-4, nan_ok=True):
                different.append(f"{section.names[0]}: {example.source}{ours}\n{theirs}")
    assert different == []


@pytest.mark.parametrize("name", PAGES)
def test_sections_are_of_names_that_exist_and_show_each(name: str) -> None:
    for section in PAGES[name].sections:
        lines = section.text.splitlines()
        code = "\n".join(line for line in lines if line[4:8] in (">>> ", "... "))
        for full in section.names:
            value: Any = rl
            for part in full.split("."):
                value = getattr(value, part)
            assert re.search(rf"\b{full.split('.')[-1]}\b", code), f"no example calls {full}"


def test_no_name_has_two_sections() -> None:
    listed = [n for one in PAGES.values() for section in one.sections for n in section.names]
    assert sorted(listed) == sorted(sections())


def test_help_shows_public_types_alone() -> None:
    shown = {}
    for namespace in ("", "linalg", "fft", "special", "masked", "signal.windows", "nn.functional"):
        for name, value in public_callables(namespace).items():
            if inspect.isfunction(value):
                shown[f"{namespace}.{name}"] = str(inspect.signature(value))
    assert {name: text for name, text in shown.items() if INTERNAL.search(text)} == {}
    assert str(inspect.signature(rl.conv2d)).startswith("(input: Tensor, weight: Tensor, bias: ")
    assert str(inspect.signature(rl.abs_)) == "(self) -> Tensor"


def test_a_page_is_read_into_sections() -> None:
    text = "# Title\n\nFor all.\n\n## a, b.c\nText.\n\n    >>> 1\n    1\n\n## d\nMore.\n"
    made = page(text)
    assert isinstance(made, Page) and made.title == "Title" and made.shared == "For all."
    first, second = made.sections
    assert first.names == ("a", "b.c") and first.text == "Text.\n\n    >>> 1\n    1"
    assert second.full == "More.\n\nFor all."
