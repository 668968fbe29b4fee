"""A set of functions as one module of LLVM IR."""

from __future__ import annotations

import ast
import inspect
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import CodeType, FrameType, FunctionType, GenericAlias
from typing import Any

from ridgeline.codegen.cpython.builder import Kind
from ridgeline.codegen.cpython.expressions import EXACT
from ridgeline.codegen.cpython.helpers import POOL, helpers
from ridgeline.codegen.cpython.layout import offsets
from ridgeline.codegen.cpython.statements import FunctionTranslator

OBJECTS = "ridgeline_objects"  # the symbol of the table of objects that the code mentions
_CONSTANTS = (type(None), bool, int, str)
_NAMED = {kind.__name__: kind for kind in EXACT} | {"FrameType": FrameType, "CodeType": CodeType}


class FunctionSet:
    """The functions that are compiled together."""

    def __init__(
        self,
        classes: Collection[type],
        tuples: Sequence[type],
        left: Collection[FunctionType],
        scratch: Collection[str],
        protocols: Mapping[str, type],
        primitives: Mapping[Any, str | FunctionType],
    ) -> None:
        """`classes` are those whose slots are used, as their annotations declare them, and
        `tuples` those of tuples that have no methods of their own. For `protocols` in
        annotations stand the classes that have them.

        `primitives` are functions with a form of their own: another function, or one by its name
        in `expressions.py`.
        Calls of functions that are `left` to Python bail out. What is in a slot of `scratch`,
        or a parameter that is called so, may change in a call that bails out.
        """
        self._classes = {owner.__name__: owner for owner in classes} | dict(protocols)
        self._slots = {owner: self._slots_of(owner) for owner in classes}
        self._tuples, self._left, self.scratch = tuples, set(left), frozenset(scratch)
        self.primitives = primitives
        self._symbols: dict[FunctionType, str] = {}
        self._waiting: deque[FunctionType] = deque()
        self._places: dict[Any, int] = {}
        self._settable: dict[tuple[type, str], None] = {}
        self.objects: list[Any] = []

    def translated(
        self, exported: Mapping[str, FunctionType], bailed: object, broken: object
    ) -> str:
        """The IR of some functions and all that they call."""
        entries = [
            self._entry(name, function, bailed, broken) for name, function in exported.items()
        ]
        functions: list[str] = []
        while self._waiting:
            function = self._waiting.popleft()
            functions.append(FunctionTranslator(self, function).translated(self._symbols[function]))
        records = {
            kind: [slots[field.name][0] for field in fields(kind) if field.compare]
            for kind, slots in self._slots.items()
            if is_dataclass(kind) and kind.__dataclass_params__.eq  # type: ignore[attr-defined]
        }
        settable = [(kind, name, self._slots[kind][name][0]) for kind, name in self._settable]
        shared = helpers(self.place, self._tuples, records, settable)
        table = f"@{OBJECTS} = global [{len(self.objects)} x ptr] zeroinitializer\n"
        return shared + table + "\n".join([*functions, *entries])

    # ---- what the translation of functions asks -------------------------------------------------

    def place(self, value: object) -> str:
        """The IR of the place where the address of an object stands."""
        key = (type(value), value) if isinstance(value, _CONSTANTS) else id(value)
        index = self._places.setdefault(key, len(self.objects))
        if index == len(self.objects):
            self.objects.append(value)
        return f"getelementptr (ptr, ptr @{OBJECTS}, i64 {index})"

    def slots(self, kind: Kind) -> Mapping[str, tuple[int, Kind]]:
        """Where objects of a class keep what, and of which kinds that is."""
        return self._slots.get(kind, {}) if isinstance(kind, type) else {}

    def _slots_of(self, owner: type) -> dict[str, tuple[int, Kind]]:
        places = offsets(owner)
        declared = {
            name: annotation
            for base in reversed(owner.__mro__)
            for name, annotation in inspect.get_annotations(base).items()
        }
        return {name: (at, self.kind(declared.get(name))) for name, at in places.items()}

    def symbol(self, function: FunctionType) -> str | None:
        """The symbol of a function that is compiled too; None for one that is left to Python."""
        if function in self._left:
            return None
        if function not in self._symbols:
            self._symbols[function] = f'@"{function.__qualname__}.{len(self._symbols)}"'
            self._waiting.append(function)
        return self._symbols[function]

    def kind(self, annotation: Any) -> Kind:
        """What an annotation declares."""
        if not isinstance(annotation, str):
            return None
        return self._declared(ast.parse(annotation, mode="eval").body)

    def _declared(self, node: ast.expr) -> Kind:
        if isinstance(node, ast.BinOp):
            kinds = [self._declared(part) for part in (node.left, node.right)]
            return next((kind for kind in kinds if kind is not type(None)), None)
        if isinstance(node, ast.Subscript):
            owner, inside = self._declared(node.value), node.slice
            parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            return None if owner is None else GenericAlias(owner, tuple(map(self._declared, parts)))
        if isinstance(node, ast.Constant):
            return ... if node.value is ... else type(None)
        name = node.id if isinstance(node, ast.Name) else ""
        return self._classes.get(name) or _NAMED.get(name)

    def note_settable(self, kind: type, name: str) -> None:
        """Objects of a class may have a slot set by its name."""
        self._settable.setdefault((kind, name))

    # ---- functions that Python calls ------------------------------------------------------------

    def _entry(self, name: str, function: FunctionType, bailed: object, broken: object) -> str:
        """A function of Python's over a compiled one, that gives `bailed` where that bails out."""
        symbol = self.symbol(function)
        count = function.__code__.co_argcount
        reads = "\n".join(
            f"  %at.{i} = getelementptr ptr, ptr %given, i64 {i}\n"
            f"  %arg.{i} = load ptr, ptr %at.{i}"
            for i in range(count)
        )
        arguments = ", ".join(["ptr %pool", *(f"ptr %arg.{i}" for i in range(count))])
        objects = ", ".join(["ptr %reason", *(f"ptr %arg.{i}" for i in range(count)), "ptr null"])
        return f"""
define ptr @ridgeline_{name}(ptr %self, ptr %given, i64 %count) {{
entry:
  %pool = alloca {POOL}
  store i64 0, ptr %pool
  %flag = getelementptr {POOL}, ptr %pool, i64 0, i32 1
  store i64 0, ptr %flag
  %more = getelementptr {POOL}, ptr %pool, i64 0, i32 2
  store ptr null, ptr %more
  %right = icmp eq i64 %count, {count}
  br i1 %right, label %begin, label %none
begin:
{reads}
  %collects = call i32 @PyGC_Disable()
  %found = call ptr {symbol}({arguments})
  %bails = icmp eq ptr %found, null
  br i1 %bails, label %bail, label %give
give:
  call void @Py_IncRef(ptr %found)
  br label %end
bail:
  call void @PyErr_Clear()
  br label %end
end:
  %made = phi ptr [ %found, %give ], [ null, %bail ]
  %again = icmp ne i32 %collects, 0
  br i1 %again, label %enable, label %release
enable:
  %off = call i32 @PyGC_Enable()
  br label %release
release:
  call void @released(ptr %pool)
  %fine = icmp ne ptr %made, null
  br i1 %fine, label %done, label %look
done:
  ret ptr %made
look:
  %changed = load i64, ptr %flag
  %half = icmp ne i64 %changed, 0
  br i1 %half, label %break, label %none
break:
  %reason = load ptr, ptr {self.place(broken)}
  %raised = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs({objects})
  ret ptr %raised
none:
  %bailed = load ptr, ptr {self.place(bailed)}
  call void @Py_IncRef(ptr %bailed)
  ret ptr %bailed
}}
"""
