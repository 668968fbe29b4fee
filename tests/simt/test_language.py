"""The kernel language: what it computes, by Python and NumPy, and what it refuses, and where."""

import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest

from ridgeline import simt
from ridgeline.simt import bf16, const, f16, f32, i8, i32, i64, inout, out, threadIdx, u8, u32
from ridgeline.simt.frontend.problems import KernelLanguageError
from ridgeline.simt.launch import LaunchError
from ridgeline.simt.model.gpu_facts import gpu_named

ROOT = Path(__file__).parents[2]
REFUSED = [
    ("    a[0] = [1, 2]", "a list", "simt.local"),
    ("    r[0] = 1", "read only", "inout"),
    ("    a[0] = 1.5", "1.5 is no i32", "write 1"),
    ("    a[0] = a[0] + u", "differ in sign", "i32"),
    ("    a[-1] = 0", "negative", "a.shape[0] - 1"),
    ("    synctreads()", "not defined", "syncthreads"),
    ("    try:\n        pass\n    except: pass", "try", "assert"),
    ("    b = shared(a.shape[0], f32)", "must be known", "const parameters"),
    ("    simt.wgmma(1)", "wgmma", "wmma"),
    ("    if a[0] > 0:\n        x = 1\n    a[1] = x", "may have no value", "before the branch"),
    ("    for i in range(4):\n        i += 1", "variable of the loop", "while"),
    ("    for i in range(4):\n        pass\n    a[0] = i", "loop that has ended", ""),
    ("    x = 0\n    x = x + f", "would be cut off", "i32(…)"),
    ("    a[0, 1] = 1", "indexed by 2", "(n)"),
    ("    a[threadIdx.w] = 1", "has no w", "x, y and z"),
    ("    return 1", "returns no value", "out"),
    ("    a[0] = sorted(a)", "sorted", "sorting network"),
    ("    x = lambda: 3", "lambda", "@simt.device"),
    ("    a[0] = a[1.5]", "an index is an integer", "i32"),
    ("    a[0] = missing", "not defined", ""),
    ("    a[0] = i32(popcount(u))", "not defined", ""),
    ("    x = a\n    x = a[0]", "", ""),
    ("    simt.shfl(u, 3, width=5)", "power of two", ""),
    ("    simt.atomic_add(a, 0, 1, scope='warp')", "is no scope", "block"),
    ("    a[0] = f", "would be cut off", "i32(…)"),
    ("    import os", "import", "top of the file"),
    ("    print(f'{f:.3f}')", "as they are", "leave the format out"),
    ("    assert u > 0, f'{u}'", "f-string", "print"),
    ("    s = 0\n    s += f", "would be cut off", "begin with s = f32(…)"),
    ("    s = f\n    s = f64(s)", "does not hold every f64", "begin with s = f64(…)"),
    ("    a[0] = np.sin(f)", "sin is no function", "simt.sin"),
    ("    t = np.zeros(4)", "zeros is no function", "simt.local"),
    (
        "    for k in range(3):\n        for k in range(2):\n            pass\n        a[k] = 2",
        "k is the variable of a loop that has ended",
        "keep what",
    ),
    ("    printf('%d', u)", "printf is not defined", "print"),
    ("    a[0] = fmaxf(f, 1.0)", "fmaxf is not defined", "max"),
    ("    f = __expf(2.0)", "__expf is not defined", "fast_exp"),
    ("    f = sqrtf(2.0)", "sqrtf is not defined", "sqrt"),
    ("    atomicAdd_block(a, 0, 1)", "not defined", 'scope="block"'),
    ("    v = __shfl_down_sync(0xffffffff, u, 16)", "not defined", "shfl_down"),
    ("    i = cuda.grid(1)", "cuda is not defined", "simt.grid(1)"),
    ("    i = tl.program_id(0)", "tl is not defined", "@tile.kernel"),
    ("    f = math.sin(2.0)", "math is not defined", "import math"),
    ("    x = int32_t(3)", "int32_t is not defined", "i32"),
    ("    a[threadIdx] = 1", "threadIdx is no number", "threadIdx.x"),
    ("    a[u / 2] = 1", "an index is an integer", "//"),
    ("    a[0] = a[1] / 2", "would be cut off", "//"),
    ("    assert round(f, 2) > 0", "round takes one value", "* 100.0"),
    ("    assert max(f, u, key=abs) > 0", "no named arguments", ""),
]


