"""The read recorder: collects what the instrumented function reads from outside while it is traced.

Objects that are made while the function runs need no guard: nobody else can change them. They are
told from those that were there before by the generations of the garbage collector: the youngest one
is emptied when tracing begins, and no collection runs until it ends.
"""

from __future__ import annotations

import gc
import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from ridgeline.atomic import young, young_identities
from ridgeline.graph.origins import user_line
from ridgeline.record.modes import modes
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.kept_state import Location, Stores
from ridgeline.tracing.reads.kinds import (
    HEAP,
    is_a,
    is_fixed,
    is_library_type,
    is_our_type,
    is_watched,
    python_method,
)
from ridgeline.tracing.reads.notes import (
    LOOKS,
    MISSING,
    SCALARS,
    Read,
    Table,
    entry_of_class,
    same_table,
)

if TYPE_CHECKING:
    from ridgeline.tracing.reads.calls import CallRecorder

_UNTRACKED = (np.ndarray, bytearray, array)
_WHOLE = ("length", "elements", "keys", "values", "item")  # looks that show what was added
_CONTAINERS = (list, dict, set, deque, *_UNTRACKED)
# What `np.seterr` and `np.set_printoptions` set
_NUMPY_SETTINGS: tuple[ContextVar[Any], ...] = tuple(
    getattr(sys.modules[module], name)
    for module, name in (
        ("numpy._core.umath", "_extobj_contextvar"), ("numpy._core.printoptions", "format_options"),
    )
    if hasattr(sys.modules.get(module), name)
)  # fmt: skip
_UNSET = (MISSING,)
_LARGE = 1 << 20  # bytes of an array that are compared before each call


