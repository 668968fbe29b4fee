"""From LLVM IR text to machine code in this process.

`compile_ir` makes position-independent object code for the host, `Library` loads it, and
`ObjectCache` keeps it on disk between runs. LLVM itself is loaded by the first compilation only.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ridgeline.codegen.disk_cache import ObjectCache
from ridgeline.codegen.llvm import elf
from ridgeline.codegen.llvm.target import Target, target, toolchain

__all__ = [
    "CompileError",
    "Library",
    "ObjectCache",
    "Target",
    "compile_cached",
    "compile_ir",
    "compiler_fingerprint",
    "target",
]

_PACKAGE = Path(__file__).parents[2]
_COMPILER_SOURCES = (
    "scalars.py", "values", "dtypes.py", "loops", "schedules", "fusion", "codegen", "graph", "ops",
    "compiler",
)  # fmt: skip


class CompileError(Exception):
    """LLVM refused some IR: a defect of the code generator, never of a user's program."""


def compile_ir(text: str) -> bytes:
    """Object code for the host from LLVM IR text. Threads may call this at once."""
    with _COMPILE_LOCK:
        return _compile(text)


def _compile(text: str) -> bytes:
    """Compile, and drop every LLVM object before the lock is: dropping calls into LLVM too."""
    import llvmlite.binding as llvm

    machine, options, preamble = _machine()
    # A context of its own: in the shared one, names and types of every module ever parsed stay.
    context = llvm.create_context()
    try:
        module = llvm.parse_assembly(preamble + text, context)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"{error}\n{preamble}{text}") from None
    with module:
        passes = llvm.create_new_module_pass_manager()
        for name in _PASSES:
            getattr(passes, f"add_{name}_pass")()
        passes.run(module, llvm.create_pass_builder(machine, options))
        code: bytes = machine.emit_object(module)
    return code


# The IR carries explicit vectors and places invariant code itself: what is left is to turn allocas
# into registers, and to tidy. More passes cost compile time and were measured to gain nothing.
_PASSES = ("always_inliner", "sroa", "instruction_combine", "simplify_cfg")
# One target machine serves all compilations, and a target machine is not thread-safe. A fork waits
# for a compilation under way: the child would find LLVM's locks taken by a thread it has not.
_COMPILE_LOCK = threading.Lock()
os.register_at_fork(
    before=_COMPILE_LOCK.acquire,
    after_in_parent=_COMPILE_LOCK.release,
    after_in_child=_COMPILE_LOCK.release,
)


@lru_cache(maxsize=1)
def _machine() -> tuple[Any, Any, str]:
    """The host's code generator, and the lines that say what layout the IR is for."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    host = target()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=host.cpu, features=host.features, opt=3, reloc="pic", codemodel="small"
    )
    layout = f'target datalayout = "{machine.target_data}"\ntarget triple = "{machine.triple}"\n'
    return machine, llvm.create_pipeline_tuning_options(speed_level=2), layout


def compile_cached(text: str) -> bytes:
    """As `compile_ir`, but the same text is compiled once per machine and compiler."""
    cache = ObjectCache("objects")
    key = f"{_code_fingerprint()}\n{text}"
    code = cache.get(key)
    if code is None:
        code = compile_ir(text)
        cache.put(key, code)
    return code


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
        if not elf.is_loadable(object_code):
            return _LlvmLibrary.load(object_code)
        _unmap_discarded()
        mapped = elf.load(object_code)
        library = cls(mapped.symbols, mapped.size)
        if not lasting:
            library.__del__ = partial(_discarded.append, mapped)
        return library

    def address(self, symbol: str) -> int:
        """The address of a function the code defines; KeyError if it defines none so called."""
        return self._symbols[symbol]


class _LlvmLibrary(Library):
    """Code loaded by LLVM's own loader, for good: of formats that the loader here does not read."""

    @classmethod
    def load(cls, object_code: bytes, lasting: bool = True) -> Library:
        import llvmlite.binding as llvm

        with _COMPILE_LOCK:
            engine = _engine()
            engine.add_object_file(llvm.ObjectFileRef.from_data(object_code))
            engine.finalize_object()
        return cls({})

    def address(self, symbol: str) -> int:
        """The address of a function, by LLVM's symbol table."""
        found: int = _engine().get_function_address(symbol)
        if not found:
            raise KeyError(symbol)
        return found


@lru_cache(maxsize=1)
def _engine() -> Any:
    """One engine for the process: a new one per library costs a millisecond."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=3, jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


@lru_cache(maxsize=1)
def compiler_fingerprint() -> str:
    """A hash of all that decides what code a graph becomes: compiler sources, LLVM, CPU."""
    return blake2b(f"{_host()}{sources_fingerprint()}".encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=1)
def sources_fingerprint() -> str:
    """A hash of the compiler's own sources."""
    digest = blake2b(digest_size=16)
    root = f"{_PACKAGE}{os.sep}"
    for name in _COMPILER_SOURCES:
        path = root + name
        for file in [path] if name.endswith(".py") else sorted(_python_files(path)):
            with open(file, "rb", buffering=0) as source:
                digest.update(file[len(root) :].replace(os.sep, "/").encode() + b"\0")
                digest.update(source.read() + b"\0")
    return digest.hexdigest()


def _python_files(folder: str) -> Iterator[str]:
    for inner, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".py"):
                yield os.path.join(inner, name)


@lru_cache(maxsize=1)
def _code_fingerprint() -> str:
    """A hash of what decides the machine code of given IR: this file, LLVM, CPU."""
    digest = blake2b(_host().encode() + b"\0" + Path(__file__).read_bytes(), digest_size=16)
    return digest.hexdigest()


def _host() -> str:
    return f"{toolchain()}\n{target().cpu}\n{target().features}"