@pytest.mark.parametrize("body, message, help", REFUSED)
def test_what_is_refused_says_where_and_what_instead(body: str, message: str, help: str) -> None:
    text = f"import numpy as np\ndef k(a: inout[i32['n']], r: i32['n'], u: u32, f: f32):\n{body}"
    with pytest.raises(KernelLanguageError) as caught:
        simt.kernel(text)
    assert message in caught.value.message
    assert help in caught.value.help
    assert 3 <= caught.value.place.line <= text.count("\n") + 1
    assert caught.value.place.column > 1


def test_a_name_of_the_language_that_was_not_imported_says_where_it_is_from() -> None:
    def forgetful(a: i32["n"]):
        assert bitcast(a[0], f32) > 0

    with pytest.raises(KernelLanguageError, match="not imported") as caught:
        simt.kernel(forgetful)
    assert "from ridgeline.simt import bitcast" in caught.value.help
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert len(frames) == 2, "the user's line, and the decorator"


def test_errors_go_from_process_to_process() -> None:
    with pytest.raises(KernelLanguageError) as caught:
        simt.kernel("def k(a: i32['n']):\n    a[0] = missing")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is KernelLanguageError
    assert str(again) == str(caught.value)
    assert again.place == caught.value.place


def test_one_of_two_numbers_is_of_the_type_it_is_stored_in() -> None:
    @simt.kernel
    def chosen(a: i32["n"], b: out[u8["n"]], h: out[f16["n"]]):
        b[threadIdx.x] = 1 if a[threadIdx.x] > 1 else 255
        h[threadIdx.x] = 0.5 if a[threadIdx.x] > 1 else 2.0

    found = chosen.simulate(1, 4, np.arange(4, dtype=np.int32)).outputs
    assert found["b"].tolist() == [255, 255, 1, 1]
    assert found["h"].tolist() == [2.0, 2.0, 0.5, 0.5]
    with pytest.raises(KernelLanguageError, match="256 does not fit u8"):
        simt.kernel("def k(a: inout[u8['n']]):\n    a[0] = 1 if a[1] else 256")


def test_a_star_brings_the_language_and_leaves_pythons_names() -> None:
    names: dict[str, object] = {}
    exec("from ridgeline.simt import *", names)
    assert names["shared"] is simt.shared
    assert names["f32"] is simt.f32
    assert "any" not in names
    assert simt.any is not any


@simt.kernel
def divisions(a: i32["n"], b: i32["n"], q: out[i32["n"]], r: out[i32["n"]], w: out[i32["n"]]):
    i = threadIdx.x
    q[i] = a[i] // b[i]
    r[i] = a[i] % b[i]
    w[i] = a[i] * 65537 + 2147483647


@simt.kernel
def loops_of_one_name(y: inout[i32["n"]]):
    n = 0
    for i in range(3):
        y[i] = i
        for i in range(2):
            n += i
        for _ in range(2):
            for _ in simt.unroll(4):
                n += 10
    y[5] = n


def test_loops_in_loops_may_have_the_same_variable() -> None:
    y = np.zeros(6, np.int32)
    assert loops_of_one_name.simulate(1, 1, y).outputs["y"].tolist() == [0, 1, 2, 0, 0, 243]
    loops_of_one_name[1, 1](y)
    assert y.tolist() == [0, 1, 2, 0, 0, 243]


