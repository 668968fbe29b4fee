"""From LLVM IR text to machine code in this process; the properties of this machine.

`compile_ir` makes position-independent object code for the host, `Library` loads it, and
`ObjectCache` keeps it on disk between runs. LLVM itself is loaded by the first compilation only.

`target` is CPU and features as LLVM names them, vector width, caches and threads. They are kept in
the disk cache under the kernel's description of the processor, so that a warm start never imports
llvmlite.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import platform
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any

from ridgeline.atomic import Switch, at_fork
from ridgeline.codegen.caches import ObjectCache
from ridgeline.codegen.llvm import elf
from ridgeline.config import config
from ridgeline.loops.instructions import INSTRUCTIONS
from ridgeline.weak import fingerprint

_METH_FASTCALL = 0x80  # of CPython: how a function takes its arguments

__all__ = [
    "CompileError", "Library", "ObjectCache", "Target", "compile_cached", "compile_ir",
    "compile_optimized", "compiler_fingerprint", "compiling_for", "host", "target",
]  # fmt: skip

_PACKAGE = Path(__file__).parents[2]
_COMPILER_SOURCES = (
    "scalars.py", "fma.py", "float_errors.py", "values", "dtypes.py", "index", "graph", "ops",
    "loops", "schedules", "fusion", "codegen", "compiler", "runtime",
)  # fmt: skip
DOT_INTRINSICS = {
    "vdpbf16ps": "llvm.x86.avx512bf16.dpbf16ps",
    "vpdpbusd": "llvm.x86.avx512.vpdpbusd",
    "vpdpwssd": "llvm.x86.avx512.vpdpwssd",
}
CODE_MODELS = {"Windows": "large"}  # its objects have no table of distant addresses
_CPU_FOLDER = Path("/sys/devices/system/cpu")
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18  # ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
_AROUND = 8  # lines that an error shows before and behind the one in question
_FLOATS_USED = ctypes.c_int(0)  # a word that code for Windows refers to and nobody reads
_VECTOR_FEATURES = ((512, "avx512f"), (256, "avx2"), (128, "sse2"), (128, "neon"))


class CompileError(Exception):
    """LLVM refused some IR: a defect of the code generator, never of a user's program.

    The message shows the lines in question and their function; `text` has all of it.
    """

    def __init__(self, message: str, text: str) -> None:
        self.text = text
        lines = text.splitlines()
        place = re.search(r"<string>:(\d+)", message)
        at = int(place[1]) - 1 if place else 0
        heads = [number for number, line in enumerate(lines) if line.startswith("define")]
        head = max((number for number in heads if number <= at), default=min(heads, default=at))
        shown = [head, *range(max(head + 1, at - _AROUND), min(len(lines), at + _AROUND))]
        found = [lines[number] for number in shown if number < len(lines)]
        super().__init__("\n".join([message.strip(), *found]))


def compile_ir(text: str) -> bytes:
    """Object code for the host from LLVM IR text. Threads may call this at once."""
    with _COMPILE_LOCK:
        return _compile(text, _PASSES)


def compile_optimized(text: str) -> bytes:
    """`compile_cached` with more passes: for code of users, not for scheduled loops."""
    return compile_cached(text, _MORE_PASSES)


def _compile(text: str, names: Sequence[str]) -> bytes:
    """Compile, and drop every LLVM object under the lock: dropping calls into LLVM too."""
    import llvmlite.binding as llvm

    machine, options, preamble = _machine(target())
    # A context of its own: in the shared one, names and types of every module ever parsed stay.
    context = llvm.create_context()
    try:
        module = llvm.parse_assembly(preamble + text, context)
        module.verify()
    except RuntimeError as error:
        raise CompileError(str(error), preamble + text) from None
    with module:
        passes = llvm.create_new_module_pass_manager()
        for name in names:
            getattr(passes, f"add_{name}_pass")()
        passes.run(module, llvm.create_pass_builder(machine, options))
        code: bytes = machine.emit_object(module)
    return code


# The IR carries explicit vectors and places invariant code itself: what is left is to turn allocas
# into registers, and to tidy. More passes cost compile time and were measured to gain nothing.
_PASSES = ("always_inliner", "sroa", "instruction_combine", "simplify_cfg")
_MORE_PASSES = (
    "sroa", "instruction_combine", "simplify_cfg", "new_gvn", "loop_rotate", "loop_simplify",
    "lcssa", "sroa", "new_gvn", "instruction_combine", "dead_store_elimination", "simplify_cfg",
)  # fmt: skip
# One target machine serves all compilations, and a target machine is not thread-safe. A fork waits
# for a compilation under way: the child would find LLVM's locks taken by a thread it has not.
_COMPILE_LOCK = threading.Lock()
at_fork(
    before=_COMPILE_LOCK.acquire,
    after_in_parent=_COMPILE_LOCK.release,
    after_in_child=_COMPILE_LOCK.release,
)


@lru_cache(maxsize=8)
def _machine(made_for: Target) -> tuple[Any, Any, str]:
    """The code generator for a machine, and the lines that say what layout the IR is for."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # for instructions that IR has by their text alone
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=made_for.cpu, features=made_for.features, opt=3, reloc="pic",
        codemodel=CODE_MODELS.get(platform.system(), "small"),
    )  # fmt: skip
    layout = f'target datalayout = "{machine.target_data}"\ntarget triple = "{machine.triple}"\n'
    return machine, llvm.create_pipeline_tuning_options(speed_level=2), layout


