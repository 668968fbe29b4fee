"""CUDA C++ to machine code with NVRTC, which needs no GPU; results are kept on disk.

The key of an entry is the text, the architecture, the options and NVRTC's version, so a new
compiler or a changed generator never meets old code. CUBIN is fetched, not PTX: the driver has
nothing left to compile.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from os import cpu_count
from typing import Any

from ridgeline.atomic import at_fork
from ridgeline.codegen.caches import ObjectCache
from ridgeline.errors import RidgelineError
from ridgeline.weak import fingerprint

# Products and sums are contracted where the loops say `fma`, and nowhere else: results are those
# of the definition, and the expansions of elementary functions rely on it.
_OPTIONS = ("--std=c++17", "--fmad=false", "--device-as-default-execution-space")


class CudaCompileError(Exception):
    """NVRTC refused a text: a defect of the code generator, never of a user's program."""


class NoCudaCompiler(RidgelineError):
    """NVRTC is not installed."""

    code = "RL0503"


def compile_source(text: str, arch: str, options: Sequence[str] = ()) -> bytes:
    """The CUBIN of a text for an architecture such as `sm_90a`."""
    return _compiled(text, arch, options, "CUBIN")


def compile_ptx(text: str, arch: str, options: Sequence[str] = ()) -> str:
    """The PTX of a text for an architecture such as `compute_90`, to be read and not run."""
    return _compiled(text, arch, options, "PTX").rstrip(b"\0").decode()


def _compiled(text: str, arch: str, options: Sequence[str], form: str) -> bytes:
    named = {option.partition("=")[0] for option in options}
    usual = [option for option in _OPTIONS if option.partition("=")[0] not in named]
    chosen = (*usual, f"--gpu-architecture={arch}", *options)
    cache_of_code = ObjectCache(f"{form.lower()}s")
    key = fingerprint("\0".join((version(), *chosen, text)), 20)
    stored = cache_of_code.get(key)
    if stored is None:
        stored = _compile(text, chosen, form)
        cache_of_code.put(key, stored)
    return stored


def begin(text: str, arch: str, options: Sequence[str] = ()) -> Future[bytes]:
    """Start to compile a text in another thread: NVRTC releases the interpreter."""
    return _threads().submit(compile_source, text, arch, options)


def compile_all(texts: Sequence[str], arch: str, options: Sequence[str] = ()) -> list[bytes]:
    """Several texts at once."""
    begun = [begin(text, arch, options) for text in texts]
    return [one.result() for one in begun]


@cache
def _threads() -> ThreadPoolExecutor:
    """Half as many as there are hardware threads, two of which most often share a core.

    The kernels that follow are scheduled meanwhile, on a core that should be free for it.
    """
    return ThreadPoolExecutor(max(2, (cpu_count() or 1) // 2), "nvrtc")


at_fork(after_in_child=_threads.cache_clear)  # a child has none of these threads


@cache
def version() -> str:
    """NVRTC's version, which belongs to every key."""
    nvrtc = _nvrtc()
    status, major, minor = nvrtc.nvrtcVersion()
    _check(nvrtc, status)
    return f"nvrtc {major}.{minor}"


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError:
        raise NoCudaCompiler(
            "the CUDA compiler is not installed", help="pip install 'ridgeline[cuda]'"
        ) from None
    return nvrtc


def _compile(text: str, options: Sequence[str], form: str) -> bytes:
    nvrtc = _nvrtc()
    status, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], [])
    _check(nvrtc, status)
    try:
        (status,) = nvrtc.nvrtcCompileProgram(
            program, len(options), [option.encode() for option in options]
        )
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CudaCompileError(f"NVRTC refused a kernel:\n{_log(nvrtc, program)}\n{text}")
        status, size = getattr(nvrtc, f"nvrtcGet{form}Size")(program)
        _check(nvrtc, status)
        code = bytearray(size)
        (status,) = getattr(nvrtc, f"nvrtcGet{form}")(program, code)
        _check(nvrtc, status)
        return bytes(code)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _log(nvrtc: Any, program: Any) -> str:
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytearray(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    return bytes(log).rstrip(b"\0").decode(errors="replace")


def _check(nvrtc: Any, status: Any) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CudaCompileError(f"NVRTC failed: {status!r}")