def test_integers_divide_as_python_does_and_wrap() -> None:
    a = np.array([7, -7, 7, -7, 0, -1, 2**31 - 1, -(2**31)], np.int32)
    b = np.array([3, 3, -3, -3, 5, 2**31 - 1, -1, 2], np.int32)
    found = divisions.simulate(1, 8, a, b).outputs
    assert found["q"].tolist() == [int(x) // int(y) for x, y in zip(a, b)]
    assert found["r"].tolist() == [int(x) % int(y) for x, y in zip(a, b)]
    wrapped = [(int(x) * 65537 + 2147483647 + 2**31) % 2**32 - 2**31 for x in a]
    assert found["w"].tolist() == wrapped


@simt.kernel
def conversions(
    x: f32["n"], h: out[f16["n"]], b: out[bf16["n"]], s: out[i8["n"]], u: out[u8["n"]],
    wide: out[i64["n"]], bits: out[u32["n"]],
):  # fmt: skip
    i = threadIdx.x
    h[i] = f16(x[i]) * 2
    b[i] = bf16(x[i])
    s[i] = i8(i32(x[i]))
    u[i] = u8(i32(x[i]))
    wide[i] = i64(i32(x[i])) << 33
    bits[i] = simt.bitcast(x[i], u32)


def test_conversions_by_name() -> None:
    x = np.array([1.5, -3.25, 300.7, -129.0], np.float32)
    found = conversions.simulate(1, 4, x).outputs
    whole = x.astype(np.int32)
    assert (found["h"] == (x.astype(np.float16) * np.float16(2))).all()
    assert (found["b"].astype(np.float32) == x.astype(found["b"].dtype).astype(np.float32)).all()
    assert (found["s"] == whole.astype(np.int8)).all()
    assert (found["u"] == whole.astype(np.uint8)).all()
    assert (found["wide"] == whole.astype(np.int64) << 33).all()
    assert (found["bits"] == x.view(np.uint32)).all()


@simt.device
def first_above(a, limit: f32):
    for i in range(a.shape[0]):
        if a[i] > limit:
            return i, a[i]
    return -1, 0.0


@simt.kernel
def searches(a: f32["n"], limits: f32["m"], places: out[i32["m"]], values: out[f32["m"]]):
    place, value = first_above(a, limits[threadIdx.x])
    places[threadIdx.x] = place
    values[threadIdx.x] = value


def test_device_functions_return_from_loops() -> None:
    a = np.array([0.5, 2.0, 1.0, 7.0], np.float32)
    limits = np.array([0.0, 1.0, 5.0, 9.0], np.float32)
    found = searches.simulate(1, 4, a, limits).outputs
    assert found["places"].tolist() == [0, 1, 3, -1]
    assert found["values"].tolist() == [0.5, 2.0, 7.0, 0.0]


@simt.kernel
def bits(x: u32["n"], y: out[i32["n"]]):
    i = threadIdx.x
    y[i] = simt.popc(x[i]) * 10000 + simt.clz(x[i]) * 100 + simt.ffs(x[i])


def test_bits() -> None:
    x = np.array([0, 1, 0x80000000, 0xFFFFFFFF, 0x00F0], np.uint32)

    def expected(v: int) -> int:
        lowest = (v & -v).bit_length()
        return bin(v).count("1") * 10000 + (32 - v.bit_length()) * 100 + lowest

    assert bits.simulate(1, 5, x).outputs["y"].tolist() == [expected(int(v)) for v in x]


def test_constants_from_outside_are_guarded_by_value() -> None:
    factor = 3

    @simt.kernel
    def scaled(y: out[i32["n"]]):
        y[threadIdx.x] = threadIdx.x * factor

    assert scaled.simulate(1, 2, n=2).outputs["y"].tolist() == [0, 3]
    factor = 5
    assert scaled.simulate(1, 2, n=2).outputs["y"].tolist() == [0, 5]


T = simt.typevar("T", f32, i32)


@simt.kernel
def doubled(x: T["n"], y: out[T["n"]], K: const = 2):
    y[threadIdx.x] = x[threadIdx.x] * K


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_templates_take_the_type_of_their_arguments(kind: type) -> None:
    found = doubled.simulate(1, 4, np.arange(4, dtype=kind)).outputs["y"]
    assert found.dtype == kind and found.tolist() == [0, 2, 4, 6]
    with pytest.raises(LaunchError, match="one of"):
        doubled.simulate(1, 4, np.arange(4, dtype=np.float64))


@pytest.mark.parametrize(
    "grid, block, message",
    [
        (3.9, 256, "whole numbers"),
        (1, 2048, "at most 1024"),
        (0, 32, "size of 0"),
        (1, (8, 8, 8, 2), "three"),
    ],
)
def test_launches_that_no_gpu_takes(grid: object, block: object, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        doubled.simulate(grid, block, np.zeros(4, np.int32))


TALKATIVE = """
import numpy as np
from ridgeline import simt
from ridgeline.simt import i32, threadIdx

@simt.kernel
def talkative(x: i32["n"]):
    mine = x[threadIdx.x] * 2
    if threadIdx.x < 2:
        print("thread", threadIdx.x, f"has {mine}")
    if threadIdx.x == 3:
        breakpoint()

print(talkative.simulate(1, 4, np.array([5, 6, 7, 8], np.int32)).printed)
"""


def test_print_and_breakpoint(tmp_path: Path) -> None:
    (tmp_path / "talkative.py").write_text(TALKATIVE)
    command = [sys.executable, str(tmp_path / "talkative.py")]
    commands = "p x[3], mine\np thread\nc\n"
    ended = subprocess.run(command, input=commands, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    assert "('thread 0 has 10', 'thread 1 has 12')" in ended.stdout
    assert "talkative.py(12)" in ended.stdout  # the user's own line
    assert "16" in ended.stdout and "block=(0, 0, 0), thread=(3, 0, 0)" in ended.stdout


def test_steps_go_from_line_to_line_of_one_thread(tmp_path: Path) -> None:
    more = "        breakpoint()\n        mine = 99\n        mine += 1"
    text = TALKATIVE.replace("        breakpoint()", more)
    (tmp_path / "talkative.py").write_text(text)
    command = [sys.executable, str(tmp_path / "talkative.py")]
    commands = "n\nn\np mine, lanes\nc\n"
    ended = subprocess.run(command, input=commands, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    lines = [f"talkative.py({line})" in ended.stdout for line in (12, 13, 14)]
    assert all(lines) and "(np.int32(99), [3])" in ended.stdout


class History:
    """readline's, with some lines."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines

    def get_current_history_length(self) -> int:
        return len(self.lines)

    def get_history_item(self, place: int) -> str:
        return self.lines[place - 1]


def test_a_kernel_typed_at_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def typed(y: out[i32['n']]):\n    y[threadIdx.x] = threadIdx.x + 3"
    scope = {"out": out, "i32": i32, "threadIdx": threadIdx}
    exec(compile(text, "<stdin>", "exec"), scope)
    other = text.replace("+ 3", "+ 4")
    lines = (*text.split("\n"), "", *other.split("\n"), "", "print(1)")
    monkeypatch.setitem(sys.modules, "readline", History(*lines))
    assert simt.kernel(scope["typed"]).simulate(1, 2, n=2).outputs["y"].tolist() == [3, 4]
    monkeypatch.setitem(sys.modules, "readline", History(*other.split("\n")))
    with pytest.raises(ValueError, match="the source of typed is not to be found"):
        simt.kernel(scope["typed"])


def test_a_kernel_of_text_and_one_that_is_called() -> None:
    kernel = simt.kernel("def k(y: out[i32['n']]):\n    y[threadIdx.x] = lane\n")
    assert kernel.simulate(1, 3, n=3).outputs["y"].tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="how many threads"):
        kernel(1)


def test_kernels_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(divisions)) is divisions


def test_a_gpu_is_found_by_its_name_however_it_is_written() -> None:
    for name in ("rtx4090", "RTX 4090", "rtx-4090", "h100_sxm", "a100 80gb"):
        assert gpu_named(name)
    assert gpu_named("rtx4090").name == "RTX 4090"
    with pytest.raises(LaunchError, match="no GPU"):
        gpu_named("h1000")
