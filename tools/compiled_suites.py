"""Programs of others through torch.compile(backend="ridgeline"), compared with torch itself.

usage: python tools/compiled_suites.py kernelbench CHECKOUT [--levels 1,2] [--match REGEX]
       python tools/compiled_suites.py opinfo [--match REGEX] [--samples N] [--no-grads]
       python tools/compiled_suites.py families [--match REGEX]
       python tools/compiled_suites.py inductor CHECKOUT [--match REGEX]
       python tools/compiled_suites.py backends CHECKOUT [--match REGEX]

`--backend aot_eager` runs them the same way with torch's own, to compare graphs and results.
Each program runs in a process of its own. A line of JSON each says whether results (and gradients)
are torch's, how many graphs there were, and which calls torch made in them; the last line counts.
KernelBench (ScalingIntelligence/KernelBench) is run with its sizes divided, so that it fits a CPU.
`inductor` are the tests that Inductor has for all devices (`CommonTemplate`) and `backends` those
of Dynamo's backends, of a checkout of pytorch/pytorch at the version of torch that is installed.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import re
import resource
import signal
import sys
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters

sys.path.insert(0, str(Path(__file__).parents[1]))
import ridgeline.torch_backend as backend
from tools import torch_tests

SUITES = ("kernelbench", "opinfo", "families", "inductor", "backends")
Check = Callable[[], dict[str, Any]]
MEMORY = 12 << 30


def compiled(function: Any, backend_name: str) -> Any:
    return torch.compile(function, backend=backend_name)


def flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in flat(part)]
    return [value] if isinstance(value, torch.Tensor) else []


def compare(got: Any, want: Any, rtol: float, atol: float, what: str = "value") -> None:
    ours, theirs = flat(got), flat(want)
    assert len(ours) == len(theirs), f"{what}: {len(ours)} tensors and not {len(theirs)}"
    for one, other in zip(ours, theirs):
        assert one.dtype == other.dtype, f"{what}: {one.dtype} and not {other.dtype}"
        torch.testing.assert_close(
            one.detach(), other.detach(), rtol=rtol, atol=atol, equal_nan=True,
            msg=lambda text: f"{what}: {text}",
        )  # fmt: skip


# ---- KernelBench ---------------------------------------------------------------------------------

KEPT = re.compile(
    r"kernel|stride|pad|dilation|group|head|num_layers|^n_layer|scal|factor|pool_|prob|eps|expand|"
    r"ratio|axis|classes|bias|window|patch",
    re.IGNORECASE,
)
DIVISORS = (64, 32, 16, 8, 4, 2, 1, -64)  # negative: batches are divided, too


class Smaller(ast.NodeTransformer):
    """Sizes that a problem names are divided, and batches are two."""

    def __init__(self, divisor: int) -> None:
        self.divisor, self.name = divisor, ""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value = node.value
        if type(value) is not int or value <= 16 or KEPT.search(self.name):
            return node
        is_batch = self.divisor > 0 and "batch" in self.name
        smaller = min(value, 2) if is_batch else max(value // abs(self.divisor), 8)
        return ast.copy_location(ast.Constant(smaller), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:  # a product of numbers is one size
        try:
            value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})
        except NameError:
            return self.generic_visit(node)
        return self.visit_Constant(ast.copy_location(ast.Constant(value), node))

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.name = ",".join(map(ast.unparse, node.targets))
        node.value = self.visit(node.value)
        self.name = ""
        return node


def problem(path: Path, divisor: int) -> Any:
    tree, smaller = ast.parse(path.read_text()), Smaller(divisor)
    for number, node in enumerate(tree.body):
        inputs = isinstance(node, ast.FunctionDef) and node.name.startswith("get_")
        if isinstance(node, ast.Assign) or inputs:
            tree.body[number] = smaller.visit(node)
    made = types.ModuleType("problem")
    sys.modules["problem"] = made
    exec(compile(ast.fix_missing_locations(tree), str(path), "exec"), made.__dict__)
    return made


def kernelbench(checkout: Path, levels: str, backend_name: str) -> Iterator[tuple[str, Check]]:
    for level in levels.split(","):
        folder = checkout / "KernelBench" / f"level{level}"
        for path in sorted(folder.glob("*.py"), key=lambda p: int(p.name.split("_")[0])):
            yield f"{level}/{path.stem}", lambda path=path: check_problem(path, backend_name)


def check_problem(path: Path, backend_name: str) -> dict[str, Any]:
    reason: Exception | None = None
    for divisor in DIVISORS:
        try:
            torch.manual_seed(0)
            made = problem(path, divisor)
            model = made.Model(*made.get_init_inputs()).eval()
            inputs = made.get_inputs()
            with torch.no_grad():
                want = model(*inputs)
        except Exception as error:
            reason = error
            continue
        with torch.no_grad():
            compare(compiled(model, backend_name)(*inputs), want, 2e-3, 2e-4)
        return {"divisor": divisor}
    raise RuntimeError(f"no size at which it runs: {reason}")


# ---- torch's own samples -------------------------------------------------------------------------


def opinfo(samples: int, grads: bool, backend_name: str) -> Iterator[tuple[str, Check]]:
    from torch.testing._internal.common_methods_invocations import op_db

    for entry in op_db:
        if torch.float32 in entry.dtypes:
            name = entry.name + (f".{entry.variant_test_name}" if entry.variant_test_name else "")
            yield name, lambda entry=entry: check_entry(entry, samples, grads, backend_name)


def check_entry(entry: Any, most: int, grads: bool, backend_name: str) -> dict[str, Any]:
    grads = grads and entry.supports_autograd and torch.float32 in entry.backward_dtypes
    torch.manual_seed(0)
    found = list(entry.sample_inputs("cpu", torch.float32, requires_grad=grads))[:most]
    for number, sample in enumerate(found):
        torch._dynamo.reset()

        def run(value: Any, args: Any, kwargs: Any) -> Any:
            return entry.op(value, *args, **kwargs)

        torch.manual_seed(1)
        want = run(*copied(sample))
        if sample.broadcasts_input:
            continue
        given = copied(sample)
        torch.manual_seed(1)
        got = compiled(run, backend_name)(*given)
        want_pairs, got_pairs = outputs(entry, sample, want), outputs(entry, sample, got)
        compare(got_pairs, want_pairs, 1e-4, 1e-5, f"sample {number}")
        if grads:
            theirs = copied(sample)
            torch.manual_seed(1)
            want = run(*theirs)
            compare_gradients(outputs(entry, sample, want), outputs(entry, sample, got), theirs,
                              given, number)  # fmt: skip
    return {"samples": len(found)}


def outputs(entry: Any, sample: Any, value: Any) -> Any:
    return sample.output_process_fn_grad(value)


def copied(sample: Any) -> tuple[Any, Any, Any]:
    """A sample with tensors of its own."""

    def copy(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().clone().requires_grad_(value.requires_grad)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(copy, value))
        if isinstance(value, list | tuple):
            return type(value)(map(copy, value))
        return {k: copy(v) for k, v in value.items()} if isinstance(value, dict) else value

    return copy(sample.input), copy(sample.args), copy(sample.kwargs)


def compare_gradients(want: Any, got: Any, theirs: Any, ours: Any, number: int) -> None:
    pairs = [
        (one, other)
        for one, other in zip(flat(want), flat(got))
        if one.requires_grad and one.is_floating_point() | one.is_complex()
    ]
    if not pairs:
        return
    assert all(other.requires_grad for _, other in pairs), f"sample {number}: no gradients"
    leaves = [
        [tensor for tensor in flat(list(side)) if tensor.requires_grad] for side in (theirs, ours)
    ]
    found = []
    for side, inputs in enumerate(leaves):
        roots = [pair[side] for pair in pairs]
        seeds = [torch.ones_like(root) for root in roots]
        found.append(torch.autograd.grad(roots, inputs, seeds, allow_unused=True))
    for one, other in zip(*found):
        if one is None or other is None:
            assert one is other or not torch.any(one if other is None else other), "unused"
        else:
            compare(other, one, 1e-3, 1e-4, f"gradient of sample {number}")


# ---- running -------------------------------------------------------------------------------------


def child(check: Check, seconds: int, answers: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.alarm(seconds)
    sys.stdout = sys.stderr = open("/dev/null", "w")  # noqa: SIM115  (until the process ends)
    torch.set_num_threads(1)
    backend.reset()
    counters.clear()
    found: dict[str, Any] = {"ok": True}
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found |= check()
        found["fell back"] = [str(w.message) for w in said if "run by torch" in str(w.message)]
    except BaseException as error:
        text = " ".join(str(error).split())
        found = {"ok": False, "why": f"{type(error).__name__}: {text}"[:400]}
    found["graphs"] = counters["stats"]["unique_graphs"]  # of any backend
    found["by torch"] = dict(Counter(f"{n}: {w}" for r in backend.reports() for n, w in r.by_torch))
    answers.put(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("checkout", nargs="?", type=Path)
    parser.add_argument("--levels", default="1,2")
    parser.add_argument("--match", default="")
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--no-grads", action="store_true")
    parser.add_argument("--timeout", type=int, default=120)
    parser.add_argument("--backend", default="ridgeline")
    given = parser.parse_args()
    if given.suite == "kernelbench":
        checks = kernelbench(given.checkout, given.levels, given.backend)
    elif given.suite == "opinfo":
        checks = opinfo(given.samples, not given.no_grads, given.backend)
    elif given.suite == "inductor":
        checks = torch_tests.inductor_tests(given.checkout, given.backend)
    elif given.suite == "backends":
        checks = torch_tests.backend_tests(given.checkout, given.backend)
    else:
        from tests.torch_backend import families

        checks = families.checks(given.backend)
    context, counts, names = multiprocessing.get_context("fork"), Counter[str](), Counter[str]()
    for name, check in checks:
        if not re.search(given.match, name):
            continue
        began, answers = time.time(), context.SimpleQueue()
        process = context.Process(target=child, args=(check, given.timeout, answers))
        process.start()
        process.join()
        found = {"ok": False, "why": f"ended with {process.exitcode}"}
        found = found if answers.empty() else answers.get()
        verdict = "skipped" if "skipped" in found else "right" if found["ok"] else "wrong"
        counts[verdict] += 1
        counts["graphs"] += found.get("graphs", 0)
        counts["with calls of torch"] += bool(found.get("by torch"))
        names.update(found.get("by torch", {}).keys())
        line = {"name": name, "s": round(time.time() - began, 1), **found}
        print(json.dumps(line), flush=True)
    print(json.dumps({"suite": given.suite, **counts, "by torch": names.most_common(40)}))


if __name__ == "__main__":
    main()