atexit.register(_machine.cache_clear)  # while LLVM's library can still be called


def compile_cached(text: str, passes: Sequence[str] = ()) -> bytes:
    """As `compile_ir`, but the same text is compiled once per machine and compiler."""
    cache = ObjectCache("objects")
    made_by = fingerprint(Path(__file__).read_bytes())
    key = f"{_target_text()}\n{made_by}\n{' '.join(passes)}\n{text}"
    code = cache.get(key)
    if code is None:
        with _COMPILE_LOCK:
            code = _compile(text, passes or _PASSES)
        cache.put(key, code)
    return code


_LINKED = count()
_discarded: deque[elf.Mapped] = deque()  # code that nothing can call any more


def _unmap_discarded() -> None:
    while _discarded:
        try:
            gone = _discarded.popleft()
        except IndexError:  # another thread took it
            return
        elf.unmap(gone.base, gone.size)


class Library:
    """Loaded machine code: the addresses of its functions.

    A lasting one stays mapped until the process ends; another is unmapped when nothing refers to
    it and the next one is loaded, so whoever holds a bare address into it holds the library too, as
    the steps of plans do. What a finalizer calls is C code.
    """

    __slots__ = ("__del__", "__weakref__", "_symbols", "nbytes")
    __del__: Callable[[], object]

    def __init__(self, symbols: dict[str, int], nbytes: int = 0) -> None:
        self._symbols, self.nbytes = symbols, nbytes

    @classmethod
    def load(cls, object_code: bytes, lasting: bool = True) -> Library:
        """Map object code into the process. Names must be unique among all libraries."""
        if config.portable or not elf.is_loadable(object_code):
            return _LinkedLibrary.load(object_code)
        _unmap_discarded()
        mapped = elf.load(object_code)
        library = cls(mapped.symbols, mapped.size)
        if not lasting:
            library.__del__ = partial(_discarded.append, mapped)
        return library

    def address(self, symbol: str) -> int:
        """The address of a function the code defines; KeyError if it defines none so called."""
        return self._symbols[symbol]


