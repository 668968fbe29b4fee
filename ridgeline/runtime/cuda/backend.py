"""The CUDA backend: CUDA C++ through NVRTC for code, plans of launches to run it."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from ridgeline.codegen.cuda import KernelSource, begin, generate
from ridgeline.codegen.cuda.emit import LEGALIZE
from ridgeline.codegen.cuda.error_flag import marking
from ridgeline.codegen.cuda.horizontal_fusion import FusedCall, fits, join_key, joined
from ridgeline.codegen.cuda.nvrtc import version
from ridgeline.codegen.cuda.source import TileMap
from ridgeline.codegen.llvm.machine_code import sources_fingerprint
from ridgeline.compiler.backend import Backend, Libraries, LibraryOp, NumpyCalls
from ridgeline.compiler.memory_plan import (
    BodyCall,
    JoinedCall,
    KernelCall,
    Layout,
    shared_values,
)
from ridgeline.compiler.stages import CompiledKernel
from ridgeline.config import config
from ridgeline.fusion.groups import FusionGroup, Roofline
from ridgeline.graph.node import Node
from ridgeline.loops.ir import Kernel
from ridgeline.loops.legalize import LoopPass
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import Step as ScheduleStep
from ridgeline.ops.convolve import ConvolveAttrs
from ridgeline.runtime.cuda import cublaslt, cudnn_api, device as devices
from ridgeline.runtime.cuda.attention import (
    AttentionKernels,
    AttentionLaunch,
    CudnnAttention,
    Mask,
    Problem,
    Strides,
    TensorMemory,
    cudnn,
)
from ridgeline.runtime.cuda.control_flow import DEVICE_CALL_TYPES, DeviceControlFlow
from ridgeline.runtime.cuda.cudnn_convolution import ConvolutionLaunch, CudnnConvolution
from ridgeline.runtime.cuda.executable import CudaExecutable
from ridgeline.runtime.cuda.launches import Grid, JoinedLaunch, KernelLaunch, grids_of
from ridgeline.runtime.cuda.module import DeviceFunction, Modules
from ridgeline.runtime.cuda.product import (
    CublasProduct,
    Matmul,
    Matrix,
    ProductLaunch,
    reads_narrow,
)
from ridgeline.runtime.cuda.user_kernels import GridLaunch, UserKernels
from ridgeline.runtime.memory import block_bytes, exact_bytes
from ridgeline.schedules.gpu.default import steps as gpu_steps
from ridgeline.schedules.gpu.machine import GpuMachine
from ridgeline.schedules.gpu.occupancy import reason_to_part
from ridgeline.schedules.gpu.tensor_cores import HOPPER
from ridgeline.weak import Recent

_FEW, _MANY, _MANY_SINCE = 4096, 32_764, 12_010  # bytes of parameters, and the driver
_MOST_KEYS = 4096
_CLUSTER = 8  # blocks that can share memory from Hopper on


class CudaBackend(Backend):
    """Compiles for one GPU."""

    shares_flag = True
    launch_types = (
        KernelLaunch, JoinedLaunch, Grid, TileMap, ProductLaunch, Matmul, Matrix, ConvolutionLaunch,
        ConvolveAttrs, AttentionLaunch, Problem, Strides, Mask, TensorMemory, GridLaunch,
        *DEVICE_CALL_TYPES,
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.device = devices.device(number)
        self.modules = Modules(self.device)
        found = self.device.properties
        self._facts = GpuMachine(
            self.device.architecture,
            found.multi_processor_count,
            found.shared_memory_per_block_optin,
            found.l2_cache_size,
            _CLUSTER if found.major >= 9 else 1,
            parameter_bytes=_MANY if found.driver_version >= _MANY_SINCE else _FEW,
        )
        self._control_flow = DeviceControlFlow(self.device.name)
        self._joining = JoinedKernels(self._facts.parameter_bytes)
        self.product = CublasProduct(self._facts)
        self.convolution = CudnnConvolution(self.device)
        self.attention = CudnnAttention(self.device)
        self.attention_kernels = AttentionKernels(self._facts.capability)
        self.user_kernels = UserKernels(self._facts.shared_bytes)

    def library_ops(self) -> Sequence[LibraryOp]:
        """cuBLASLt's products, cuDNN's convolutions and attention, kernels written by hand."""
        return (
            self.product, self.convolution, self.attention, self.attention_kernels,
            self.user_kernels,
        )  # fmt: skip

    def library_op(self, node: Node) -> LibraryOp | None:
        """By the node's op; recorded attention only where there are kernels for it."""
        found = super().library_op(node)
        if found is self.attention_kernels and not self.attention_kernels.matches(node):
            return None
        return found

    def libraries(self) -> Libraries:
        """What is installed."""
        has_products = cublaslt.library() is not None
        has_convolutions = cudnn_api.library() is not None
        has_attention = cudnn_api.version() >= cudnn.SINCE
        return Libraries(
            self.convolution.way if has_convolutions else None,
            self.convolution.matches_with_relu if has_convolutions else None,
            self.attention.matches if has_attention else None,
            self.product.matches if has_products else None,
            self.product.matches_with_bias if has_products else None,
        )

    def facts(self) -> GpuMachine:
        """The facts of the device that schedules use."""
        return replace(self._facts, one_order=config.deterministic)

    def key(self) -> Any:
        """The device's facts, and whether float32 products may be shortened."""
        libraries = cublaslt.library() is not None, cudnn_api.version()
        shortened = config.allow_tf32, config.allow_tf32_convolutions
        return self.facts(), *shortened, config.products, libraries

    def roofline(self, facts: GpuMachine) -> Roofline:
        """Round figures of a data-centre GPU."""
        return Roofline(3e12, 40e12, launch_seconds=2e-6, recompute=True, numbers=2)

    def fingerprint(self) -> str:
        """The compiler's sources, NVRTC and the architecture."""
        return f"{sources_fingerprint()} {version()} {self.device.architecture}"

    def schedule(self, lowered: Lowered, facts: GpuMachine) -> list[ScheduleStep]:
        """The default schedule of a kernel."""
        return gpu_steps(lowered, facts)

    def shared_memory_bytes(self) -> int:
        """The shared memory of a block."""
        return self._facts.shared_bytes

    def reason_to_split(self, lowered: Lowered, facts: GpuMachine) -> str:
        """Kernels that would leave most multiprocessors idle."""
        return reason_to_part(lowered, facts)

    def reads_narrow_operands(self, node: Node, facts: GpuMachine) -> bool:
        """Products of 16-bit operands in float32 are what tensor cores do."""
        multiplied = cublaslt.library() is not None or self._facts.capability == HOPPER
        return multiplied and reads_narrow(node)

    def block_bytes(self, nbytes: int, exact: bool) -> int:
        """The size class of the pool, or whole pages."""
        return exact_bytes(nbytes) if exact else block_bytes(nbytes)

    def workspace(self, layout: Layout) -> int:
        """What the call that needs most needs for itself, those of bodies included."""
        own = [c.launch.workspace for c in layout.calls if isinstance(c, (KernelCall, JoinedCall))]
        flows = [c for c in layout.calls if isinstance(c, BodyCall)]
        inner = [self.workspace(part) for flow in flows for part in flow.bodies()]
        return max([*own, *inner], default=0)

    def control_flow(self) -> DeviceControlFlow:
        """Loops and branches whose bodies are launches."""
        return self._control_flow

    def horizontal_fusion(self) -> JoinedKernels:
        """One launch whose blocks are shared out among kernels."""
        return self._joining

    def launch(self, group: FusionGroup, kernel: Kernel) -> KernelLaunch | None:
        """The grids of a kernel."""
        source = generate(kernel)
        grids = grids_of(source)
        return KernelLaunch(source.workspace_bytes, grids) if grids else None

    def compile_ahead(self, group: FusionGroup, kernel: CompiledKernel | None) -> Mapping[str, Any]:
        """NVRTC in another thread."""
        source = self._library_source(group) if kernel is None else generate(kernel.kernel)
        return {} if source is None else {source.name: self._begin(source)}

    def _begin(self, source: KernelSource) -> Future[bytes]:
        return begin(source.text, self._facts.arch, source.options)

    def _library_source(self, group: FusionGroup) -> KernelSource | None:
        """The text of a library op that is kernels of our own."""
        assert group.apart is not None
        own = self.library_op(group.apart)
        return own.source(group) if isinstance(own, (AttentionKernels, UserKernels)) else None

    def compile(
        self,
        kernels: Sequence[CompiledKernel],
        library_calls: Sequence[FusionGroup] = (),
        joined: Sequence[Sequence[CompiledKernel]] = (),
        begun: Mapping[str, Any] = MappingProxyType({}),
    ) -> bytes:
        """One image for every kernel, one after the other behind a line that names them."""
        parts = {id(part) for members in joined for part in members}
        own = {k.kernel.name: k.kernel for k in kernels if id(k) not in parts}
        texts = [source for source in map(self._library_source, library_calls) if source]
        named = {source.name: source for source in texts}
        made = [*named.values(), *map(_joined, joined), *map(generate, own.values())]
        late = {s.name: self._begin(s) for s in made if s.name not in begun}
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

    def executable(self, layout: Layout, calls: NumpyCalls) -> CudaExecutable:
        """A plan of launches, with calls of NumPy between them."""
        return CudaExecutable(layout, calls, self)