class ReadRecorder:
    """What one traced call reads from outside; `open` says why it cannot be guarded."""

    def __init__(
        self, watch: Callable[[Any], None], given: Iterable[Any] = (), capture: Any = None
    ) -> None:
        gc.collect(0)
        self._watch = watch  # told of modules and optimizers, which have an epoch of their own
        self._capture = capture  # of which tensors can be stored by replays, too
        self.stores = Stores()
        self._given = {id(value): value for value in given}  # whose parts the signature holds
        self._reads: dict[tuple[int, str, Any], Read] = {}
        self._held: dict[int, Any] = {}  # keeps ids unique for as long as this records
        self._known: set[int] = set()  # arrays and the like that were found outside
        self._tables: dict[int, Any] = {}  # tables of attributes, made when first asked for
        self._watched: set[int] = set()
        self._classes: set[type] = set()  # of this package, used here
        self._before: set[int] | None = None  # young objects when a module began to be loaded
        self._loaded: set[int] = set()  # those that came with modules
        self._numpy = [(setting, setting.get(MISSING)) for setting in _NUMPY_SETTINGS]
        self._doubts: list[tuple[Any, str]] = []  # what makes the trace open if it is from outside
        self._left: list[tuple[Any, Any, str]] = []  # containers, and what they were put into
        self._returned: list[Any] = []  # objects that the function gives back
        self.open = ""  # why every call has to run Python
        self.prints = False  # inside of print(), where a text is shown and not used
        self.our_class(Tensor)

    # ---- what the copies report -----------------------------------------------------------------

    def note(self, owner: Any, look: str, key: Any, value: Any, text: str) -> None:
        """Something was read; what was found first counts."""
        read_key = (id(owner), look, key if type(key) in (str, int) else id(key))
        if read_key in self._reads:
            return
        if look in _WHOLE and self.stores.touches(owner):  # a guard would ask before the store
            self.opens_if_outside(owner, f"{text}, to which the function has added")
        self._reads[read_key] = Read(owner, look, key, value, text)
        self._held[id(owner)] = owner
        self._held[id(key)] = key
        if look == "attribute" and key == "__dict__":
            self.table(value, owner)
        self.found(value)

    def table(self, table: Any, owner: Any) -> None:
        """A table of attributes or a copy, which is made now and shows what its owner has."""
        self._held[id(table)] = table
        self._tables[id(table)] = owner

    def found(self, value: Any) -> None:
        """A value that lies outside."""
        if is_a(value, tuple):
            for element in tuple.__iter__(value):
                if type(element) not in SCALARS:
                    self.found(element)
        elif is_a(value, _UNTRACKED) or (type(value) is dict and not gc.is_tracked(value)):
            self._known_outside(value)
        elif is_watched(value) and id(value) not in self._watched:
            parts = value.modules() if hasattr(value, "modules") else (value,)
            for part in parts:
                self._watched.add(id(part))
                self._held[id(part)] = part
                self._watch(part)
                self._settings(part)
                self.our_class(type(part))

    def _known_outside(self, value: Any) -> None:
        """An object of which the collector does not say that it was there before."""
        self._held[id(value)] = value
        self._known.add(id(value))

    def our_class(self, kind: type) -> None:
        """A class of this package is used, of which somebody may replace a method."""
        for base in kind.__mro__:
            if base not in self._classes and is_our_type(base):
                self._classes.add(base)
                (table,) = gc.get_referents(base.__dict__)
                self._held[id(table)] = table
                read = Read(table, "table", None, _entries(table), f"a method of {base.__name__}")
                self._reads[id(table), "table", None] = read

    def _settings(self, part: Any) -> None:
        """The numbers and texts of a module, which may also change behind the back of its epoch."""
        for name, value in vars(part).items():
            if type(value) in SCALARS and name[0] != "_":
                self.own_entry(part, name, value, f"{type(part).__name__}.{name}")

    def own_entry(self, owner: Any, name: str, value: Any, text: str) -> None:
        """An attribute of a module's, in its table: a class with `__getattr__` looks slowly.

        Another table would be assigned as any attribute is, which moves the epoch.
        """
        table = vars(owner)
        self.table(table, owner)
        self.note(table, "key", name, value, text)

    def is_given(self, value: Any) -> bool:
        """True for a container among the arguments."""
        return id(value) in self._given

    def give(self, value: Any) -> None:
        """A container whose parts the signature holds."""
        self._given[id(value)] = value

    def store(self, owner: Any, key: Any, value: Any, attribute: bool = False) -> bool:
        """Note that a value is left at a place; False where no replay can do that again."""
        if self._capture is None or self.is_given(owner):
            return False
        return self.stores.add(Location(owner, key, attribute), value, self._capture)

    def changes(self, table: Any, owner: Any, key: Any = MISSING) -> None:
        """A container, or what it has under a key, is changed in another way than by a store.

        That of an owner which the function itself has made is its own affair.
        """
        stored = self.stores.touches(table) if key is MISSING else self.stores.knows(table, key)
        if stored:
            owner = self._tables.get(id(owner), owner)
            reason = "the function stores a tensor and then changes what it is stored in"
            self.opens_if_outside(owner, reason)

    def opens(self, reason: str) -> None:
        """The trace cannot be guarded; the first reason counts."""
        if not self.open:
            self.open = _at_line(reason)

    def opens_if_outside(self, value: Any, reason: str) -> None:
        """The trace cannot be guarded if this object was there before it."""
        self._held[id(value)] = value
        self._doubts.append((value, _at_line(reason)))

    def leaves(self, owner: Any, value: Any) -> None:
        """A value is put into an object: a container made by every call anew is no replay's."""
        if type(value) is tuple:
            for part in value:
                self.leaves(owner, part)
        elif is_a(value, _CONTAINERS):
            self._held[id(value)] = value
            self._held[id(owner)] = owner
            self._left.append((owner, value, _at_line(f"a {type(value).__name__} is left outside")))

    def returns(self, value: Any) -> None:
        """An object is given back, and no container that is built anew."""
        if not is_fixed(value):
            self._held[id(value)] = value
            self._returned.append(value)

    def loads(self) -> None:
        """Modules are about to be loaded: what they make stays, and lies outside."""
        self._before = self._before or young_identities()

    def loaded(self) -> None:
        """The modules are there."""
        if self._before is not None:
            self._loaded |= young_identities() - self._before
            self._before = None

    def name(self, namespace: dict[str, Any], name: str) -> Any:
        """A global or built-in name is read."""
        self._known_outside(namespace)
        value = namespace.get(name, MISSING)
        self.note(namespace, "key", name, value, f"the global {name!r}")
        return value if value is not MISSING else self.builtin(namespace, name)

    def builtin(self, namespace: dict[str, Any], name: str) -> Any:
        """A built-in name is read, from the table that a module has for them."""
        builtins = namespace.get("__builtins__")
        table = builtins if isinstance(builtins, dict) else vars(builtins)
        self._known_outside(table)
        value = table.get(name, MISSING)
        self.note(table, "key", name, value, f"the built-in name {name!r}")
        if value is MISSING:
            raise NameError(f"name {name!r} is not defined", name=name)
        return value

    def function(self, function: FunctionType) -> None:
        """A function is called: its code, its defaults and what it captured count."""
        label = function.__qualname__
        self.note(function, "attribute", "__code__", function.__code__, f"the code of {label}")
        for name in ("__defaults__", "__kwdefaults__"):
            value = getattr(function, name)
            if value is not None:
                self.note(function, "attribute", name, value, f"a default of {label}")
        if function.__kwdefaults__ is not None:
            self.entries(function.__kwdefaults__, f"a default of {label}")
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            self.cell(cell, name)

    def special(self, owner: Any, name: str) -> FunctionType | None:
        """A special method in Python that an operator, a loop or the like finds in a class."""
        kind = type(owner)
        if kind.__module__ == "builtins" or is_our_type(kind) or is_library_type(kind):
            return None if kind.__flags__ & HEAP == 0 else python_method(kind, name)
        if not self.is_given(owner):
            self.note(owner, "type", None, kind, f"the class of a {kind.__name__}")
        stored = entry_of_class(kind, name)
        self.note(kind, "class entry", name, stored, f"{kind.__qualname__}.{name}")
        return python_method(kind, name)

    def settings_of_numpy(self) -> None:
        """NumPy computes or prints something: what it does about errors, and how it prints, counts.

        As it was when tracing began: what the function sets itself is its own affair.
        """
        for setting, value in self._numpy:
            self.note(setting, "context", _UNSET, value, "a setting of NumPy's")
            if is_a(value, dict):
                self.entries(value, "a setting of NumPy's")

    def cell(self, cell: CellType, name: str) -> None:
        """A captured variable is in reach."""
        value = LOOKS["cell"](cell, None)
        self.note(cell, "cell", None, value, f"the captured variable {name!r}")

    def elements(self, owner: Any, text: str) -> None:
        """All elements of a list, a set or the like are read, in their order."""
        if not self.is_given(owner):
            self.note(owner, "elements", None, tuple(owner), text)

    def entries(self, owner: dict[Any, Any], text: str) -> None:
        """All keys and values of a dict are read, in their order."""
        if not self.is_given(owner):
            self.note(owner, "keys", None, tuple(owner), text)
            self.note(owner, "values", None, tuple(dict.values(owner)), text)

    def memory(self, owner: Any, text: str) -> None:
        """The content of an array is read."""
        if self._capture is not None:
            self._capture.memory.read_by_python(owner)
        if self.is_given(owner) or id(owner) not in self._known:
            return
        size = getattr(owner, "nbytes", None) or len(owner)
        if size > _LARGE or (is_a(owner, np.ndarray) and owner.dtype.hasobject):
            self.opens(f"{text}: {size} bytes are too many to compare before every call")
        else:
            self.note(owner, "memory", None, LOOKS["memory"](owner, None), text)

    def is_outer_array(self, array: Any) -> bool:
        """True where the memory of an array was there before."""
        while is_a(array, np.ndarray):
            if id(array) in self._known or self.is_given(array):
                return True
            if array.base is None:
                return False
            array = array.base
        return True

    # ---- when the function has returned ---------------------------------------------------------

    def reads(self) -> list[Read]:
        """What was read from objects that were there before, in order of first sight."""
        owners = [read.owner for read in self._reads.values()]
        owners += [*self._tables.values(), *(value for value, _ in self._doubts)]
        owners += [part for owner, value, _ in self._left for part in (owner, value)]
        owners += self._returned
        inherited = self._inherited()
        owners += [base for _, base in inherited]
        made = self._made([*owners, *(store.location.owner for store in self.stores.all)])
        for read, base in inherited:
            if id(read.owner) in made and id(base) not in made:
                stored = entry_of_class(base, read.key)
                self.note(base, read.look, read.key, stored, f"{base.__qualname__}.{read.key}")
        for owner, value, reason in self._left:
            if self._is_outside(owner, made) and not self._is_outside(value, made):
                self.open = self.open or reason
        for value, reason in self._doubts:
            # a dict that was empty outside is young by what was put into it
            outside = id(value) in self._known or id(value) not in made
            if not self.open and outside and not self.is_given(value):
                self.open = reason
        for value in self._returned:  # a replay would give the same one again
            if not self.open and not self._is_outside(value, made):
                self.open = f"the function returns a {label(value)} that it makes"
        self.stores.keep(lambda owner: self._is_outside(owner, made))
        return [
            read
            for read in self._reads.values()
            if self._is_outside(read.owner, made) and not self.stores.stored(read.value)
        ]

    def _made(self, objects: Sequence[Any]) -> set[int]:
        """The identities of those objects that the function itself has made."""
        made = young(objects)
        if self._loaded:
            made -= {id(each) for each in objects if object.__hash__(each) in self._loaded}
        return made

    def _inherited(self) -> list[tuple[Read, type]]:
        """Entries of classes, with each base: if the function made the class, theirs count."""
        return [
            (read, base)
            for read in self._reads.values()
            if read.look == "class entry"
            for base in read.owner.__mro__[1:]
            if base.__flags__ & HEAP and not is_library_type(base)
        ]

    def _is_outside(self, owner: Any, made: set[int]) -> bool:
        owner = self._tables.get(id(owner), owner)
        if id(owner) in self._given:
            return False
        if id(owner) in self._known:
            return True
        if is_a(owner, _UNTRACKED) or (type(owner) is dict and not gc.is_tracked(owner)):
            return False
        return id(owner) not in made


def _at_line(reason: str) -> str:
    line = user_line()
    return f"{reason} (at {line})" if line else reason


def label(owner: Any) -> str:
    """An object's name in reports."""
    if is_a(owner, type | FunctionType):
        return str(owner.__qualname__)
    name = getattr(owner, "__name__", None) if type(owner).__name__ == "module" else None
    return name if isinstance(name, str) else type(owner).__name__


_last_seen: dict[int, Table] = {}  # what tables had when last looked at


def _entries(table: dict[str, Any]) -> Table:
    """What a class has: one tuple for as long as it stays the same, for traces hold it."""
    known = _last_seen.get(id(table))
    if known is None or not same_table(table, known):
        known = _last_seen[id(table)] = LOOKS["table"](table, None)
    return known


def shown(key: Any) -> str:
    """A key in reports: what Python of the user's would say of it runs nothing here."""
    parts = key if type(key) is tuple else (key,)
    plain = all(type(part) in SCALARS or is_a(part, type) for part in parts)
    return f"{key!r:.40}" if plain else f"<{label(key)}>"


class _Running(Protocol):
    """The modes of the calling thread, as the modules of this folder set them."""

    call_recorder: CallRecorder | None


running = cast(_Running, modes)