class _LinkedLibrary(Library):
    """Code loaded by LLVM's linker, for good: of formats that the loader here does not read."""

    __slots__ = ("_name",)
    _name: str

    @classmethod
    def load(cls, object_code: bytes, lasting: bool = True) -> Library:
        import llvmlite.binding as llvm

        library = cls({}, len(object_code))
        library._name = f"ridgeline-{next(_LINKED)}"
        builder = llvm.JITLibraryBuilder().add_object_img(object_code).add_current_process()
        if sys.platform == "win32":  # what a linker would add to a program
            builder.import_symbol("_fltused", ctypes.addressof(_FLOATS_USED))
            probe = ctypes.cast(ctypes.windll.ntdll["__chkstk"], ctypes.c_void_p).value
            builder.import_symbol("__chkstk", probe)
        with _COMPILE_LOCK:
            _leak(builder.link(_linker(), library._name))
        return library

    def address(self, symbol: str) -> int:
        """The address of a function; what it calls is found here, or is an error."""
        with _COMPILE_LOCK:
            try:
                tracker = _linker().lookup(self._name, symbol)
            except RuntimeError as error:
                missing = f"[ {symbol} ]" in str(error) or f"[ _{symbol} ]" in str(error)
                raise (KeyError(symbol) if missing else elf.LoadError(str(error))) from None
            _leak(tracker)
            found: int = tracker[symbol]
            return found


@lru_cache(maxsize=1)
def _linker() -> Any:
    """LLVM's linker. It puts code and constants of an object side by side, within their reach."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    linker = llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)
    _leak(linker)
    return linker


def _leak(value: object) -> None:
    """Keep an object of LLVM's for good: threads run its code while the interpreter ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def compiler_fingerprint() -> str:
    """A hash of all that decides what code a graph becomes: compiler sources, LLVM, CPU."""
    return fingerprint(f"{_target_text()}{sources_fingerprint()}")


@lru_cache(maxsize=1)
def sources_fingerprint() -> str:
    """A hash of the compiler's own sources."""
    parts: list[bytes] = []
    root = f"{_PACKAGE}{os.sep}"
    for name in _COMPILER_SOURCES:
        files = [root + name]
        if not name.endswith(".py"):
            inside = [
                os.path.join(folder, n) for folder, _, names in os.walk(root + name) for n in names
            ]
            files = sorted([file for file in inside if file.endswith(".py")])
        for file in files:
            with open(file, "rb", buffering=0) as source:
                parts += (file[len(root) :].replace(os.sep, "/").encode(), source.read(), b"")
    return fingerprint(b"\0".join(parts))


def _target_text() -> str:
    return f"{toolchain()}\n{target().cpu}\n{target().features}"


@dataclass(frozen=True)
class Target:
    """The machine code is made for. Cache sizes are bytes; L3 is the whole shared cache."""

    cpu: str
    features: str
    vector_bits: int
    l1: int
    l2: int
    l3: int
    threads: int


class _Chosen(threading.local):
    machine: Target | None = None  # that code is made for in this thread, if not the host


_chosen = _Chosen()


def target() -> Target:
    """The machine that code is compiled for: this one, or that of `compiling_for`."""
    return _chosen.machine or host()


def compiling_for(machine: Target) -> Switch:
    """A block in which this thread compiles for another machine; such code is not loaded."""
    return Switch(_chosen, machine=machine)


@lru_cache(maxsize=1)
def host() -> Target:
    """The machine that this process runs on, detected once."""
    cpu, features = _cpu_and_features()
    if config.isa == "avx2":
        features = without_wide(features)
    elif "+amx-tile" in features and not _may_use_tiles():
        features = features.replace("+amx", "-amx")
    present = set(features.split(","))
    width = next((bits for bits, name in _VECTOR_FEATURES if f"+{name}" in present), 128)
    l1, l2, l3 = _cache_sizes()
    return Target(cpu, features, width, l1, l2, l3, usable_threads())


def has_instruction(name: str) -> bool:
    """True when the target has an instruction and it is emitted by name."""
    row = INSTRUCTIONS[name]
    by_name = name in DOT_INTRINSICS or row.rows > 1
    return by_name and f"+{row.feature}," in f"{target().features},"


