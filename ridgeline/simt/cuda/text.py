"""A thread program as the text of a `__global__` function, with lines of the user's source."""

from __future__ import annotations

from collections import Counter
from math import prod

from ridgeline import dtypes
from ridgeline.codegen.cuda.prelude import CLUSTER, PRELUDE
from ridgeline.codegen.cuda.types import (
    is_narrow_float,
    literal,
    loaded,
    memory_type,
    register_type,
    stored,
)
from ridgeline.errors import RidgelineError
from ridgeline.loops import ir as loop_ir
from ridgeline.ops.kernel_launch import CudaKernel, ThreadLaunch
from ridgeline.simt import ir, traversal
from ridgeline.simt.cuda import fragments
from ridgeline.simt.cuda.expressions import ATOM, CudaExpressions
from ridgeline.simt.cuda.warp_prelude import WARP_PRELUDE
from ridgeline.weak import fingerprint

_PLAIN_SHARED = 48 << 10  # bytes that a function may declare
_ASYNC_BYTES = (4, 8, 16)
_FENCES = {
    "block": "__threadfence_block()", "cluster": "__threadfence()", "device": "__threadfence()",
    "system": "__threadfence_system()",
}  # fmt: skip
_SCOPES = {"block": "_block", "cluster": "", "device": "", "system": "_system"}


class NotForGpu(RidgelineError, NotImplementedError):
    """A kernel uses what its CUDA C++ does not have."""


def cuda_kernel(program: ir.ThreadProgram, grid: ThreadLaunch) -> CudaKernel:
    """The CUDA C++ of a program for a launch's blocks."""
    return CudaText(program, grid).kernel()


