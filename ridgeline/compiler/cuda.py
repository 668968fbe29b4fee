"""The CUDA backend: CUDA C++ through NVRTC for code, plans of launches to run it."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import cached_property
from itertools import accumulate
from math import prod
from types import MappingProxyType
from typing import Any

from ridgeline.codegen.cuda import KernelSource, begin, generate
from ridgeline.codegen.cuda.attention import Attention
from ridgeline.codegen.cuda.emit import LEGALIZE
from ridgeline.codegen.cuda.error_flag import marking
from ridgeline.codegen.cuda.horizontal_fusion import Part, fits, join_key, joined
from ridgeline.codegen.cuda.nvrtc import version
from ridgeline.codegen.llvm.machine_code import sources_fingerprint
from ridgeline.compiler import attention_calls
from ridgeline.compiler.attention import is_attention, kernels_of, operand_views
from ridgeline.compiler.backend import Libraries
from ridgeline.compiler.cuda_run import CudaExecutable
from ridgeline.compiler.library_calls import LibraryCalls
from ridgeline.compiler.matmul import (
    Matmul,
    Matrix,
    product_of,
    product_views,
    recognise,
    suits_library,
    takes_bias,
)
from ridgeline.compiler.memory_plan import Layout, shared_values
from ridgeline.compiler.stages import CompiledKernel
from ridgeline.config import config
from ridgeline.fusion.groups import Group, Roofline
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.passes.libraries.channels_last import is_product
from ridgeline.graph.strides import View, in_order
from ridgeline.loops.ir import Kernel
from ridgeline.loops.legalize import LoopPass
from ridgeline.loops.lowering.elements import widened_from
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import Step as ScheduleStep
from ridgeline.ops.attention import CALLS
from ridgeline.ops.contract import BIASED
from ridgeline.ops.convolve import CONVOLVE, ConvolveAttrs
from ridgeline.runtime.cuda import (
    cublaslt,
    cudnn_api,
    cudnn_attention,
    cudnn_convolution,
    device as devices,
)
from ridgeline.runtime.cuda.cudnn_plans import EnginePlan as CudnnPlan
from ridgeline.runtime.cuda.module import DeviceFunction, Modules
from ridgeline.schedules.gpu.default import steps as gpu_steps
from ridgeline.schedules.gpu.machine import GpuMachine
from ridgeline.schedules.gpu.occupancy import reason_to_part
from ridgeline.weak import Recent

_NOTHING: Mapping[Any, Any] = MappingProxyType({})
_LEAST_CONVOLUTION = 1 << 26  # products; below, kernels of our own fuse with their neighbours
_LEAST_EXACT = 1 << 29  # the same in float32, for which there are no tensor cores
# Products of a number in 16 bits up to which a ReLU goes with them: on an H200 the engines with one
# do 0.84 of the products a second of those without, and a kernel of its own moves 4 bytes a number.
_DEEPEST_RECTIFIED = 1536
_FEW, _MANY, _MANY_SINCE = 4096, 32_764, 12_010  # bytes of parameters, and the driver
_ARRANGED = (CONVOLVE, BIASED, *CALLS)  # what libraries compute
_BIAS = 2  # the place of a bias among the operands of a product
_WARP = 32
_MOST_KEYS = 4096
_CLUSTER = 8  # blocks that can share memory from Hopper on


class CudaBackend:
    """Compiles for one GPU."""

    def __init__(self, number: int) -> None:
        self.device = devices.device(number)
        self.modules = Modules(self.device)
        self._keys: Recent[str, tuple[Hashable | None]] = Recent(_MOST_KEYS, _MOST_KEYS)
        found = self.device.properties
        self._facts = GpuMachine(
            self.device.architecture,
            found.multi_processor_count,
            found.shared_memory_per_block_optin,
            found.l2_cache_size,
            _CLUSTER if found.major >= 9 else 1,
            parameter_bytes=_MANY if found.driver_version >= _MANY_SINCE else _FEW,
        )

    def facts(self) -> GpuMachine:
        """The facts of the device that schedules use."""
        return replace(self._facts, one_order=config.deterministic)

    def key(self) -> Any:
        """The device's facts, and whether float32 products may be shortened."""
        libraries = cublaslt.library() is not None, cudnn_api.version()
        return self.facts(), config.allow_tf32, libraries

    def roofline(self, facts: GpuMachine) -> Roofline:
        """Round figures of a data-centre GPU."""
        return Roofline(3e12, 40e12, launch_seconds=2e-6, recompute=True, numbers=2)

    def fingerprint(self) -> str:
        """The compiler's sources, NVRTC and the architecture."""
        return f"{sources_fingerprint()} {version()} {self.device.architecture}"

    def schedule(self, lowered: Lowered, facts: GpuMachine) -> list[ScheduleStep]:
        """The default schedule of a kernel."""
        return gpu_steps(lowered, facts)

    def libraries(self) -> Libraries:
        """cuDNN's convolutions and attention, cuBLASLt's products."""
        has_convolutions = cudnn_api.library() is not None
        has_attention = cudnn_api.version() >= cudnn_attention.SINCE
        return Libraries(
            self._convolves if has_convolutions else None,
            self._rectifies if has_convolutions else None,
            self._attends if has_attention else None,
            takes_bias if cublaslt.library() is not None else None,
        )

    def shared_bytes(self) -> int:
        """The shared memory of a block."""
        return self._facts.shared_bytes

    def _convolves(self, attrs: ConvolveAttrs, node: Node) -> bool:
        """True for convolutions large enough for a library, of which cuDNN has this one."""
        exact = node.dtype.itemsize > 2 and not config.allow_tf32
        least = _LEAST_EXACT if exact else _LEAST_CONVOLUTION
        if node.dtype.name not in cudnn_convolution.COMPUTED or attrs.products < least:
            return False
        return is_product(attrs) or self.convolution(attrs, node.dtype.name) is not None

    def _rectifies(self, attrs: ConvolveAttrs, node: Node) -> bool:
        """True for a convolution that cuDNN has with a ReLU, if that saves more than it costs."""
        pays = node.dtype.itemsize == 2 and prod(attrs.filters[1:]) <= _DEEPEST_RECTIFIED
        return pays and self.convolution(attrs, node.dtype.name) is not None

    def convolution(self, attrs: ConvolveAttrs, dtype: str) -> CudnnPlan | None:
        """How cuDNN computes a convolution; None where it does not."""
        self.device.activate()
        return cudnn_convolution.plan(
            self.device.number, attrs, dtype, config.allow_tf32, config.deterministic
        )

    def _attends(self, node: Node) -> bool:
        """True for an attention that cuDNN has."""
        return attention_calls.is_call(node, self.attention)

    def attention(self, kind: str, problem: Attention) -> CudnnPlan | None:
        """How cuDNN computes an attention; None where it does not."""
        self.device.activate()
        plain = replace(problem, written=())
        return cudnn_attention.plan(self.device.number, kind, plain, config.deterministic)

    def apart(self, node: Node) -> bool:
        """Contractions that cuBLASLt computes."""
        return suits_library(node) and cublaslt.library() is not None

    def parts(self, lowered: Lowered, facts: GpuMachine) -> str:
        """Kernels that would leave most multiprocessors idle."""
        return reason_to_part(lowered, facts)

    def converts(self, node: Node, facts: GpuMachine) -> bool:
        """Products of 16-bit operands in float32 are what tensor cores do."""
        return self.apart(node) and all(_widened(operand) for operand in node.inputs)

    def computes(self, node: Node) -> bool:
        """Attention on tensor cores, and what was arranged for libraries."""
        return node.op in _ARRANGED or (self._facts.capability >= 80 and is_attention(node))

    def operands(self, node: Node, graph: Graph) -> Sequence[View]:
        """Views at any strides whose rows are dense; for cuDNN memory as it is."""
        if node.op is CONVOLVE:
            return [in_order(operand, graph.is_input) for operand in node.inputs]
        if node.op is BIASED:
            return product_views(node, graph)
        if node.op in CALLS:
            return attention_calls.views_of(node, graph, self.attention)
        return operand_views(node, graph)

    def runs(self, node: Node) -> bool:
        """No control flow: it runs on the host, between kernels."""
        return False

    def launch(self, group: Group, kernel: Kernel | None) -> tuple[Any, ...] | None:
        """What is started, the workspace it needs, and how: launches, or a library's call."""
        if group.apart is not None and group.apart.op is CONVOLVE:
            attrs, dtype = group.apart.attrs, group.apart.dtype.name
            return ("convolution", self.planned(attrs, dtype).workspace, (dtype, *astuple(attrs)))
        if group.apart is not None and group.apart.op is BIASED:
            assert group.views is not None
            found = product_of(group.apart, group.views)
            return ("matmul", cublaslt.WORKSPACE, (*astuple(found), config.allow_tf32, _BIAS))
        if group.apart is not None and group.apart.op in CALLS:
            return attention_calls.launch_of(group, self.attention)
        product = None if kernel is None else _product(group)
        if product is not None and kernel is not None:
            found = _in_call(product, group.loops.kernel, kernel)
            return ("matmul", cublaslt.WORKSPACE, (*astuple(found), config.allow_tf32, None))
        source = kernels_of(group) if kernel is None else generate(kernel)
        launches = tuple(
            (one.symbol, one.blocks(), one.block, one.shared_bytes, one.cluster)
            for one in source.launches
            if one.blocks()
        )
        return ("kernel", source.workspace_bytes, launches) if launches else None

    def planned(self, attrs: ConvolveAttrs, dtype: str) -> CudnnPlan:
        """How cuDNN computes a convolution of an arranged graph."""
        plan = self.convolution(attrs, dtype)
        assert plan is not None, "a graph holds only convolutions that the library has"
        return plan

    def join_key(self, kernel: CompiledKernel) -> Hashable | None:
        """The family and the block of a kernel that is one launch."""
        if _product(kernel.group) is not None:
            return None
        name = kernel.kernel.name
        known = self._keys.get(name)
        if known is None:
            known = (join_key(kernel.kernel),)
            self._keys.keep(name, known, 1)
        (found,), lowered = known, kernel.group.loops
        return None if found is None else (found, lowered.anchor)

    def join_fits(self, parts: Sequence[CompiledKernel]) -> bool:
        """Whether the addresses are not too many for a launch's parameters."""
        kernels = [part.kernel for part in parts]
        return fits(kernels, len(shared_values(parts)), self._facts.parameter_bytes)

    def join(self, parts: Sequence[CompiledKernel]) -> tuple[str, tuple[Any, ...]]:
        """One launch whose blocks are shared out among the kernels."""
        source = _joined(parts)
        started = tuple((one.symbol, one.blocks(), one.block, one.shared_bytes)
                        for one in source.launches)  # fmt: skip
        return source.name, ("joined", source.workspace_bytes, started)

    def begin(self, group: Group, kernel: CompiledKernel | None) -> Mapping[str, Any]:
        """NVRTC in another thread."""
        if kernel is None:
            source = kernels_of(group) if _has_text(group) else None
        else:
            source = generate(kernel.kernel) if _product(group) is None else None
        return {} if source is None else {source.name: begin(source.text, self._facts.arch)}

    def compile(
        self,
        kernels: Sequence[CompiledKernel],
        whole: Sequence[Group] = (),
        joined: Sequence[Sequence[CompiledKernel]] = (),
        begun: Mapping[str, Any] = _NOTHING,
    ) -> bytes:
        """One image for every kernel, one after the other behind a line that names them."""
        parts = {id(part) for members in joined for part in members}
        alone = [k for k in kernels if id(k) not in parts and _product(k.group) is None]
        own = {k.kernel.name: k.kernel for k in alone}
        named = {source.name: source for source in map(kernels_of, filter(_has_text, whole))}
        made = [*named.values(), *map(_joined, joined), *map(generate, own.values())]
        late = {s.name: begin(s.text, self._facts.arch) for s in made if s.name not in begun}
        images = [(begun.get(source.name) or late[source.name]).result() for source in made]
        rows = [
            [len(image), [[one.symbol, one.shared_bytes] for one in source.launches]]
            for source, image in zip(made, images)
        ]
        code = json.dumps(rows).encode() + b"\n" + b"".join(images)
        self.load(code, ())
        return code

    def load(self, code: bytes, symbols: Sequence[str]) -> None:
        """Load the images whose functions the device does not have yet."""
        head, _, images = code.partition(b"\n")
        rows = json.loads(head)
        ends = list(accumulate(size for size, _ in rows))
        self.modules.load(
            [(images[end - size : end], launches) for end, (size, launches) in zip(ends, rows)]
        )

    @cached_property
    def marking(self) -> DeviceFunction:
        """The kernel that sets a byte where a flag is found set."""
        found = generate(marking())
        (launch,) = found.launches
        image = begin(found.text, self._facts.arch).result()
        self.modules.load([(image, [(launch.symbol, launch.shared_bytes)])])
        return self.modules[launch.symbol]

    def legalize(self) -> Sequence[LoopPass]:
        """Little: threads, barriers and functions are CUDA's own."""
        return LEGALIZE

    def source(self, kernels: Sequence[Kernel]) -> str:
        """CUDA C++."""
        return "\n".join(generate(kernel).text for kernel in kernels)

    def executable(self, layout: Layout, calls: LibraryCalls) -> CudaExecutable:
        """A plan of launches, with library calls in NumPy between them."""
        return CudaExecutable(layout, calls, self)