def without_wide(features: str) -> str:
    """A CPU's features without those that came with or after 512-bit vectors."""
    later = ("+avx512", "+avx10", "+amx", "+evex512")
    return ",".join(f"-{f[1:]}" if f.startswith(later) else f for f in features.split(","))


def _may_use_tiles() -> bool:
    """Ask Linux for tile registers, which all threads of the process may use from then on."""
    if sys.platform != "linux":
        return False
    refused: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA)
    return not refused


@lru_cache(maxsize=1)
def toolchain() -> str:
    """The version of the code generator, as text for cache keys; does not load LLVM."""
    import llvmlite

    return f"llvmlite {llvmlite.__version__}"


def _cpu_and_features() -> tuple[str, str]:
    cache = ObjectCache("target")
    key = f"{toolchain()}\n{_processor_description()}"
    stored = cache.get(key)
    if stored is None:
        import llvmlite.binding as llvm

        stored = json.dumps(
            [llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
        ).encode()
        cache.put(key, stored)
    cpu, features = json.loads(stored)
    return cpu, features


def _processor_description() -> str:
    """What the kernel says of the processor's model and abilities, without what varies."""
    wanted = ("vendor", "cpu family", "model", "stepping", "flags", "features", "cpu part")
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        first = [platform.processor()]
    lines = [line for line in first if line.lower().startswith(wanted)]
    return f"{platform.machine()} {fingerprint(chr(10).join(lines))}"


def _cache_sizes() -> tuple[int, int, int]:
    """L1 data, L2 and L3 in bytes; common sizes where the system does not say."""
    sizes = {1: 32 << 10, 2: 512 << 10, 3: 8 << 20}
    for index in sorted(_CPU_FOLDER.glob("cpu0/cache/index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and text[:-1].isdigit() and text[-1:] in "KM":
            sizes[level] = int(text[:-1]) << (10 if text[-1] == "K" else 20)
    return sizes[1], sizes[2], sizes[3]


def usable_threads() -> int:
    """Cores (not hardware threads) in the affinity mask, no more than the container's quota."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    allowed = os.sched_getaffinity(0)
    cores: set[str] = set()
    for cpu in allowed:
        siblings = _CPU_FOLDER / f"cpu{cpu}/topology/thread_siblings_list"
        try:
            cores.add(siblings.read_text())
        except OSError:
            cores.add(str(cpu))
    quota = cgroup_quota(Path("/sys/fs/cgroup"), _cgroup_paths())
    return max(1, min(len(cores), int(quota) if quota is not None else len(cores)))


def _cgroup_paths() -> list[str]:
    """The control groups this process is in, for both generations of the interface."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    entries = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    return [path for _, names, path in entries if names == "" or "cpu" in names.split(",")]


def cgroup_quota(root: Path, paths: list[str]) -> float | None:
    """The tightest CPU limit, in cores, of these groups and all groups above them."""
    limits: list[float] = []
    for path in paths:
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            limits += _quota_of(root / folder) + _quota_of(root / "cpu" / folder)
    return min(limits, default=None)


def _quota_of(folder: Path) -> list[float]:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return []
    if not quota.isdigit() or not period.isdigit() or period == "0":  # "max", or -1: no limit
        return []
    return [int(quota) / int(period)]


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def python_function(name: str, address: int) -> Callable[..., Any]:
    """The function object over machine code that takes the arguments of METH_FASTCALL."""
    definition = _MethodDef(name.encode(), address, _METH_FASTCALL, None)
    # The function points into its definition and may outlive any name that holds it: leak it.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(definition))
    create = ctypes.pythonapi.PyCFunction_NewEx
    create.restype = ctypes.py_object
    create.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    made: Callable[..., Any] = create(ctypes.addressof(definition), None, None)
    return made