class CudaText(CudaExpressions):
    """Writes one function."""

    def __init__(self, program: ir.ThreadProgram, grid: ThreadLaunch) -> None:
        super().__init__(program, grid.block, grid.shared_bytes)
        self._lines: list[str] = []
        self._depth = 1
        self._line = -1
        self._threads, self._cluster = grid.threads, grid.cluster
        self._cooperative = any(
            isinstance(s, ir.Barrier) and s.scope == "grid" for s in traversal.walk(program.body)
        )
        counts = Counter(
            target.name
            for statement in traversal.walk(program.body)
            for target in (getattr(statement, "target", None), *getattr(statement, "targets", ()))
            if isinstance(target, ir.Variable)
        )
        self._once = {name for name, count in counts.items() if count == 1}
        self.definitions = {
            s.target.name: s.value
            for s in traversal.walk(program.body)
            if isinstance(s, ir.Assign) and s.target.name in self._once
        }

    def kernel(self) -> CudaKernel:
        """The whole text."""
        for fragment in self.program.fragments:
            fragments.checked(fragment)
        head = ", ".join(self._parameters())
        shared = self._shared()
        self._declarations()
        self._body(self.program.body)
        inner = "\n".join((*shared, *self._scalars(), *self._lanes(), *self._lines))
        constants = "\n".join(self._constant_arrays())
        cluster = "rl_cluster_" in inner or self._cluster != (1, 1, 1)
        grouped = f"__cluster_dims__{self._cluster} " if self._cluster != (1, 1, 1) else ""
        bounds = f"{grouped}__launch_bounds__({self._threads})"  # a larger block cannot be launched
        made_of = head + bounds + inner + constants
        symbol = f"{self.names[self.program.name]}_{fingerprint(made_of, 8)}"
        text = (
            f"{PRELUDE}{CLUSTER if cluster else ''}{WARP_PRELUDE}{constants}\n"
            f'extern "C" __global__ void {bounds} {symbol}({head}) {{\n'
            f"{inner}\n}}\n"
        )
        return CudaKernel(text, symbol, self._shared_bytes(), self._cooperative)

    # ---- what the function has ----------------------------------------------------------------

    def _parameters(self) -> list[str]:
        parts = []
        for p in self.program.parameters:
            if isinstance(p, ir.ThreadArray):
                const = "const " if p.access == "in" else ""
                parts.append(f"{const}{memory_type(p.dtype)} *__restrict__ {self.names[p.name]}")
            else:
                parts.append(f"const {memory_type(p.dtype)} *__restrict__ {self.names[p.name]}_at")
        parts += [f"const int {self.names[f'size {n}']}" for n in size_names(self.program)]
        return [*parts, "unsigned int *grid_barrier"] if self._cooperative else parts

    def _scalars(self) -> list[str]:
        found = []
        for p in self.program.parameters:
            if isinstance(p, ir.Variable):
                name = self.names[p.name]
                bits = f"*{name}_at"
                value = (
                    bits
                    if p.dtype.kind != "float" or p.dtype.itemsize >= 4
                    else (f"rl_from_{p.dtype.name}({bits})")
                )
                found.append(f"  const {register_type(p.dtype)} {name} = {value};")
        return found

    def _lanes(self) -> list[str]:
        text = "\n".join(self._lines)
        width, height, _ = self.block
        number = "(int)(threadIdx.x"
        number += f" + threadIdx.y * {width}" if self.block[1:] != (1, 1) else ""
        number += f" + threadIdx.z * {width * height}" if self.block[2] != 1 else ""
        found = []
        for name, tail in (("lane", " & 31)"), ("warp", ") >> 5")):
            if any(word == name for word in _words(text)):
                left = number if name == "warp" else number.replace("(int)(", "(int)((", 1) + ")"
                found.append(f"  const int {name} = {left}{tail};")
        return found

    def _static_shared(self) -> list[ir.ThreadArray]:
        return [
            a for a in self.program.memories if a.space == "shared" and "dynamic" not in a.shape
        ]

    def _shared_bytes(self) -> int:
        """Bytes of static shared memory that the launch has to ask for."""
        total = sum(_bytes(a) for a in self._static_shared())
        return total if total > _PLAIN_SHARED else 0

    def _shared(self) -> list[str]:
        lines = []
        asked = self._shared_bytes()
        dynamic = [a for a in self.program.memories if "dynamic" in a.shape]
        if asked or dynamic:
            lines.append("  extern __shared__ __align__(16) unsigned char shared_memory[];")
        offset = 0
        for array in self._static_shared():
            name, kind = self.names[array.name], memory_type(array.dtype)
            if asked:
                lines.append(f"  {kind} *{name} = ({kind} *)(shared_memory + {offset});")
                offset += _bytes(array)
            else:
                count = prod(int(s) for s in array.shape)
                lines.append(f"  __shared__ __align__(16) {kind} {name}[{count}];")
        for array in dynamic:
            kind = memory_type(array.dtype)
            lines.append(
                f"  {kind} *{self.names[array.name]} = ({kind} *)(shared_memory + {offset});"
            )
        return lines

    def _constant_arrays(self) -> list[str]:
        found = []
        for array in self.program.memories:
            if array.space == "constant":
                values = ir.constant_values(array).reshape(-1)
                kind = memory_type(array.dtype)
                raw = values if kind != "unsigned short" else values.view("uint16")
                kept = array.dtype if raw is values else dtypes.uint16
                items = ", ".join(literal(loop_ir.const(v.item(), kept)) for v in raw)
                name = self.names[array.name]
                found.append(f"static __constant__ {kind} {name}[{values.size}] = {{{items}}};")
        return found

    def _declarations(self) -> None:
        for variable in self.program.variables:
            assigned_once = variable.name in self._once
            if not assigned_once:
                kind = register_type(variable.dtype)
                self._put(f"{kind} {self.names[variable.name]} = 0;")
        for fragment in self.program.fragments:
            kind, count = fragments.register_kind(fragment), fragments.registers(fragment)
            self._put(f"{kind} {self.names[fragment.name]}[{count}];")
        for array in self.program.memories:
            if array.space == "local":
                count = prod(int(s) for s in array.shape)
                self._put(f"{memory_type(array.dtype)} {self.names[array.name]}[{count}];")

    # ---- statements ---------------------------------------------------------------------------

    def _put(self, text: str) -> None:
        self._lines.append("  " * self._depth + text)

    def _mark(self, place: ir.SourcePlace) -> None:
        if place.line != self._line:
            self._line = place.line
            self._lines.append(f'#line {place.line} "{_escaped(place.path)}"')

    def _body(self, body: tuple[ir.ThreadStmt, ...]) -> None:
        for statement in body:
            self._mark(statement.place)
            self._statement(statement)

    def _indented(self, body: tuple[ir.ThreadStmt, ...]) -> None:
        self._depth += 1
        self._body(body)
        self._depth -= 1

    def _statement(self, statement: ir.ThreadStmt) -> None:
        match statement:
            case ir.Assign():
                self._give(statement.target, self.text(statement.value))
            case ir.ElementWrite():
                self._write(statement)
            case ir.IfElse():
                self._put(f"if ({_unwrapped(self.text(statement.condition))}) {{")
                self._indented(statement.then)
                if statement.otherwise:
                    self._put("} else {")
                    self._indented(statement.otherwise)
                self._put("}")
            case ir.WhileLoop():
                self._put(f"while ({_unwrapped(self.text(statement.condition))}) {{")
                self._indented(statement.body)
                self._put("}")
            case ir.ForRange():
                self._for(statement)
            case ir.Break():
                self._put("break;")
            case ir.Continue():
                self._put("continue;")
            case ir.Return():
                self._put("return;")
            case ir.Barrier():
                self._barrier(statement)
            case ir.WarpOp():
                self._warp_op(statement)
            case ir.Atomic():
                self._atomic(statement)
            case ir.Fence():
                self._put(f"{_FENCES[statement.scope]};")
            case _:
                self._rare(statement)

    def _rare(self, statement: ir.ThreadStmt) -> None:
        match statement:
            case ir.VectorRead():
                kind, n = memory_type(statement.array.dtype), len(statement.targets)
                whole = self.names[f"vector {len(self._lines)}"]
                at = self.at(statement.array, statement.index)
                self._put(
                    f"const Vector<{kind}, {n}> {whole} = *(const Vector<{kind}, {n}> *)&{at};"
                )
                for number, target in enumerate(statement.targets):
                    raw = f"{whole}.v[{number}]"
                    self._give(target, _loaded(statement.array.dtype, raw))
            case ir.VectorWrite():
                kind, n = memory_type(statement.array.dtype), len(statement.values)
                values = [stored(statement.array.dtype, self.text(v)) for v in statement.values]
                at = self.at(statement.array, statement.index)
                self._put(f"*(Vector<{kind}, {n}> *)&{at} = {{{{{', '.join(values)}}}}};")
            case ir.ArrayFill():
                array = statement.array
                count = prod(int(s) for s in array.shape)
                value = stored(array.dtype, self.text(statement.value))
                self._put("#pragma unroll")
                self._put(
                    f"for (int e = 0; e < {count}; e++) {self.names[array.name]}[e] = {value};"
                )
            case ir.FragmentFill() | ir.FragmentLoad() | ir.FragmentMultiply() | ir.FragmentStore():
                self._fragment(statement)
            case ir.AsyncCopy():
                self._async_copy(statement)
            case ir.AsyncCommit():
                self._put("rl_async_commit();")
            case ir.AsyncWait():
                self._put(f"rl_async_wait<{statement.pending}>();")
            case ir.PrintOut():
                self._print(statement)
            case ir.Assertion():
                message = _escaped(
                    f"{statement.place.path}:{statement.place.line}: {statement.message}"
                )
                self._put(f"if (!({self.text(statement.condition)})) {{")
                self._put(f'  printf("assertion failed at {message}\\n"); __trap();')
                self._put("}")
            case ir.Breakpoint():
                pass
            case _:
                raise NotForGpu(f"{type(statement).__name__} is not written as CUDA C++")

    def _give(self, target: ir.Variable | None, value: str) -> None:
        if target is None:
            self._put(f"{value};")
        elif target.name in self._once:
            self._put(f"const {register_type(target.dtype)} {self.names[target.name]} = {value};")
        else:
            self._put(f"{self.names[target.name]} = {value};")

    def _write(self, statement: ir.ElementWrite) -> None:
        value = stored(statement.array.dtype, self.text(statement.value))
        if statement.peer is not None:
            at, kind = self.at(statement.array, statement.index), memory_type(statement.array.dtype)
            peer = self.text(statement.peer)
            self._put(f"rl_cluster_put<{kind}>(&{at}, (unsigned int)({peer}), {value});")
            return
        line = f"{self.at(statement.array, statement.index)} = {_unwrapped(value)};"
        if statement.guarded:
            line = f"if ({_unwrapped(self.inside(statement.array, statement.index))}) {line}"
        self._put(line)

    def _for(self, loop: ir.ForRange) -> None:
        name, kind = self.names[loop.target.name], register_type(loop.target.dtype)
        self.loop_starts[loop.target.name] = loop.start
        stop, step = self._held(loop.stop, loop), self._held(loop.step, loop)
        if loop.unroll:
            self._put("#pragma unroll")
        advance = f"{name}++" if step == "1" else f"{name} += {step}"
        goes_on = f"{name} {'>' if loop.direction < 0 else '<'} {stop}"
        if loop.direction == 0:
            goes_on = f"{step} < 0 ? {name} > {stop} : {name} < {stop}"
        self._put(f"for ({kind} {name} = {self.text(loop.start)}; {goes_on}; {advance}) {{")
        self._indented(loop.body)
        self._put("}")
        self.loop_starts.pop(loop.target.name)

    def _held(self, bound: ir.ThreadExpr, loop: ir.ForRange) -> str:
        """A bound that the body cannot change; others are evaluated before the loop."""
        steady = all(
            not isinstance(e, ir.ElementRead)
            and (not isinstance(e, ir.Variable) or e.name in self._once or self._is_parameter(e))
            for e in traversal.subexpressions(bound)
        )
        if steady:
            return self.text(bound, 2)
        name = self.names[f"bound {len(self._lines)}"]
        self._put(f"const {register_type(bound.dtype)} {name} = {self.text(bound)};")
        return name

    def _is_parameter(self, variable: ir.Variable) -> bool:
        return any(p == variable for p in self.program.parameters)

    # ---- what threads do together -------------------------------------------------------------

    def _barrier(self, barrier: ir.Barrier) -> None:
        if barrier.scope == "grid":
            self._put("rl_grid_sync(grid_barrier);")
            return
        if barrier.scope == "cluster":
            self._put("rl_cluster_sync();")
            return
        if barrier.vote is None or barrier.value is None:
            self._put("__syncthreads();")
            return
        call = f"__syncthreads_{barrier.vote}({self.text(barrier.value)})"
        self._give(barrier.target, call if barrier.vote == "count" else f"({call} != 0)")

    def _warp_mask(self, op: ir.WarpOp) -> str:
        if op.mask is not None:
            return f"(unsigned int)({self.text(op.mask)})"
        return "0xffffffffu" if self._threads % 32 == 0 else f"rl_warp_mask({self._threads})"

    def _warp_op(self, op: ir.WarpOp) -> None:
        mask = self._warp_mask(op)
        value = "" if op.value is None else self.text(op.value)
        if op.name == "sync":
            self._put(f"__syncwarp({mask});")
        elif op.name == "activemask":
            self._give(op.target, "__activemask()")
        elif op.name in ("ballot", "any", "all"):
            call = f"__{op.name}_sync({mask}, {value})"
            self._give(op.target, call if op.name == "ballot" else f"({call} != 0)")
        elif op.name == "match":
            self._give(op.target, f"__match_any_sync({mask}, {value})")
        elif op.name.startswith("shfl"):
            assert op.argument is not None
            self._give(
                op.target,
                f"__{op.name}_sync({mask}, {value}, {self.text(op.argument)}, {op.width})",
            )
        else:
            self._give(op.target, f"rl_warp_{op.name}({mask}, {value})")

    def _atomic(self, op: ir.Atomic) -> None:
        dtype = op.array.dtype
        element = self.at(op.array, op.index)
        if op.releases:
            self._put(f"{_FENCES[op.scope]};")
        if op.name == "load":
            self._give(op.target, loaded(dtype, f"*(volatile {memory_type(dtype)} *)&{element}"))
        elif op.name == "store":
            assert op.value is not None
            value = stored(dtype, self.text(op.value))
            self._put(f"*(volatile {memory_type(dtype)} *)&{element} = {value};")
        else:
            self._give(op.target, self._updated(op, element))
        if op.acquires:
            self._put(f"{_FENCES[op.scope]};")

    def _updated(self, op: ir.Atomic, element: str) -> str:
        """The call that changes an element; of a half-precision one it is given the bits."""
        assert op.value is not None
        dtype, scope = op.array.dtype, _SCOPES[op.scope]
        call = f"rl_atomic_{op.name}{scope}(&{element}, "
        if not is_narrow_float(dtype):
            compare = "" if op.compare is None else f"{self._typed(op.compare)}, "
            return f"{call}{compare}{self._typed(op.value)})"
        if op.name in ("exch", "cas"):
            given = [part for part in (op.compare, op.value) if part is not None]
            return loaded(dtype, call + ", ".join(stored(dtype, self.text(p)) for p in given) + ")")
        old, value = loaded(dtype, "x"), self.text(op.value)
        joined = {"add": f"{old} + v", "sub": f"{old} - v", "min": f"rl_min({old}, v)",
                  "max": f"rl_max({old}, v)"}[op.name]  # fmt: skip
        made = f"[v = {value}]({memory_type(dtype)} x) {{ return {stored(dtype, joined)}; }}"
        return loaded(dtype, f"rl_atomic_update{scope}(&{element}, {made})")

    def _typed(self, value: ir.ThreadExpr) -> str:
        """A value of exactly the element's type: C++ computes with small integers as ints."""
        if value.dtype.itemsize >= 4:
            return self.text(value)
        return f"({memory_type(value.dtype)}){self.text(value, ATOM)}"

    def _fragment(
        self, statement: ir.FragmentFill | ir.FragmentLoad | ir.FragmentMultiply | ir.FragmentStore
    ) -> None:
        match statement:
            case ir.FragmentFill():
                name = self.names[statement.fragment.name]
                self._put("#pragma unroll")
                self._put(fragments.filled(statement.fragment, name, self.text(statement.value)))
            case ir.FragmentMultiply():
                four = (statement.target, statement.a, statement.b, statement.c)
                t, a, b, c = (self.names[f.name] for f in four)
                self._put(fragments.multiply(statement, (t, a, b, c)))
            case ir.FragmentLoad() | ir.FragmentStore():
                name, at = (
                    self.names[statement.fragment.name],
                    f"&{self.at(statement.array, statement.index)}",
                )
                stride = self.text(statement.stride)
                loads = isinstance(statement, ir.FragmentLoad)
                layout = (
                    statement.layout
                    if isinstance(statement, ir.FragmentStore)
                    else statement.fragment.layout
                )
                move = fragments.load if loads else fragments.store
                self._put(move(statement.fragment, name, at, stride, layout))

    def _async_copy(self, copy: ir.AsyncCopy) -> None:
        size = copy.count * copy.target.dtype.itemsize
        to, source = (
            self.at(copy.target, copy.target_index),
            self.at(copy.source, copy.source_index),
        )
        if size in _ASYNC_BYTES:
            self._put(f"rl_async_copy<{size}>(&{to}, &{source});")
            return
        self._put(f"for (int e = 0; e < {copy.count}; e++) (&{to})[e] = (&{source})[e];")

    def _print(self, statement: ir.PrintOut) -> None:
        form, values = [], []
        for part in statement.parts:
            if isinstance(part, str):
                form.append(_escaped(part).replace("%", "%%"))
                continue
            value, kind = self.text(part, 3), part.dtype.kind
            if kind == "float":
                form.append("%g")
                values.append(f"(double){value}")
            elif kind == "bool":
                form.append("%s")
                values.append(f'({value} ? "True" : "False")')
            else:
                form.append("%llu" if kind == "uint" else "%lld")
                values.append(f"({'unsigned ' if kind == 'uint' else ''}long long)({value})")
        tail = "".join(f", {value}" for value in values)
        self._put(f'printf("{"".join(form)}\\n"{tail});')


def size_names(program: ir.ThreadProgram) -> list[str]:
    """The sizes that a launch hands to the function, each once."""
    names = [s for array in program.arrays for s in array.shape if isinstance(s, str)]
    return list(dict.fromkeys(names))


def _bytes(array: ir.ThreadArray) -> int:
    size = prod(int(s) for s in array.shape) * array.dtype.itemsize
    return -(-size // 16) * 16


def _loaded(dtype: dtypes.DType, raw: str) -> str:
    if dtype.kind == "float" and dtype.itemsize < 4:
        return f"rl_from_{dtype.name}({raw})"
    return raw


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _unwrapped(text: str) -> str:
    """A text without parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for number, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and number < len(text) - 1:
            return text
    return text[1:-1]


def _words(text: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in text).split()
