"""Imports point downwards only: a module may use its own layer and the layers below it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ridgeline.codegen.llvm.machine_code import _COMPILER_SOURCES

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ridgeline"
sys.path.insert(0, str(ROOT / "tools"))

import house  # noqa: E402  (a tool, not a package)

# lowest first; those on one line may use one another, though no two each other
LAYERS = (
    "errors atomic float_errors weak files collector config devices dtypes scalars fma values",
    "index",
    "graph",
    "communicators",
    "ops",
    "graph.passes",
    "loops",
    "schedules",
    "fusion",
    "codegen",
    "compiler",
    "runtime",
    "record layouts torch_names module_paths reference",
    "functions",
    "execution",
    "sharding",
    "tensors",
    "tape",
    "settings",
    "tracing",
    "deploy",
    "autograd",
    "interop",
    "kernel",
    "random fft linalg masked signal sparse special array_api cuda backends "
    "multiprocessing profiler absent_devices low_rank types",
    "nn distributions",
    "optim data serialization func fx compiling accelerator onnx",
    "amp cpu hub utils version testing",
    "vision",
    "torch_backend",
    "as_torch standins",
    "models learn",
    "distributed",
    "profile",
    "simt",
    "planner",
    "train",
    "cli",
)
# What `import ridgeline` does not load, since it takes long or few programs need it. An import
# inside a function is for that alone: all others are at the top of their modules.
LATE = (
    "llvmlite",  # when the first program is compiled that no cache holds
    "cuda.bindings", "ridgeline.codegen.cuda", "ridgeline.runtime.cuda",  # where there is a GPU
    # when known calls are matched for the first time
    "ridgeline.codegen.cpython", "ridgeline.tape.native_check", "ridgeline.tape.native_code",
    "ridgeline.compiler.budget",  # for `jit(memory=)`
    "ridgeline.compiler.explain", "ridgeline.compiler.show",  # for who wants to read programs
    "ridgeline.tracing.bisect",  # for who seeks a fault
    "ridgeline.tracing.profiles",  # for who measures
    "ridgeline.runtime.cpu.symbolic",  # for `jit(dynamic=)`
    "ridgeline.deploy",  # for `export` and `load_program`
    "ridgeline.kernel",  # for `rl.loops`
    "rich", "ridgeline.profile", "ridgeline.planner", "ridgeline.train",  # verbs of the command
    "ridgeline.simt",  # for who writes kernels
    "difflib",  # when a name is missing
    "mpi4py", "ridgeline.distributed",  # for who has several ranks
    # for who reads or writes ONNX files
    "onnx", "ridgeline.onnx.model", "ridgeline.onnx.module", "ridgeline.onnx.writing",
    "ridgeline.as_torch",  # takes the name of torch
    "torch", "ridgeline.torch_backend",  # for who compiles programs of torch's
    "pydoc_data",  # a text to train on
    "ridgeline.tensors.display",  # when a tensor is printed
)  # fmt: skip
RANK = {name: rank for rank, line in enumerate(LAYERS) for name in line.split()}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def layer(parts: Sequence[str]) -> str:
    """The layer of a module by the parts of its name; a folder in a folder may have its own."""
    inner = ".".join(parts[:2])
    return inner if inner in RANK else parts[0]


def imported_layers(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            package, *parts = name.split(".")
            if package == "ridgeline" and parts and parts[0] in RANK:
                yield layer(parts)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    own = layer(path.relative_to(PACKAGE).with_suffix("").parts)
    if own in ("__init__", "__main__"):
        return
    assert own in RANK, f"{own} has no layer: add it to LAYERS and to ARCHITECTURE.md"
    for other in imported_layers(path):
        assert RANK[other] <= RANK[own], f"{own} is below {other} and may not import it"


def test_programs_on_disk_are_known_by_all_that_decides_them() -> None:
    compiler = LAYERS[: RANK["runtime"] + 1]
    names = {name.split(".")[0] for line in compiler for name in line.split()}
    aside = {"errors", "atomic", "weak", "files", "collector", "config", "devices", "communicators"}
    assert {name.removesuffix(".py") for name in _COMPILER_SOURCES} == names - aside


def test_there_is_no_cycle_of_imports() -> None:
    assert list(house.cycles(PACKAGE)) == []


# Classes of one name that are public under several namespaces: those of torch and its fx, of
# torchvision beside our own models and transforms of batches, a namespace over the runtime, and
# the steps of two trades.
SHARED_NAMES = {
    "BasicBlock", "Bottleneck", "Buffer", "CenterCrop", "ColorJitter", "Compose", "ConvNeXt",
    "Event", "GradScaler", "Graph", "ImageFolder", "Node", "Normalize", "Pad", "RandomCrop",
    "RandomErasing", "RandomHorizontalFlip", "RandomResizedCrop", "RandomVerticalFlip", "ResNet",
    "Resize", "Step", "Stream", "SummaryWriter", "ToTensor", "Transform", "Transformer", "VGG",
    "Variable", "device",
}  # fmt: skip


def test_a_name_of_a_class_is_one_class() -> None:
    """All but the words of the tape and of exported programs, which both folders have their own."""
    found: dict[str, list[str]] = {}
    for path in modules():
        own = path.relative_to(PACKAGE).parts[0] in ("tape", "deploy")
        for node in [] if own else ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    several = {name: where for name, where in found.items() if len(where) > 1}
    assert {n: w for n, w in several.items() if n not in SHARED_NAMES} == {}


# what is no folder of the package: modules outside folders, the way to a GPU over several folders,
# searches, documents
OWN_FOLDERS = {"attacks", "benchmarks", "cuda", "docs", "examples", "fuzz", "ground", "names"}


def test_tests_are_in_the_folders_of_the_package() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    found = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")}
    assert found - folders - OWN_FOLDERS == set()


def test_no_layer_is_above_and_below_another() -> None:
    uses = {
        (layer(path.relative_to(PACKAGE).with_suffix("").parts), other)
        for path in modules()
        if path.parent != PACKAGE or path.stem not in ("__init__", "__main__")
        for other in imported_layers(path)
    }
    assert not [(own, other) for own, other in uses if own < other and (other, own) in uses]


def late_imports(path: Path) -> Iterator[str]:
    """What a module imports inside functions."""
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    yield from (alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    yield str(node.module)


def is_late(name: str) -> bool:
    return any(name == late or name.startswith(f"{late}.") for late in LATE)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_inside_functions_are_for_start_up_time(path: Path) -> None:
    for name in late_imports(path):
        assert is_late(name), f"{name} is loaded in any case: import it at the top"


def test_what_is_late_is_not_loaded_at_start() -> None:
    program = "import ridgeline, sys; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert not [name for name in loaded.split() if is_late(name)]


def test_a_product_passes_through_few_files() -> None:
    """What `(a @ b).numpy()` enters with a cold cache is what a reader has to follow."""
    files, functions = house.entered_by_a_product(PACKAGE.parent)
    assert 40 < len(files) < 80
    assert functions <= 750
