"""torch, torch.compile, JAX and ridgeline behind one interface, for functions of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.gpu.measure import Candidate

Function = Callable[..., Any]


def torch_candidate(
    make: Callable[[Any], Function],
    inputs: Sequence[Any],
    dtype: str,
    mode: str = "",
    in_parts: Callable[[Any, str], Function] | None = None,
) -> Candidate:
    """A function of torch tensors as it is, or in a mode of torch.compile, whole or `in_parts`."""
    import torch

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    tensors = [_torch_tensor(torch, array, dtype) for array in inputs]
    if mode and in_parts is not None:
        run = in_parts(torch, mode)
    else:
        run = torch.compile(make(torch), mode=mode) if mode else make(torch)

    def call() -> Any:
        torch.compiler.cudagraph_mark_step_begin()  # results of earlier calls may be overwritten
        return run(*tensors)

    return Candidate(
        call if mode else lambda: run(*tensors),
        torch.cuda.synchronize,
        lambda result: _flat(result, _from_torch),
        torch.cuda.max_memory_allocated,
    )


def _from_torch(result: Any) -> Any:
    return (
        np.float64(result) if isinstance(result, float) else result.detach().double().cpu().numpy()
    )


def _torch_tensor(torch: Any, array: Any, dtype: str) -> Any:
    made = torch.from_numpy(array).cuda()
    return made.to(getattr(torch, dtype)) if array.dtype.kind == "f" else made


def ridgeline_candidate(
    make: Callable[[Any], Function], inputs: Sequence[Any], dtype: str, jit: bool = True
) -> Candidate:
    """A function of ridgeline tensors, under jit or as it is."""
    import ridgeline as rl

    rl.cuda.empty_cache()
    rl.cuda.reset_peak_memory_stats()
    tensors = [_own_tensor(rl, array, dtype) for array in inputs]
    run = rl.jit(make(rl)) if jit else make(rl)
    return Candidate(
        lambda: run(*tensors),
        rl.cuda.synchronize,
        lambda result: _flat(result, _from_own),
        rl.cuda.max_memory_allocated,
    )


def _from_own(result: Any) -> Any:
    return np.asarray(
        result if isinstance(result, float) else result.detach().cpu().numpy(), np.float64
    )


def _own_tensor(rl: Any, array: Any, dtype: str) -> Any:
    made = rl.tensor(array, device="cuda")
    return made.to(getattr(rl, dtype)) if array.dtype.kind == "f" else made


def jax_candidate(make: Callable[[Any], Function], inputs: Sequence[Any], dtype: str) -> Candidate:
    """A function of JAX arrays under jit."""
    import jax

    arrays = [
        jax.numpy.asarray(a, getattr(jax.numpy, dtype) if a.dtype.kind == "f" else None)
        for a in inputs
    ]
    run = jax.jit(make(jax))
    last: list[Any] = [None]

    def call() -> Any:
        last[0] = run(*arrays)
        return last[0]

    return Candidate(
        call,
        lambda: jax.block_until_ready(last[0]),
        lambda result: _flat(result, lambda t: np.asarray(t, np.float64)),
    )


def _flat(result: Any, as_array: Callable[[Any], Any]) -> list[Any]:
    parts = result if isinstance(result, tuple | list) else (result,)
    return [as_array(part) for part in parts]


def copy_candidates(nbytes: float) -> dict[str, Callable[[], Candidate]]:
    """Two ways to move as many bytes, half of them read and half written: the roof of a workload.

    One is the driver's copy, the other a kernel that adds one to every element.
    """
    count = int(nbytes) // 8

    def driver() -> Candidate:
        import torch

        source = torch.ones(count, dtype=torch.int32, device="cuda")
        target = torch.empty_like(source)
        return Candidate(lambda: target.copy_(source), torch.cuda.synchronize, lambda _: [])

    def kernel() -> Candidate:
        import ridgeline as rl

        source = rl.ones(count, dtype=rl.int32, device="cuda")
        run = rl.jit(lambda x: x + 1)
        return Candidate(lambda: run(source), rl.cuda.synchronize, lambda _: [])

    return {"copy": driver, "plain kernel": kernel}
