"""Attention alone, `python -m benchmarks.gpu.attention`: ours as it is chosen and by kernels of our
own, beside torch as it chooses and its flash and cuDNN kernels, forward and with its gradients.

Every candidate is compared with float64 on one batch and two heads, then all are timed in turn.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import ridgeline as rl
from benchmarks.gpu.command import parsed
from benchmarks.gpu.measure import Candidate, Timing, block, first
from benchmarks.gpu.store import store
from ridgeline.runtime.cuda import cudnn_api

LIMIT = 1e-2  # relative, in the Euclidean norm


@dataclass(frozen=True, slots=True)
class Case:
    """Queries [batch, heads, length, width]; keys and values have heads of their own number, and
    a length of their own where `columns` is not 0. `seen` is the name of a mask."""

    batch: int
    heads: int
    keys: int
    length: int
    width: int
    seen: str = "causal"
    columns: int = 0

    @property
    def name(self) -> str:
        """As it is printed and stored."""
        shared = f" of {self.keys} shared" if self.keys != self.heads else ""
        length = f"{self.length} by {self.columns}" if self.columns else f"{self.length}"
        return f"{self.batch}x{self.heads}{shared}x{length}x{self.width} {self.seen}"

    @property
    def causal(self) -> bool:
        """True where no mask says it."""
        return self.seen == "causal"

    def flops(self, backward: bool) -> float:
        """Operations of all pairs that are seen, but for masks, which count as if all were."""
        pairs = self.batch * self.heads * self.length * (self.columns or self.length)
        return (7 if backward else 2) * 2.0 * pairs / (2 if self.causal else 1) * self.width


CASES = (
    Case(32, 12, 12, 1024, 64),
    Case(4, 32, 32, 4096, 128),
    Case(16, 16, 16, 512, 64, "full"),
    Case(4, 32, 8, 4096, 128),
    Case(16, 12, 12, 1024, 64, "padding"),
    Case(32, 12, 12, 512, 64, "padding"),
    Case(4, 16, 16, 4096, 128, "padding"),
    Case(16, 12, 12, 1024, 64, "padding added"),
    Case(16, 12, 12, 1024, 64, "window"),
    Case(4, 16, 16, 4096, 128, "window"),
    Case(16, 12, 12, 1024, 64, "bias"),
    Case(4, 16, 16, 2048, 128, "bias"),
    Case(8, 32, 8, 1024, 128, "padding"),
    Case(16, 12, 12, 512, 64, "full", 1500),
    Case(16, 12, 12, 1021, 64, "full"),
    Case(16, 16, 16, 1024, 80),
    Case(16, 16, 16, 1024, 96),
)


def mask(case: Case) -> list[Any]:
    """Keys of texts of half the length to all of it, a band, or numbers that are added."""
    columns = case.columns or case.length
    generator = torch.Generator().manual_seed(4)
    if case.seen in ("padding", "padding added"):
        lengths = torch.randint(
            columns // 2, columns + 1, (case.batch, 1, 1, 1), generator=generator
        )
        kept = torch.arange(columns) < lengths
        if case.seen == "padding":
            return [kept]
        return [torch.zeros(kept.shape, dtype=torch.bfloat16).masked_fill(~kept, -torch.inf)]
    if case.seen == "window":
        apart = torch.arange(case.length)[:, None] - torch.arange(columns)
        return [(apart.abs() < columns // 4)[None, None]]
    if case.seen == "bias":
        return [torch.randn(1, 1, case.length, columns, generator=generator).bfloat16()]
    return []


def function(lib: Any, case: Case, backward: bool) -> Callable[..., Any]:
    """Attention written once for torch and for us; behind the operands are the cotangent and a mask
    if there is one."""
    attend = lib.nn.functional.scaled_dot_product_attention

    def run(q: Any, k: Any, v: Any, ct: Any, seen: Any = None) -> Any:
        how = {"attn_mask": seen, "is_causal": case.causal, "enable_gqa": case.keys != case.heads}
        if not backward:
            return [attend(q, k, v, **how)]
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        out = attend(*leaves, **how)
        return [out, *lib.autograd.grad(out, leaves, ct)]

    return run


def operands(case: Case) -> list[Any]:
    """q, k, v, a cotangent, and a mask if there is one."""
    torch.manual_seed(0)
    rows = (case.batch, case.heads, case.length, case.width)
    columns = (case.batch, case.keys, case.columns or case.length, case.width)
    shapes = (rows, columns, columns, rows)
    made = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]
    return [*made, *(one.cuda() for one in mask(case))]


@contextmanager
def without_cudnn() -> Iterator[None]:
    """Our own kernels, as where cuDNN is not installed."""
    version, cudnn_api.version = cudnn_api.version, lambda: 0
    try:
        yield
    finally:
        cudnn_api.version = version


def ours(case: Case, backward: bool, given: list[Any], library: bool) -> Candidate:
    """ridgeline under jit."""
    tensors = [rl.from_dlpack(t.cpu()).to("cuda") for t in given]
    run = rl.jit(function(rl, case, backward))

    def kernels() -> Any:
        with without_cudnn():
            return run(*tensors)

    return Candidate(
        (lambda: run(*tensors)) if library else kernels,
        rl.cuda.synchronize,
        lambda made: [torch.from_dlpack(t.detach().cpu()).cuda() for t in made],
    )


def theirs(case: Case, backward: bool, given: list[Any], backend: SDPBackend | None) -> Candidate:
    """torch with one of its kernels, or the one it chooses."""
    run = function(torch, case, backward)

    def call() -> Any:
        if backend is None:
            return run(*given)
        with sdpa_kernel(backend):
            return run(*given)

    return Candidate(call, torch.cuda.synchronize, lambda made: [t.detach() for t in made])


def reference(case: Case, backward: bool, given: list[Any]) -> list[Any]:
    """The first batch of the first heads in float64, of all that is computed."""
    group = case.heads // case.keys
    few = [
        t[:1, : 2 * group if place in (0, 3) else 2].double() for place, t in enumerate(given[:4])
    ]
    seen = [t[:1] if t.dtype is torch.bool else t[:1].double() for t in given[4:]]
    with sdpa_kernel(SDPBackend.MATH):
        return [t.detach() for t in function(torch, case, backward)(*few, *seen)]


def error(found: list[Any], wanted: list[Any]) -> float:
    """The largest relative error in the Euclidean norm; what is not finite counts as infinite."""
    errors = []
    for got, exact in zip(found, wanted, strict=True):
        few = got[: exact.shape[0], : exact.shape[1]].double()
        errors.append(float((few - exact).norm() / exact.norm()))
    return max(e if e == e else float("inf") for e in errors)


def measure(case: Case, backward: bool, rounds: int) -> dict[str, Timing]:
    """All candidates of a case, in interleaved rounds."""
    given = operands(case)
    wanted = reference(case, backward, given)
    makers = {
        "ridgeline": lambda: ours(case, backward, given, True),
        "kernels": lambda: ours(case, backward, given, False),
        "torch": lambda: theirs(case, backward, given, None),
        "torch flash": lambda: theirs(case, backward, given, SDPBackend.FLASH_ATTENTION),
        "torch cuDNN": lambda: theirs(case, backward, given, SDPBackend.CUDNN_ATTENTION),
    }
    timings, ready = {}, {}
    for name, make in makers.items():
        timing = timings[name] = Timing()
        try:
            made, values = first(make, timing)
            timing.difference = error(values, wanted)
            if not timing.difference <= LIMIT:
                raise ArithmeticError(f"wrong result: error {timing.difference:.2g}")
            ready[name] = made
        except Exception as failure:  # one that cannot do the work is reported, not fatal
            timing.error = f"{type(failure).__name__}: {failure}"[:300]
    for _ in range(rounds):
        for name, made in ready.items():
            timings[name].rounds.append(block(made))
    return timings


def main() -> int:
    """Measure, print a table, store the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.attention", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds to measure (5)")
    parser.add_argument("--only", default="", help="cases whose names hold this")
    parser.add_argument("--out", type=Path, help="where to store the figures")
    arguments = parsed(parser)
    found: dict[str, Any] = {}
    for case in (case for case in CASES if arguments.only in case.name):
        for backward in (False, True):
            name = f"{case.name}{' with gradients' if backward else ''}"
            timings = measure(case, backward, arguments.rounds)
            print(name, flush=True)
            for candidate, timing in timings.items():
                rate = case.flops(backward) / timing.median / 1e12 if timing.median else 0.0
                print(
                    f"    {candidate:<12} {timing.median * 1e3:>8.3f} ms {rate:>5.0f} TFLOP/s  "
                    f"error {timing.difference:.1e}  first {timing.first_call:.2f} s  "
                    f"{timing.error}",
                    flush=True,
                )
            found[name] = {
                candidate: {
                    "median_ms": timing.median * 1e3,
                    "best_ms": min(timing.rounds, default=0.0) * 1e3,
                    "first_call_s": timing.first_call,
                    "difference": timing.difference,
                    "error": timing.error,
                }
                for candidate, timing in timings.items()
            }
            path = store(
                {"cudnn": cudnn_api.version(), "attention": found}, "attention", arguments.out
            )
    print(f"stored in {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
