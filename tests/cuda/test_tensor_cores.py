"""Products on Hopper's tensor cores: their loops, whose they are, what is fused, and their code.

Without a GPU: programs run on one that is not there, where the loop interpreter is the meaning of a
kernel; the texts are compiled, and run thread by thread by `test_hopper_emulated.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.codegen.cuda import generate
from ridgeline.codegen.cuda.cubin import kernel_resources
from ridgeline.compiler.memory_plan import KernelCall
from ridgeline.loops import ir
from ridgeline.loops.ir import Kernel, named
from ridgeline.loops.schedule import ScheduleError, from_json, replay, to_json
from ridgeline.loops.tensor_cores import TensorCoreTile, product_nest, tile_around
from ridgeline.runtime.cuda import cublaslt
from ridgeline.runtime.cuda.launches import KernelLaunch
from ridgeline.schedules.gpu import tensor_cores
from ridgeline.schedules.gpu.machine import A100, H200
from ridgeline.schedules.gpu.tensor_cores import ProductSize, best, library_seconds
from tests.cuda.tiled import TILE, lowered

from .fake_code import FakeCode
from .fake_libraries import FakeCublasLt, Launches

F = rl.nn.functional
RNG = np.random.default_rng(0)
Function = Callable[..., Any]


# ---- tiles and nests -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tile",
    [TILE, TensorCoreTile(64, 256, 5, in_turns=True),
     TensorCoreTile(256, 128, 4, 2, 60, 16, 7, 3)],
)  # fmt: skip
def test_a_tile_is_the_name_of_an_instruction(tile: TensorCoreTile) -> None:
    assert TensorCoreTile.of(tile.text) == tile
    assert TensorCoreTile.of("fma") is None


def test_a_schedule_is_kept_as_data() -> None:
    group = lowered((300, 136), (200, 136))
    steps = tensor_cores.with_tile(group, TILE)
    kernel = replay(group.kernel, from_json(to_json(steps)))
    found = tile_around(kernel.body)
    assert found is not None
    tile, nest = found
    assert tile == TILE
    assert (nest.row_count, nest.columns, nest.depth) == (300, 200, 136)
    assert not nest.left.turned and not nest.right.turned


def test_operands_may_lie_in_any_order() -> None:
    for left, right in (("mk", "nk"), ("km", "nk"), ("mk", "kn"), ("km", "kn")):
        sizes = {"m": 136, "n": 200, "k": 72}
        group = lowered(*(tuple(sizes[a] for a in axes) for axes in (left, right)), left, right)
        found = tile_around(replay(group.kernel, tensor_cores.steps(group, H200)).body)
        assert found is not None
        nest = found[1]
        assert (nest.left.turned, nest.right.turned) == (left == "km", right == "kn")


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        ((300, 70), (200, 70), "do not begin at multiples of 16 bytes"),
        ((70, 300), (70, 201), "do not begin at multiples of 16 bytes"),
    ],
)
def test_what_the_copy_engine_does_not_read_is_refused(left: Any, right: Any, reason: str) -> None:
    axes = ("mk", "nk") if left[1] == right[1] else ("km", "kn")
    with pytest.raises(ScheduleError, match=reason):
        tensor_cores.steps(lowered(left, right, *axes), H200)


def test_loops_that_are_no_product_are_refused() -> None:
    group = lowered((300, 136), (200, 136))
    assert isinstance(product_nest(group.kernel.body), str)
    step = {"step": "tensorize", "axis": "m", "instruction": TILE.text}
    with pytest.raises(ScheduleError):
        replay(group.kernel, from_json([step]))


# ---- whose a product is --------------------------------------------------------------------------


def test_products_that_come_out_badly_are_the_librarys() -> None:
    """Few rows leave most of a GPU idle; large products are ours."""
    few = ProductSize(32, 4096, 4096, 1, 2, 2)
    assert best(few, H200)[0] > library_seconds(few)
    large = ProductSize(8192, 4096, 14336, 1, 2, 2)
    assert best(large, H200)[0] < library_seconds(large)


def test_a_tile_is_cut_only_where_tiles_do_not_come_out_even() -> None:
    even = ProductSize(128 * 132, 256, 8192, 1, 2, 2)
    assert not list(tensor_cores.cuts(TensorCoreTile(128, 256, 4), even))
    odd = ProductSize(768, 768, 32768, 1, 2, 2)
    cut = best(odd, H200)[1]
    assert cut.cut == odd.tiles(cut) and 2 <= cut.parts <= 16


def test_only_hopper_has_the_instructions() -> None:
    group = lowered((300, 136), (200, 136))
    assert tensor_cores.is_wanted(group, H200) and not tensor_cores.is_wanted(group, A100)


# ---- programs ------------------------------------------------------------------------------------


@pytest.fixture
def products(fake_code: FakeCode, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launches]:
    """A GPU that is not there, with a cuBLASLt; what that was asked for."""
    made = FakeCublasLt(Launches(), fake_code.driver)
    monkeypatch.setattr(cublaslt, "library", lambda: made)
    monkeypatch.setattr(tensor_cores, "_LEAST_PRODUCTS", 1 << 15)  # interpreted loops take long
    with rl.config.override(products="own"):
        yield made.launches


def compared(
    function: Function, shapes: list[tuple[int, ...]], dtype: rl.DType = rl.bfloat16
) -> Any:
    """The program on the GPU, whose results are those of the same function on the CPU."""
    arrays = [(RNG.standard_normal(s) * s[-1] ** -0.5).astype(np.float32) for s in shapes]
    wanted = rl.jit(function)(*(rl.tensor(a).to(dtype) for a in arrays))
    jitted = rl.jit(function)
    got = jitted(*(rl.tensor(a, device="cuda:0").to(dtype) for a in arrays))
    for g, w in zip(*(r if isinstance(r, (list, tuple)) else [r] for r in (got, wanted))):
        ours, truth = (t.detach().cpu().float().numpy() for t in (g, w))
        np.testing.assert_allclose(ours, truth, atol=2e-2 * np.abs(truth).max())
        assert np.linalg.norm(ours - truth) <= 2e-3 * np.linalg.norm(truth)
    return jitted


def kernels(jitted: Any) -> tuple[int, int]:
    """How many kernels a program has, and how many of them are products in tiles."""
    (program,) = (trace.executable.program for trace in jitted._traces)
    calls = [call for call in program.layout.calls if isinstance(call, KernelCall)]
    tiled = [
        call
        for call in calls
        if isinstance(call.launch, KernelLaunch) and any(g.maps for g in call.launch.grids)
    ]
    return len(calls), len(tiled)


def mlp(x: Any, w: Any, b: Any, v: Any, c: Any, ct: Any) -> list[Any]:
    """Two layers with a GELU and a residual, forward and backward."""
    x, w, b, v = [t.detach().requires_grad_() for t in (x, w, b, v)]
    y = F.linear(F.gelu(F.linear(x, w, b)), v, c) + x
    return [y, *rl.autograd.grad(y, [x, w, b, v], ct)]


def test_layers_take_what_follows_them(products: Launches) -> None:
    """Six products with all pointwise work in them, and the sum that a bias's gradient is."""
    wide = (2, 24, 48)
    jitted = compared(mlp, [wide, (64, 48), (64,), (48, 64), (48,), wide])
    assert kernels(jitted) == (7, 6)
    assert not products.lines


