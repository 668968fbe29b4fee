"""Tests of torch's own repository, run with another backend in the place of Inductor."""

from __future__ import annotations

import importlib.util
import re
import sys
import types
import unittest
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.backends.registry import lookup_backend
from torch._functorch.aot_autograd import make_boxed_func

Check = Callable[[], dict[str, Any]]
COMMON = "test/inductor/test_torchinductor.py"
BACKENDS = "test/dynamo/test_backends.py"
SWAPPED = re.compile(r'"(inductor|aot_eager\w*)"')


def inductor_tests(checkout: Path, backend_name: str) -> Iterator[tuple[str, Check]]:
    """Inductor's tests for all devices, on the CPU."""
    sys.path.insert(0, str(checkout / "test"))
    module = loaded(checkout / COMMON, (checkout / COMMON).read_text())
    if backend_name != "inductor":
        put_in_place(module, lookup_backend(backend_name))
    yield from tests_of([module.CpuTests])


def backend_tests(checkout: Path, backend_name: str) -> Iterator[tuple[str, Check]]:
    """Dynamo's tests of backends, with one name for those of Inductor and AOTAutograd."""
    text = (checkout / BACKENDS).read_text()
    module = loaded(checkout / BACKENDS, SWAPPED.sub(f'"{backend_name}"', text))
    kinds = [v for v in vars(module).values() if isinstance(v, type)]
    yield from tests_of([k for k in kinds if issubclass(k, unittest.TestCase)])


def loaded(path: Path, text: str) -> types.ModuleType:
    """A file of tests as a module."""
    spec = importlib.util.spec_from_loader(path.stem, loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    module.__file__ = str(path)
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def put_in_place(module: types.ModuleType, backend: Callable[..., Any]) -> None:
    """Have a backend called wherever the tests, or torch.compile by default, call Inductor."""

    def compile_fx(graph: Any, inputs: Sequence[Any], *rest: Any, **options: Any) -> Any:
        return backend(graph, inputs)

    def compile_fx_inner(graph: Any, inputs: Sequence[Any], *rest: Any, **options: Any) -> Any:
        made = backend(graph, inputs)
        return made if getattr(made, "_boxed_call", False) else make_boxed_func(made)

    for home in (module, torch._inductor.compile_fx):
        vars(home).update(compile_fx=compile_fx, compile_fx_inner=compile_fx_inner)


def tests_of(kinds: Sequence[type[unittest.TestCase]]) -> Iterator[tuple[str, Check]]:
    """The tests of some classes, by name."""
    for kind in kinds:
        for name in unittest.defaultTestLoader.getTestCaseNames(kind):
            yield f"{kind.__name__}.{name}", partial(check_test, kind(name))


def check_test(case: unittest.TestCase) -> dict[str, Any]:
    """Run a test; raises where it fails."""
    result = unittest.TestResult()
    unittest.TestSuite([case]).run(result)
    for _, text in (*result.failures, *result.errors):
        raise AssertionError(said(text))
    if result.skipped:
        return {"skipped": result.skipped[0][1]}
    return {}


def said(traceback: str) -> str:
    """What a traceback says, from the exception on."""
    parts = re.split(r"^(?=\S)", traceback, flags=re.MULTILINE)
    told = [part for part in parts if not part.startswith(("Traceback", "To execute", "This mes"))]
    return "".join(told)[-400:] if told else traceback[-400:]
