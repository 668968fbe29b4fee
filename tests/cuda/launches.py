"""What a GPU would be told to do for every benchmark: `python -m tests.cuda.launches [NAME…]`.

The programs of `benchmarks/gpu` are compiled and started on a GPU that is not there, with
libraries that only note what they are asked for: every kernel with its blocks, every call of a
library with all that describes it, over which memory. Two listings of two checkouts are compared
with `diff`.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.runtime.cuda import backend as cuda_backend, cublaslt, cudnn_api, cudnn_plans, steps

from . import machines
from .fake_driver import Block, FakeDriver, Function, Gpu
from .fake_libraries import FakeCublasLt, FakeCudnn, Launches

_MEMORY = 140 << 30
_ALIGNED = 256


class EmptyDriver(FakeDriver):
    """A GPU as large as a real one, whose memory has addresses and no contents."""

    def __init__(self) -> None:
        super().__init__(_MEMORY)

    def _allocate(self, size: int, gpu: Gpu | None) -> int:
        if gpu is None:
            return super()._allocate(size, gpu)
        address = self._free[gpu.number]
        self._free[gpu.number] += -(-(size + 1) // _ALIGNED) * _ALIGNED
        self._blocks[address] = Block(address, size, gpu, None, address)
        return address

    def _cuMemcpyHtoDAsync(self, target: int, source: int, size: int, stream: Any) -> None: ...

    def _cuMemcpyDtoHAsync(self, target: int, source: int, size: int, stream: Any) -> None:
        ctypes.memset(target, 0, size)

    def _cuMemcpyAsync(self, target: int, source: int, size: int, stream: Any) -> None: ...


@contextmanager
def noted_launches() -> Iterator[Launches]:
    """A GPU that notes what it is told to do, and does nothing."""
    driver = EmptyDriver()
    driver.find_function = lambda context, image, name: Function(
        context, name, lambda pointers: (), lambda given: None
    )
    noted = Launches(blocks=lambda address: driver._block(address).address)

    def begin(text: str, arch: str, options: Any = ()) -> Future[bytes]:
        made: Future[bytes] = Future()
        made.set_result(text[:16].encode())
        return made

    first = steps.KernelStep.__init__

    def made(step: Any, kernel: Any, blocks: int, threads: int, shared: int, cluster: int,
             slots: Any, words: Any) -> None:  # fmt: skip
        first(step, kernel, blocks, threads, shared, 1, slots, words)
        step.noted = kernel.handle.name, blocks, threads, shared, cluster, tuple(slots)

    def enqueue(step: Any, stream: Any) -> None:
        name, *shape, slots = step.noted
        places = [noted.at(step._words[slot]) for slot in slots]
        noted.lines.append(f"kernel {name} {shape} over {' '.join(places)}")

    with (
        pytest.MonkeyPatch.context() as patch,
        machines.pretended_gpus(driver) as _,
        tempfile.TemporaryDirectory() as folder,
    ):
        patch.setattr(cuda_backend, "begin", begin)
        patch.setattr(cuda_backend, "version", lambda: "pretended")
        patch.setattr(steps.KernelStep, "__init__", made)
        patch.setattr(steps.KernelStep, "enqueue", enqueue)
        for kind in (steps.JoinedStep, steps.TiledStep):
            patch.setattr(kind, "enqueue", enqueue)
        products, graphs = FakeCublasLt(noted), FakeCudnn(noted)
        patch.setattr(cublaslt, "library", lambda: products)
        patch.setattr(cudnn_api, "library", lambda: graphs)
        patch.setattr(cudnn_plans, "library", lambda: graphs)
        with rl.config.override(cache_dir=folder, tier="compiled"):
            yield noted


_numbers = count(1)


def _tensor(shape: Any, dtype: str) -> Any:
    """Memory of its own; of equal tensors there would be one."""
    return rl.full(shape, next(_numbers) % 127, dtype=getattr(rl, dtype), device="cuda:0")


def _like(array: Any, dtype: str) -> Any:
    """A tensor for an array, whose values do not matter."""
    kind = dtype if array.dtype.kind == "f" else str(array.dtype)
    return _tensor(array.shape, kind)


def programs() -> Iterator[tuple[str, Callable[[], Any]]]:
    """All benchmarks, as functions that make what is then called once."""
    from benchmarks.gpu import attention, gpt2, operations, resnet50, workloads

    workloads._normal = lambda *shape: np.zeros(shape, np.float32)  # type: ignore[assignment]
    operations.normal = lambda *shape, number=0: np.zeros(shape, np.float32)  # type: ignore
    for random in (gpt2, resnet50):
        random.weights = lambda shapes, *rest: {  # type: ignore[assignment]
            n: np.zeros(s, np.int64 if n.endswith("tracked") else np.float32)
            for n, s in shapes.items()
        }
    resnet50._images = lambda lib, dtype: _tensor(  # type: ignore[assignment]
        (resnet50.BATCH, 3, resnet50.SIZE, resnet50.SIZE), dtype
    )

    def of(work: Any, jit: bool = True) -> Callable[[], Any]:
        def make() -> Any:
            tensors = [_like(array, work.dtype) for array in work.inputs()]
            run = work.make(rl)
            return lambda: (rl.jit(run) if jit else run)(*tensors)

        return make

    for name, work in workloads.WORKLOADS.items():
        yield name, of(work)
    for family, found in operations.FAMILIES.items():
        for operation in found():
            yield f"{family}: {operation.name}", of(operation, operation.jit)
    for case in attention.CASES:
        for backward in (False, True):
            for library in (True, False):
                yield (
                    f"attention {case.name}{' with gradients' * backward}"
                    f"{'' if library else ' by kernels'}",
                    lambda case=case, backward=backward, library=library: _attention(
                        attention, case, backward, library
                    ),
                )
    for name, dtype, shapes, function in _PRODUCTS:
        yield f"product {name} {dtype}", _product(dtype, shapes, function)
    yield "resnet50 train", lambda: _case(resnet50.train(rl, rl.jit))
    yield "resnet50 infer", lambda: _case(resnet50.infer(rl, rl.jit))
    yield "gpt2 step", lambda: _gpt2(gpt2)


_PRODUCTS: list[tuple[str, str, list[tuple[int, ...]], Callable[..., Any]]] = [
    (name, dtype, shapes, function)
    for dtype in ("float32", "bfloat16", "float64")
    for name, shapes, function in [
        ("plain", [(256, 512), (512, 384)], lambda a, b: a @ b),
        ("transposed", [(512, 256), (384, 512)], lambda a, b: a.T @ b.T),
        ("of columns", [(256, 1024), (512, 384)], lambda a, b: a[:, 256:768] @ b),
        ("of every other row", [(512, 512), (512, 384)], lambda a, b: a[::2] @ b),
        ("of every other column", [(256, 1024), (512, 384)], lambda a, b: a[:, ::2] @ b),
        ("of reversed rows", [(256, 512), (512, 384)], lambda a, b: a.flip(0) @ b),
        ("by a vector", [(8192, 1024), (1024,)], lambda a, b: a @ b),
        ("of vectors", [(1 << 23,), (1 << 23,)], lambda a, b: a @ b),
        ("outer", [(4096,), (4096,)], lambda a, b: a.outer(b)),
        ("in batches", [(16, 256, 512), (16, 512, 384)], lambda a, b: a @ b),
        ("in batches by one", [(16, 256, 512), (512, 384)], lambda a, b: a @ b),
        ("of heads", [(8, 128, 12, 64), (8, 128, 12, 64)],
         lambda a, b: a.permute(0, 2, 1, 3) @ b.permute(0, 2, 3, 1)),
        ("of groups", [(8, 4, 128, 64), (4, 64, 128)], lambda a, b: a @ b),
        ("with repeated keys", [(4, 8, 256, 64), (4, 2, 64, 256)],
         lambda a, b: a @ b.repeat_interleave(4, 1)),
        ("over two axes", [(256, 16, 32), (384, 32, 16)],
         lambda a, b: rl.einsum("mij,nji->mn", a, b)),
        ("to another order", [(16, 256, 512), (16, 512, 384)],
         lambda a, b: rl.einsum("bmk,bkn->mbn", a, b)),
        ("with an epilogue", [(256, 512), (512, 384)], lambda a, b: (a @ b).relu() * 2),
        ("of a sum", [(256, 512), (512, 384)], lambda a, b: (a + 1) @ b.exp()),
        ("with a bias", [(256, 512), (512, 384), (384,)], lambda a, b, c: a @ b + c),
        ("with a bias for rows", [(256, 512), (512, 384), (256, 1)], lambda a, b, c: a @ b + c),
        ("of padding", [(254, 512), (512, 384)],
         lambda a, b: rl.nn.functional.pad(a, (0, 0, 1, 1)) @ b),
        ("of parts", [(128, 512), (128, 512), (512, 384)], lambda a, b, c: rl.cat([a, b]) @ c),
        ("widened", [(256, 512), (512, 384)], lambda a, b: a.float() @ b.float()),
        ("widened and turned", [(512, 256), (384, 512)],
         lambda a, b: a.float().T[32:] @ b.float().T),
        ("half widened", [(256, 512), (512, 384)], lambda a, b: a.float() @ b.float().exp()),
        ("widened twice", [(256, 512), (512, 384)], lambda a, b: a.double() @ b.double()),
        ("with itself", [(512, 512)], lambda a: a @ a.T),
        ("small", [(16, 16), (16, 16)], lambda a, b: a @ b),
        ("wide and small", [(8, 512), (512, 8)], lambda a, b: a @ b),
        ("in many batches", [(128, 3, 64, 64), (3, 128, 64, 64)],
         lambda a, b: a @ b.transpose(0, 1)),
    ]
]  # fmt: skip


def _product(
    dtype: str, shapes: list[tuple[int, ...]], function: Callable[..., Any]
) -> Callable[[], Any]:
    def trained(*operands: Any) -> Any:
        leaves = [x.detach().requires_grad_() for x in operands]
        result = function(*leaves)
        return result, *rl.autograd.grad(result, leaves, rl.ones_like(result) * 3)

    def make() -> Any:
        operands = [_tensor(shape, dtype) for shape in shapes]
        return lambda: (rl.jit(function)(*operands), rl.jit(trained)(*operands))

    return make


def _attention(module: Any, case: Any, backward: bool, library: bool) -> Callable[[], Any]:
    rows = (case.batch, case.heads, case.length, case.width)
    columns = (case.batch, case.keys, case.columns or case.length, case.width)
    operands = [_tensor(shape, "bfloat16") for shape in (rows, columns, columns, rows)]
    operands += [_tensor(m.shape, str(m.dtype).removeprefix("torch.")) for m in module.mask(case)]
    run = rl.jit(module.function(rl, case, backward))

    def kernels() -> Any:
        with module.without_cudnn():
            return run(*operands)

    return (lambda: run(*operands)) if library else kernels


def _case(case: Any) -> Callable[[], Any]:
    return lambda: case.run(*case.parts)


def _gpt2(module: Any) -> Callable[[], Any]:
    step, batches = module.training(rl, module.OURS)
    return lambda: step(*batches[0])


def listing(make: Callable[[], Any], noted: Launches) -> list[str]:
    """The launches of a program's first run."""
    run = make()
    rl.cuda.synchronize()
    noted.lines.clear()
    noted.known.clear()
    held = run()  # results are memory that nobody else may have
    rl.cuda.synchronize()
    del held
    return list(noted.lines)


def main(names: list[str]) -> int:
    """Print the launches of programs whose names hold one of these."""
    with noted_launches() as noted:
        for name, make in programs():
            if names and not any(part in name for part in names):
                continue
            begin = time.perf_counter()
            print(f"== {name}")
            try:
                print("\n".join(listing(make, noted)), flush=True)
            except Exception as error:  # what fails is part of what is compared
                print(f"{type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
                if len(names) == 1:
                    raise
            print(f"{name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
