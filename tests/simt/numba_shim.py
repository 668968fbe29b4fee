"""numba-cuda's names over our kernels, so that its own tests run: `install()` makes it importable.

A function that numba would compile is ours with three changes: parameters take the types of the
arguments, a store converts to the type of its array, and what is made of Python's numbers is 64
bits wide. `cuda.` names are our intrinsics, or device functions around them. Each launch runs in
the simulator, with all checks, and as machine code of the CPU; both have to agree.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
import textwrap
import types
import unittest
from collections.abc import Callable
from typing import Any

import numpy as np

from ridgeline import simt
from ridgeline.simt import language
from ridgeline.simt.frontend.problems import KernelLanguageError
from ridgeline.simt.kernel import DeviceFunctionMark, SimtKernel
from ridgeline.simt.types import ELEMENTS, ElementType, element_of

_SHORT = {element.dtype.name: element for element in ELEMENTS}
_DEVICE = """
def shared_array(shape, dtype):
    if shape == 0:
        return shared(dynamic, dtype)
    return shared(shape, dtype)

def local_array(shape, dtype):
    return local(shape, dtype)

def add(ary, idx, val):
    return atomic_add(ary, idx, ary.dtype(val))

def sub(ary, idx, val):
    return atomic_sub(ary, idx, ary.dtype(val))

def and_(ary, idx, val):
    return atomic_and(ary, idx, ary.dtype(val))

def or_(ary, idx, val):
    return atomic_or(ary, idx, ary.dtype(val))

def xor(ary, idx, val):
    return atomic_xor(ary, idx, ary.dtype(val))

def inc(ary, idx, val):
    return atomic_inc(ary, idx, ary.dtype(val))

def dec(ary, idx, val):
    return atomic_dec(ary, idx, ary.dtype(val))

def exch(ary, idx, val):
    return atomic_exch(ary, idx, ary.dtype(val))

def max_(ary, idx, val):
    return atomic_max(ary, idx, ary.dtype(val))

def min_(ary, idx, val):
    return atomic_min(ary, idx, ary.dtype(val))

def cas(ary, idx, old, val):
    return atomic_cas(ary, idx, ary.dtype(old), ary.dtype(val))

def compare_and_swap(ary, old, val):
    return atomic_cas(ary, 0, ary.dtype(old), ary.dtype(val))

def shfl_sync(mask, value, src):
    return shfl(value, i32(src), mask=mask)

def shfl_up_sync(mask, value, delta):
    return shfl_up(value, i32(delta), mask=mask)

def shfl_down_sync(mask, value, delta):
    return shfl_down(value, i32(delta), mask=mask)

def shfl_xor_sync(mask, value, by):
    return shfl_xor(value, i32(by), mask=mask)

def all_sync(mask, predicate):
    return simt.all(predicate, mask=mask)

def any_sync(mask, predicate):
    return simt.any(predicate, mask=mask)

def ballot_sync(mask, predicate):
    return ballot(predicate, mask=mask)

def match_any_sync(mask, value):
    return match(value, mask=mask)

def lanemask_lt():
    return (u32(1) << lane) - 1

def gridsize_1():
    return gridDim.x * blockDim.x

def gridsize_2():
    return gridDim.x * blockDim.x, gridDim.y * blockDim.y

def gridsize_3():
    return gridDim.x * blockDim.x, gridDim.y * blockDim.y, gridDim.z * blockDim.z

def gridsize(ndim):
    if ndim == 1:
        return gridsize_1()
    if ndim == 2:
        return gridsize_2()
    return gridsize_3()

def round_to(x, digits):
    if digits < 0:
        large = pow(f64(10), f64(-digits))
        return round(f64(x) / large) * large
    scale = pow(f64(10), f64(digits))
    scaled = f64(x) * scale
    if isinf(scaled) or isnan(scaled):
        return f64(x)
    return round(scaled) / scale

def selp(condition, a, b):
    return a if condition else b

def cbrt(x):
    return copysign(pow(fabs(x), 1.0 / 3.0), x)

def hadd(a, b):
    return a + b

def hsub(a, b):
    return a - b

def hmul(a, b):
    return a * b

def hdiv(a, b):
    return a / b

def hneg(a):
    return -a

def habs(a):
    return abs(a)

def hfma(a, b, c):
    return f16(fma(f32(a), f32(b), f32(c)))

def heq(a, b):
    return a == b

def hne(a, b):
    return a != b

def hge(a, b):
    return a >= b

def hgt(a, b):
    return a > b

def hle(a, b):
    return a <= b

def hlt(a, b):
    return a < b

def hmax(a, b):
    return max(a, b)

def hmin(a, b):
    return min(a, b)

def hsin(a):
    return f16(sin(f32(a)))

def hcos(a):
    return f16(cos(f32(a)))