def _has_text(group: Group) -> bool:
    """True for a node computed whole that is not a library's call."""
    return group.apart is not None and group.apart.op not in _ARRANGED


def _in_call(product: Matmul, plain: Kernel, scheduled: Kernel) -> Matmul:
    """A product found in plain loops, by the parameters of the call: a schedule may add views."""
    place = {parameter.slot: number for number, parameter in enumerate(scheduled.params)}

    def moved(matrix: Matrix) -> Matrix:
        return replace(matrix, parameter=place[plain.params[matrix.parameter].slot])

    left, right, result = map(moved, (product.left, product.right, product.result))
    return replace(product, left=left, right=right, result=result)


def _joined(parts: Sequence[CompiledKernel]) -> KernelSource:
    """The launch of several kernels, over the addresses of all they use."""
    place = {value: number for number, value in enumerate(shared_values(parts))}
    return joined(
        [Part(part.kernel, tuple(place[value] for value in part.values)) for part in parts]
    )


def _widened(operand: Node) -> bool:
    """True for views of values that were 16-bit floats."""
    narrow = widened_from(operand)
    return narrow is not None and narrow.kind == "float"


def _product(group: Group) -> Matmul | None:
    """The matrix product that a group is, where the library can compute it."""
    alone = len(group.values) == 1 and suits_library(group.values[0])
    return recognise(group.loops.kernel) if alone and cublaslt.library() is not None else None