class JoinedKernels:
    """Kernels that are one launch, whose blocks are shared out among them."""

    def __init__(self, parameter_bytes: int) -> None:
        self._parameter_bytes = parameter_bytes
        self._keys: Recent[str, tuple[Hashable | None]] = Recent(_MOST_KEYS, _MOST_KEYS)

    def key(self, kernel: CompiledKernel) -> Hashable | None:
        """The family and the block of a kernel that is one launch."""
        name = kernel.kernel.name
        known = self._keys.get(name)
        if known is None:
            known = (join_key(kernel.kernel),)
            self._keys.keep(name, known, 1)
        (found,), lowered = known, kernel.group.loops
        return None if found is None else (found, lowered.anchor)

    def fits(self, parts: Sequence[CompiledKernel]) -> bool:
        """Whether the addresses are not too many for a launch's parameters."""
        kernels = [part.kernel for part in parts]
        return fits(kernels, len(shared_values(parts)), self._parameter_bytes)

    def join(self, parts: Sequence[CompiledKernel]) -> tuple[str, JoinedLaunch]:
        """The name and the launch of several kernels."""
        source = _joined(parts)
        return source.name, JoinedLaunch(source.workspace_bytes, grids_of(source))


def _joined(parts: Sequence[CompiledKernel]) -> KernelSource:
    """The launch of several kernels, over the addresses of all they use."""
    slot_of = {value: number for number, value in enumerate(shared_values(parts))}
    return joined(
        [FusedCall(part.kernel, tuple(slot_of[value] for value in part.values)) for part in parts]
    )