def hlog(a):
    return f16(log(f32(a)))

def hlog2(a):
    return f16(log2(f32(a)))

def hlog10(a):
    return f16(log10(f32(a)))

def hexp(a):
    return f16(exp(f32(a)))

def hexp2(a):
    return f16(exp2(f32(a)))

def hexp10(a):
    return f16(pow(f32(10.0), f32(a)))

def hsqrt(a):
    return f16(sqrt(f32(a)))

def hrsqrt(a):
    return f16(rsqrt(f32(a)))

def hrcp(a):
    return f16(1.0 / f32(a))

def hceil(a):
    return ceil(a)

def hfloor(a):
    return floor(a)

def hrint(a):
    return rint(a)

def htrunc(a):
    return trunc(a)
"""
_MADE = {
    node.name: simt.device(ast.unparse(node))
    for node in ast.parse(_DEVICE).body
    if isinstance(node, ast.FunctionDef) and node.name not in ("gridsize",)
}


class _GridSize:
    """`cuda.gridsize(n)`: a device function for each number of axes."""

    def __call__(self, ndim: int) -> Any:
        return _MADE[f"gridsize_{ndim}"]


class _StoresConvert(ast.NodeTransformer):
    """`a[i] = v` as `a[i] = a.dtype(v)`, `a[i] += v` likewise, and numba's calls as ours."""

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        if isinstance(node.targets[0], ast.Subscript):
            node.value = _converted(node.targets[0], node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Subscript):
            return node
        read = ast.Subscript(node.target.value, node.target.slice, ast.Load())
        value = ast.BinOp(read, node.op, node.value)
        return ast.Assign([node.target], _converted(node.target, value))

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name == "round" and len(node.args) == 2:
            return ast.Call(ast.Name("round_to", ast.Load()), node.args, [])
        if isinstance(node.func, ast.Attribute) and node.func.attr == "bit_count":
            return ast.Call(ast.Name("popc", ast.Load()), [node.func.value], [])
        if name.endswith("gridsize") and isinstance(node.args[0], ast.Constant):
            return ast.Call(ast.Name(f"gridsize_{node.args[0].value}", ast.Load()), [], [])
        return node


def _converted(target: ast.Subscript, value: ast.expr) -> ast.expr:
    kind = ast.Attribute(target.value, "dtype", ast.Load())
    return ast.Call(kind, [value], [])


def _tree(function: Callable[..., Any]) -> ast.FunctionDef:
    text = textwrap.dedent(inspect.getsource(function))
    node = next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef))
    node.decorator_list = []
    return ast.fix_missing_locations(_StoresConvert().visit(node))


def _outside(function: Callable[..., Any]) -> dict[str, Any]:
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    names = {**function.__globals__, **{n: c.cell_contents for n, c in cells.items()}}
    used = {*function.__code__.co_names, *function.__code__.co_freevars}
    kept = {n: v for n, v in names.items() if n in used and not isinstance(v, _Missing)}
    return _MADE | {n: _meant(v) for n, v in kept.items() if n != function.__name__}


def _meant(value: Any) -> Any:
    if isinstance(value, Dispatcher):
        return value.device
    return value