CASES: dict[str, tuple[Function, list[tuple[int, ...]]]] = {
    "two results": (
        lambda a, w: [(y := F.linear(a, w)), y.float().sin(), y > 0.5], [(50, 40), (72, 40)]
    ),
    "a float32 result": (lambda a, b: a.float().T @ b.float(), [(64, 40), (64, 56)]),
    "heads beside one another": (
        lambda x: (
            x[:, :, :64].reshape(2, 40, 2, 32).transpose(1, 2)
            @ x[:, :, 64:128].reshape(2, 40, 2, 32).permute(0, 2, 3, 1)
        ) * 0.125,
        [(2, 40, 192)],
    ),
    "a column for every row": (
        lambda a, w, r: F.linear(a, w) * r, [(2, 24, 40), (72, 40), (2, 24, 1)]
    ),
    "a residual for every batch": (
        lambda a, w, r: F.linear(a, w) + r, [(4, 16, 40), (72, 40), (16, 72)]
    ),
    "odd columns": (lambda a, w, b: F.linear(a, w, b).relu(), [(40, 48), (73, 48), (73,)]),
    "with itself": (lambda a: a @ a.T, [(56, 40)]),
    "to another order": (
        lambda a, b: rl.einsum("bmk,bkn->mbn", a, b), [(4, 24, 40), (4, 40, 56)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [rl.bfloat16, rl.float16], ids=lambda d: d.name)
def test_forms(products: Launches, name: str, dtype: rl.DType) -> None:
    function, shapes = CASES[name]
    jitted = compared(function, shapes, dtype)
    assert kernels(jitted)[1] == 1 and not products.lines


def test_work_that_no_tile_takes_stays_a_kernel_of_its_own(products: Launches) -> None:
    """Rows that would no longer lie one after the other, and another product."""
    jitted = compared(
        lambda a, w, v: [F.linear(F.softmax(F.linear(a, w), -1), v)],
        [(48, 40), (72, 40), (56, 72)],
    )
    assert kernels(jitted)[1] == 2


def test_the_library_on_request(products: Launches) -> None:
    with rl.config.override(products="library"):
        compared(lambda a, w: F.linear(a, w).relu(), [(48, 40), (72, 40)])
    assert len(products.lines) == 1


def test_updates_in_place(products: Launches) -> None:
    """A result over the memory of a residual, as a training loop's state has it."""
    state, wanted = (
        rl.tensor(np.ones((48, 72), np.float32), device=d).bfloat16() for d in ("cuda:0", "cpu")
    )
    # small whole numbers, whose sums are exact
    a, w = (rl.tensor(RNG.integers(-1, 2, s).astype(np.float32)) for s in ((48, 40), (72, 40)))

    def step(state: Any, a: Any, w: Any) -> None:
        state.add_(F.linear(a, w))

    for target in (state, wanted):
        operands = [t.to(target.device).bfloat16() for t in (a, w)]
        run = rl.jit(step)
        for _ in range(3):
            run(target, *operands)
    np.testing.assert_array_equal(state.cpu().float().numpy(), wanted.float().numpy())


# ---- code ----------------------------------------------------------------------------------------


def tiled_kernel(tile: TensorCoreTile, **how: Any) -> Kernel:
    group = lowered((384, 264), (520, 264), **how)
    return named(replay(group.kernel, tensor_cores.with_tile(group, tile)))


COMPILED = {
    "plain": (TILE, {}),
    "in turns": (TensorCoreTile(128, 128, 6, in_turns=True), {"residual": True}),
    "wide": (TensorCoreTile(128, 256, 4), {"residual": True}),
    "clusters": (TensorCoreTile(128, 128, 6, 2), {}),
    "cut": (TensorCoreTile(128, 128, 6, cut=15, parts=2), {"wide": True}),
    "few rows": (TensorCoreTile(64, 64, 8), {}),
    "a long end": (TensorCoreTile(128, 128, 6, in_turns=True), {"residual": True, "curved": True}),
}


@pytest.mark.parametrize("name", COMPILED)
def test_code_keeps_its_registers_and_overlaps(name: str) -> None:
    """No spills, and none of the compiler's remarks that it had to put products one by one."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    tile, how = COMPILED[name]
    source = generate(tiled_kernel(tile, **how))
    _, program = nvrtc.nvrtcCreateProgram(source.text.encode(), b"product.cu", 0, [], [])
    options = [b"--std=c++17", b"--fmad=false", b"--gpu-architecture=sm_90a"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytearray(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
    assert b"C75" not in log, log.decode()
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    image = bytearray(size)
    nvrtc.nvrtcGetCUBIN(program, image)
    nvrtc.nvrtcDestroyProgram(program)
    for launch in source.launches:
        assert kernel_resources(bytes(image), launch.symbol, 90).local_bytes == 0
        assert launch.shared_bytes <= H200.shared_bytes
    assert b"wgmma" in source.text.encode() and len(source.launches[-1].maps) == 2


def test_a_kernel_is_named_by_its_tile() -> None:
    names = {tiled_kernel(tile).name for tile in (TILE, replace(TILE, stages=4), TILE)}
    assert len(names) == 2


def test_loops_stay_the_meaning() -> None:
    """A target that does not know the tile runs the loops inside it."""
    kernel = tiled_kernel(TILE)
    assert isinstance(kernel.body, ir.Mma) and isinstance(kernel.body.body, ir.For)