class Dispatcher:
    """What `cuda.jit` gives."""

    def __init__(self, function: Callable[..., Any], signature: Any, device: bool) -> None:
        self.py_func, self.kinds = function, _kinds(signature)
        self.__name__ = function.__name__
        self.is_device = device
        self._kernels: dict[Any, SimtKernel] = {}
        self._device: DeviceFunctionMark | None = None

    @property
    def device(self) -> DeviceFunctionMark:
        """The function for calls from kernels."""
        if self._device is None:
            tree = _tree(self.py_func)
            for argument in tree.args.args:
                argument.annotation = None
            text = ast.unparse(tree)
            self._device = simt.device(_with(text, self.py_func))
        return self._device

    def __getitem__(self, shape: Any) -> Callable[..., None]:
        grid, block, *rest = shape
        shared = rest[1] if len(rest) > 1 else 0
        return lambda *arguments: self.launch(grid, block, shared, arguments)

    def forall(self, tasks: int, *_: Any, **__: Any) -> Callable[..., None]:
        return self[-(-tasks // 128), 128]

    def __getattr__(self, name: str) -> Any:
        raise unittest.SkipTest(f"no {name} of a compiled kernel")

    def launch(self, grid: Any, block: Any, shared: int, arguments: tuple[Any, ...]) -> None:
        """In the simulator and on the CPU, with the same results, into the arrays given."""
        arrays = [_array(a) for a in arguments]
        given = [a if isinstance(a, np.ndarray) else _scalar(a, kind)
                 for a, kind in zip(arrays, self.kinds or [None] * len(arrays))]  # fmt: skip
        kernel = self.kernel(given)
        names = [n for n, a in zip(kernel.signature.names, given) if isinstance(a, np.ndarray)]
        found = kernel.simulate(grid, block, *given, shared=shared)
        SEEN.extend(found.errors)
        copies = [np.array(a) if isinstance(a, np.ndarray) else a for a in given]
        kernel[(grid, block, shared)](*copies)
        by_name = dict(zip(kernel.signature.names, copies))
        for name in names if not found.errors else ():
            np.testing.assert_allclose(
                by_name[name].astype(np.float64), found.outputs[name].astype(np.float64), 1e-3
            )
        for array, copied in zip(arrays, copies):
            if isinstance(array, np.ndarray):
                array[...] = copied

    def kernel(self, given: list[Any]) -> SimtKernel:
        """Our kernel for arguments of these types."""
        kinds = tuple(_annotation(a) for a in given)
        if kinds not in self._kernels:
            tree = _tree(self.py_func)
            for argument, kind in zip(tree.args.args, kinds):
                argument.annotation = ast.parse(
                    kind.replace("NAME", argument.arg), mode="eval"
                ).body
            self._kernels[kinds] = simt.kernel(_with(ast.unparse(tree), self.py_func))
        return self._kernels[kinds]


SEEN: list[Any] = []  # what the simulator reported


def _with(text: str, function: Callable[..., Any]) -> Any:
    from ridgeline.simt.kernel import with_language

    return with_language(text, _outside(function))


def _kinds(signature: Any) -> list[str] | None:
    """The scalar types of a signature such as `void(int32[:], float64)`."""
    if isinstance(signature, (list, tuple)):
        signature = signature[0]
    if not isinstance(signature, (str, Signature)):
        return None
    inner = re.sub(r"\[[^\]]*\]", "[]", str(signature))
    inner = inner[inner.index("(") + 1 : inner.rindex(")")]
    return [part.strip() for part in inner.split(",")] if inner else []


def _array(value: Any) -> Any:
    return np.asarray(value) if hasattr(value, "__array__") and not np.isscalar(value) else value


def _scalar(value: Any, kind: str | None) -> Any:
    element = _SHORT.get(str(kind))
    if element is not None:
        return np.array(value).astype(element.dtype.numpy)[()]
    if isinstance(value, bool):
        return np.bool_(value)
    return np.int64(value) if isinstance(value, int) else np.float64(value) if isinstance(
        value, float) else value  # fmt: skip


def _annotation(value: Any) -> str:
    element = element_of(value.dtype)
    if not isinstance(value, np.ndarray):
        return f"{element}"
    axes = " ".join(f"NAME_{axis}" for axis in range(max(1, value.ndim)))
    return f'inout[{element}["{axes}"]]'


class Signature(str):
    """`void(int32[:])` as text."""


class Element(ElementType):
    """`int32` in a kernel and `int32[:]` in a signature."""

    def __getitem__(self, sizes: Any) -> Any:
        return NumbaType(f"{self.dtype.name}[:]")

    def __call__(self, *values: Any) -> Any:
        if any(isinstance(v, (ElementType, NumbaType)) for v in values):
            return NumbaType(self.dtype.name)(*values)
        return super().__call__(*values)

    def __str__(self) -> str:
        return self.dtype.name


class NumbaType:
    """`float32[:]`, and `void(...)`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getitem__(self, _: Any) -> NumbaType:
        return NumbaType(f"{self.name}[:]")

    def __call__(self, *arguments: Any) -> Any:
        return Signature(f"{self.name}({', '.join(map(str, arguments))})")

    def __str__(self) -> str:
        return self.name


def jit(function: Any = None, device: bool = False, **_: Any) -> Any:
    if callable(function) and isinstance(function, types.FunctionType):
        return Dispatcher(function, None, device)
    return lambda given: Dispatcher(given, function, device)


def _namespace(**names: Any) -> Any:
    return types.SimpleNamespace(**names)


def _testing() -> types.ModuleType:
    module = types.ModuleType("numba.cuda.testing")

    class CUDATestCase(unittest.TestCase):
        FLOAT16_RTOL = np.finfo(np.float16).eps

        def assertPreciseEqual(self, first: Any, second: Any, **_: Any) -> None:
            np.testing.assert_array_equal(first, second)

    def skip_on(*reasons: Any, **_: Any) -> Any:
        return lambda given: given

    names = ("skip_on_cudasim", "skip_unless_cc_53", "skip_if_cuda_includes_missing",
             "skip_if_mvc_enabled", "skip_if_nvjitlink_missing", "skip_under_cuda_memcheck",
             "skip_on_standalone_numba_cuda")  # fmt: skip
    for name in names:
        setattr(module, name, skip_on if name != "skip_unless_cc_53" else lambda given: given)
    module.skip_unless_cc_60 = module.skip_unless_cc_75 = lambda given: given
    module.unittest, module.CUDATestCase = unittest, CUDATestCase
    module.cc_X_or_above = lambda *_: True
    module.captured_stdout = None
    return module


class DeviceArray(np.ndarray[Any, Any]):
    """An array that says it is on a GPU."""

    def copy_to_host(self) -> Any:
        return np.array(self)


def to_device(value: Any) -> Any:
    return np.array(value).view(DeviceArray)


class _Missing:
    """What the shim has not: a test that asks for it is skipped."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        return _Missing(f"{self.name}.{name}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise unittest.SkipTest(f"no {self.name}")

    def __getitem__(self, _: Any) -> Any:
        raise unittest.SkipTest(f"no {self.name}")


class _Loose(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(f"{self.__name__}.{name}")


def loose(name: str) -> types.ModuleType:
    """A module whose names are all missing: what asks for one is skipped."""
    return _Loose(name)


def recorded_exec(text: Any, *scopes: Any) -> None:
    """`exec` that keeps the text, so that the source of what it defines is found."""
    if isinstance(text, str):
        path = f"<generated {len(linecache.cache)}>"
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        text = compile(text, path, "exec")
    exec(text, *(scopes or (sys._getframe(1).f_globals, sys._getframe(1).f_locals)))


def install() -> None:
    """Make `numba` and `numba.cuda` importable."""
    kinds = {f"{s}int{b}": NumbaType(f"{s}int{b}") for s in ("", "u") for b in (8, 16, 32, 64)}
    kinds |= {f"float{b}": NumbaType(f"float{b}") for b in (16, 32, 64)}
    kinds |= {"void": NumbaType("void"), "boolean": NumbaType("bool"), "b1": NumbaType("bool")}
    elements = {n: Element(_SHORT[n].name, _SHORT[n].dtype) for n in kinds if n in _SHORT}
    cuda = _Loose("numba.cuda")
    for name in ("threadIdx", "blockIdx", "blockDim", "gridDim"):
        setattr(cuda, name, language.NAMES[name])
    for name in ("grid", "syncthreads", "syncwarp", "syncthreads_count", "syncthreads_and",
                 "syncthreads_or", "threadfence", "threadfence_block", "threadfence_system",
                 "activemask", "popc", "brev", "clz", "ffs", "fma"):  # fmt: skip
        setattr(cuda, name, language.INTRINSICS[name])
    for name, made in _MADE.items():
        setattr(cuda, name, made)
    cuda.laneid, cuda.warpsize = language.lane, 32
    cuda.shared = _namespace(array=_MADE["shared_array"])
    cuda.local = _namespace(array=_MADE["local_array"])
    atomics = ("add", "sub", "and_", "or_", "xor", "inc", "dec", "exch", "cas",
               "compare_and_swap")  # fmt: skip
    cuda.atomic = _Loose("numba.cuda.atomic")
    vars(cuda.atomic).update({n: _MADE[n] for n in atomics}, max=_MADE["max_"], min=_MADE["min_"])
    halves = {n: made for n, made in _MADE.items() if n.startswith("h")}
    cuda.fp16 = _namespace(**halves)
    cuda.jit, cuda.to_device = jit, to_device
    cuda.device_array_like, cuda.synchronize = to_device, lambda: None
    cuda.device_array = lambda shape, dtype: to_device(np.empty(shape, dtype))
    cuda.HAS_NUMBA = False
    cuda.get_current_device = lambda: _namespace(compute_capability=(9, 0))
    numba = _Loose("numba")
    for name in kinds:
        setattr(cuda, name, elements.get(name, kinds[name]))
        setattr(numba, name, elements.get(name, kinds[name]))
    numba.cuda = cuda
    modules = {"numba": numba, "numba.cuda": cuda, "numba.cuda.testing": _testing()}
    for name in ("core", "core.config", "core.errors", "compiler", "types", "np",
                 "np.numpy_support", "cudadrv", "cudadrv.driver"):  # fmt: skip
        modules[f"numba.cuda.{name}"] = _Loose(f"numba.cuda.{name}")
    for name, made in modules.items():
        made.__path__ = []
        sys.modules[name] = made
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(modules[parent], child, made)
    cuda.core.config.ENABLE_CUDASIM = False
    numba.core = _Loose("numba.core")
    numba.core.errors = sys.modules["numba.core.errors"] = cuda.core.errors
    sys.modules["numba.core"] = numba.core
    cuda.types.__dict__.update(elements)
    cuda.core.errors.TypingError = cuda.core.errors.NumbaTypeError = KernelLanguageError
    modules["numba.cuda.np.numpy_support"].from_dtype = element_of


__all__ = ["SEEN", "ElementType", "install"]
