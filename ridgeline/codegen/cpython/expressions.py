"""Expressions of compiled functions as LLVM IR."""

from __future__ import annotations

import ast
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any, ClassVar, TypeAlias

from ridgeline.codegen.cpython.builder import IrBuilder, IrValue, Kind, Raw, class_of, held_by
from ridgeline.codegen.cpython.helpers import BAIL, FAILED, YES
from ridgeline.codegen.cpython.unit import Unit

EXACT = (tuple, list, dict, int, float, str, bool, type(None), slice, FrameType, CodeType)
# attributes of the interpreter's own objects that are read by its functions
_READ: Mapping[type, Mapping[str, Kind]] = {
    FrameType: {"f_back": FrameType, "f_lasti": int},
    CodeType: {"co_filename": str},
    slice: {"start": None, "stop": None, "step": None},
}
_ORDERED = {ast.Lt: "slt", ast.LtE: "sle", ast.Gt: "sgt", ast.GtE: "sge"}
_SIZES = {tuple: "@PyTuple_Size", list: "@PyList_Size", dict: "@PyDict_Size"}
_ITEMS = {tuple: "@PyTuple_GetItem", list: "@PyList_GetItem"}
_SUMS = {ast.Add: "add", ast.Sub: "sub", ast.RShift: "ashr"}


Form: TypeAlias = "Callable[[ExpressionTranslator, ast.Call], IrValue]"  # of a call


class Untranslatable(Exception):
    """Something that compiled functions may not use."""


class ExpressionTranslator:
    """Translates the expressions of one function."""

    of_python: ClassVar[Mapping[Any, Form]]  # forms of Python's own functions
    primitives: ClassVar[Mapping[str, Form]]

    def __init__(self, unit: Unit, function: FunctionType) -> None:
        self.unit, self.function = unit, function
        self.code = IrBuilder()
        self.kinds: dict[str, Kind] = {}  # of local variables, here
        self.places: dict[str, tuple[str, str]] = {}  # their memory and its LLVM type
        self.made: set[str] = set()  # those that hold an object that was made here
        self.known: frozenset[tuple[str, Any]] = frozenset()  # and those whose class is known

    # ---- values ---------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> IrValue:
        """An expression's value."""
        method: Callable[[Any], IrValue] | None = getattr(self, f"_{type(node).__name__}", None)
        if method is None:
            raise self.error(node, f"no compiled function may use {type(node).__name__}")
        return method(node)

    def boxed(self, node: ast.expr) -> IrValue:
        """An expression's value as an object."""
        return self.box(self.value(node))

    def box(self, value: IrValue) -> IrValue:
        """A value as an object."""
        if value.kind is Raw.BIT:
            yes, no = self.constant(True), self.constant(False)
            return self.code.let(f"select i1 {value.text}, ptr {yes.text}, ptr {no.text}", bool)
        if value.kind is Raw.INT:
            if value.text.lstrip("-").isdigit():
                return self.constant(int(value.text))
            return self.kept(f"@PyLong_FromLongLong({value.typed})", int)
        if value.kind is Raw.FLOAT:
            raise Untranslatable("a computed float as an object")
        return value

    def number(self, value: IrValue) -> IrValue:
        """A whole number in a register."""
        if value.kind is Raw.INT:
            return value
        found = self.code.let(f"call i64 @unboxed(ptr {value.text})", Raw.INT)
        self.bail_if(self.code.let(f"icmp eq i64 {found.text}, {FAILED}").text)
        return found

    def real(self, value: IrValue) -> IrValue:
        """A float in a register."""
        if value.kind is Raw.FLOAT:
            return value
        if value.kind is Raw.INT:
            return self.code.let(f"sitofp i64 {value.text} to double", Raw.FLOAT)
        self.check(value, float)
        return self.code.let(f"call double @PyFloat_AsDouble(ptr {value.text})", Raw.FLOAT)

    def constant(self, value: object) -> IrValue:
        """An object that is there as long as the code."""
        kind = type(value)
        return self.code.let(f"load ptr, ptr {self.unit.place(value)}", kind, "object")

    def kept(self, call: str, kind: Kind) -> IrValue:
        """A new object, which the pool releases."""
        made = self.code.let(f"call ptr {call}")
        found = self.code.let(f"call ptr @kept(ptr %pool, ptr {made.text})", kind)
        self.bail_if_null(found)
        return found

    # ---- ways out -------------------------------------------------------------------------------

    def bail_if(self, condition: str) -> None:
        """Bail out where a condition holds."""
        further = self.code.fresh("fine")
        self.code.branch(condition, "bail", further)
        self.code.start(further)

    def bail_if_null(self, value: IrValue) -> None:
        """Bail out where there is no object."""
        self.bail_if(self.code.let(f"icmp eq ptr {value.text}, null").text)

    def check(self, value: IrValue, kind: Kind) -> None:
        """Bail out unless an object is of a class; of one of the interpreter's, exactly."""
        kind = class_of(kind)
        if (value.local, kind) in self.known or value.local in self.made:
            return
        if value.local:
            self.known |= {(value.local, kind)}
        expected = self.constant(kind).text
        if kind in EXACT:
            found = self.code.let(f"call ptr @type_of(ptr {value.text})").text
            self.bail_if(self.code.let(f"icmp ne ptr {found}, {expected}").text)
        else:
            right = self.code.let(f"call i1 @is_of(ptr {value.text}, ptr {expected})").text
            self.bail_if(self.code.let(f"xor i1 {right}, true").text)

    def error(self, node: ast.AST, text: str) -> Untranslatable:
        """An error that names the place."""
        line = getattr(node, "lineno", self.function.__code__.co_firstlineno)
        return Untranslatable(f"{self.function.__code__.co_filename}:{line}: {text}")

    # ---- names and attributes -------------------------------------------------------------------

    def _Constant(self, node: ast.Constant) -> IrValue:
        if type(node.value) is int:
            return IrValue(str(node.value), Raw.INT)
        return self.constant(node.value)

    def _Name(self, node: ast.Name) -> IrValue:
        if node.id in self.places:
            place, llvm = self.places[node.id]
            found = self.code.let(f"load {llvm}, ptr {place}", self.kinds[node.id], node.id)
            return IrValue(found.text, found.kind, node.id)
        found = self.global_object(node)
        return IrValue(str(found), Raw.INT) if type(found) is int else self.constant(found)

    def global_object(self, node: ast.Name) -> Any:
        """What a name that is not local stands for."""
        space = self.function.__globals__
        if node.id in space:
            return space[node.id]
        builtins = space["__builtins__"]
        table = builtins if isinstance(builtins, dict) else vars(builtins)
        if node.id not in table:
            raise self.error(node, f"{node.id} is not defined")
        return table[node.id]

    def _named(self, node: ast.expr) -> Any:
        """What a global name, or one of a module, stands for; None for all else."""
        if isinstance(node, ast.Name) and node.id not in self.places:
            return self.global_object(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            space = self._named(node.value)
            return getattr(space, node.attr) if isinstance(space, ModuleType) else None
        return None

    def _Attribute(self, node: ast.Attribute) -> IrValue:
        found = self._named(node)
        if found is not None:
            return self.constant(found)
        owner = self.value(node.value)
        slots = self.unit.slots(owner.kind)
        if node.attr in slots:
            return self.load(owner, node.attr)
        kinds = _READ.get(owner.kind, {}) if isinstance(owner.kind, type) else {}
        if owner.kind is FrameType and node.attr == "f_code":
            self.check(owner, FrameType)  # of a read of the attribute, hooks would be told
            return self.kept(f"@PyFrame_GetCode(ptr {owner.text})", CodeType)
        if node.attr in kinds:
            self.check(owner, owner.kind)
            name = self.constant(node.attr).text
            return self.kept(f"@PyObject_GetAttr(ptr {owner.text}, ptr {name})", kinds[node.attr])
        found = getattr(owner.kind, node.attr, None)
        if isinstance(found, property) and isinstance(found.fget, FunctionType):
            return self.call(node, found.fget, [owner])
        raise self.error(node, f"nothing is known of .{node.attr} of {owner.kind}")

    def load(self, owner: IrValue, name: str) -> IrValue:
        """What is in a slot; bails out where nothing is."""
        offset, kind = self.unit.slots(owner.kind)[name]
        self.check(owner, owner.kind)
        place = self.code.let(f"getelementptr i8, ptr {owner.text}, i64 {offset}").text
        found = self.code.let(f"load ptr, ptr {place}", kind, name)
        self.bail_if_null(found)
        return found

    # ---- operators ------------------------------------------------------------------------------

    def _BinOp(self, node: ast.BinOp) -> IrValue:
        if type(node.op) not in _SUMS:
            raise self.error(node, "no compiled function may use this operator")
        a, b = self.number(self.value(node.left)), self.number(self.value(node.right))
        return self.code.let(f"{_SUMS[type(node.op)]} i64 {a.text}, {b.text}", Raw.INT)

    def _UnaryOp(self, node: ast.UnaryOp) -> IrValue:
        if isinstance(node.op, ast.Not):
            return self.bit_of(node)
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return IrValue(str(-node.operand.value), Raw.INT)  # type: ignore[operator]
        raise self.error(node, "no compiled function may use this operator")

    def _Compare(self, node: ast.Compare) -> IrValue:
        return self.bit_of(node)

    def bit_of(self, node: ast.expr) -> IrValue:
        yes, no, done = map(self.code.fresh, ("yes", "no", "done"))
        self.truth(node, yes, no)
        self.code.start(yes)
        self.code.jump(done)
        self.code.start(no)
        self.code.start(done)
        return self.code.choose(
            Raw.BIT, (IrValue("true", Raw.BIT), yes), (IrValue("false", Raw.BIT), no)
        )

    def _BoolOp(self, node: ast.BoolOp) -> IrValue:
        """`a or b` of objects is one of them; of truths, a truth."""
        first = self.value(node.values[0])
        if len(node.values) != 2 or isinstance(first.kind, Raw) or isinstance(node.op, ast.And):
            return self.bit_of(node)
        other, done = self.code.fresh("or"), self.code.fresh("done")
        before = self.is_true(node, first, done, other)
        known = self.known
        self.code.start(other)
        second = self.boxed(node.values[1])
        self.known = known
        after = self.code.label
        self.code.start(done)
        return self.code.choose(first.kind or second.kind, (first, before), (second, after))

    def _IfExp(self, node: ast.IfExp) -> IrValue:
        yes, no, done = map(self.code.fresh, ("yes", "no", "done"))
        self.truth(node.test, yes, no)
        known = self.known
        self.code.start(yes)
        first = self.boxed(node.body)
        one = self.code.label
        self.code.jump(done)
        self.code.start(no)
        self.known = known
        second = self.boxed(node.orelse)
        two = self.code.label
        self.known = known
        self.code.start(done)
        kind = second.kind if first.kind in (None, type(None)) else first.kind
        return self.code.choose(kind, (first, one), (second, two))

    def _Tuple(self, node: ast.Tuple) -> IrValue:
        if any(isinstance(part, ast.Starred) for part in node.elts):
            return self._joined(node)
        parts = [self.boxed(part) for part in node.elts]
        if len(parts) in (2, 3) and isinstance(node.elts[1], ast.Constant):
            name = node.elts[1].value
            if isinstance(name, str) and name in self.unit.slots(parts[0].kind):
                self.unit.note_settable(parts[0].kind, name)  # `commit` may have to set it
        return self.tuple_of(parts)

    def _joined(self, node: ast.Tuple) -> IrValue:
        """`(*items, *table.values())`."""
        parts = [part.value for part in node.elts if isinstance(part, ast.Starred)]
        first, second = parts if len(parts) == len(node.elts) == 2 else (node, node)
        if not isinstance(second, ast.Call) or not isinstance(second.func, ast.Attribute):
            raise self.error(node, "a tuple of other parts than of a tuple and a dictionary")
        items, table = self.value(first), self.value(second.func.value)
        self.check(items, tuple)
        self.check(table, dict)
        return self.kept(f"@joined(ptr {items.text}, ptr {table.text}, i32 1)", tuple)

    def tuple_of(self, parts: Sequence[IrValue]) -> IrValue:
        """A new tuple."""
        made = self.kept(f"@PyTuple_New(i64 {len(parts)})", tuple)
        for index, part in enumerate(parts):
            self.code.do(f"call void @Py_IncRef(ptr {part.text})")
            self.code.do(
                f"call i32 @PyTuple_SetItem(ptr {made.text}, i64 {index}, ptr {part.text})"
            )
        return made

    def _List(self, node: ast.List) -> IrValue:
        made = self.kept("@PyList_New(i64 0)", list)
        for part in node.elts:
            self.append(made, self.boxed(part))
        return made

    def _Dict(self, node: ast.Dict) -> IrValue:
        if node.keys:
            raise self.error(node, "a dictionary that is not empty")
        return self.kept("@PyDict_New()", dict)

    def append(self, items: IrValue, value: IrValue) -> None:
        """Put an object at the end of a list."""
        status = self.code.let(f"call i32 @PyList_Append(ptr {items.text}, ptr {value.text})").text
        self.bail_if(self.code.let(f"icmp ne i32 {status}, 0").text)

    def _Subscript(self, node: ast.Subscript) -> IrValue:
        owner = self.value(node.value)
        if class_of(owner.kind) is dict:
            found = self._looked_up(owner, self.boxed(node.slice))
            self.bail_if_null(found)
            return found
        if isinstance(node.slice, ast.Slice):
            return self._rest(node, owner, node.slice)
        return self.item(owner, self.number(self.value(node.slice)))

    def _rest(self, node: ast.expr, owner: IrValue, part: ast.Slice) -> IrValue:
        """A tuple from a place on."""
        if part.lower is None or part.upper is not None or part.step is not None:
            raise self.error(node, "another slice than from a place on")
        self.check(owner, tuple)
        first, size = self.number(self.value(part.lower)), self.size(owner)
        return self.kept(
            f"@PyTuple_GetSlice(ptr {owner.text}, {first.typed}, {size.typed})", owner.kind
        )

    # ---- sequences and dictionaries -------------------------------------------------------------

    def size(self, value: IrValue) -> IrValue:
        """The length of a tuple, a list or a dictionary."""
        sized = _SIZES.get(class_of(value.kind))
        if sized is not None:
            self.check(value, value.kind)
            return self.code.let(f"call i64 {sized}(ptr {value.text})", Raw.INT)
        found = self.code.let(f"call i64 @size(ptr {value.text})", Raw.INT)
        self.bail_if(self.code.let(f"icmp eq i64 {found.text}, {FAILED}").text)
        return found

    def item(self, value: IrValue, index: IrValue) -> IrValue:
        """An item of a tuple or a list; bails out where there is none."""
        size = self.size(value)
        inside = self.code.let(f"icmp ult i64 {index.text}, {size.text}").text
        self.bail_if(self.code.let(f"xor i1 {inside}, true").text)
        return self.item_inside(value, index)

    def item_inside(self, value: IrValue, index: IrValue) -> IrValue:
        """The same where there is one, of what has a size."""
        item = _ITEMS.get(class_of(value.kind), "@item")
        return self.code.let(
            f"call ptr {item}(ptr {value.text}, {index.typed})", held_by(value.kind)
        )

    def _looked_up(self, table: IrValue, key: IrValue) -> IrValue:
        self.check(table, dict)
        return self.code.let(
            f"call ptr @PyDict_GetItemWithError(ptr {table.text}, ptr {key.text})",
            held_by(table.kind),
        )

    def _get(self, table: IrValue, arguments: Sequence[ast.expr]) -> IrValue:
        """`table.get(key)`, or with a default."""
        found = self._looked_up(table, self.boxed(arguments[0]))
        default = self.boxed(arguments[1]) if len(arguments) > 1 else self.constant(None)
        missing = self.code.let(f"icmp eq ptr {found.text}, null").text
        return self.code.let(
            f"select i1 {missing}, ptr {default.text}, ptr {found.text}", found.kind
        )

    # ---- calls ----------------------------------------------------------------------------------

    def _Call(self, node: ast.Call) -> IrValue:
        function = self._named(node.func)
        if function is None and isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        if function is None:
            return self._referenced(self.value(node.func))
        special = self.of_python.get(function) if _is_hashable(function) else None
        if isinstance(function, FunctionType):
            other = self.unit.primitives.get(function)
            function = function if other is None or isinstance(other, str) else other
            special = self.primitives.get(other) if isinstance(other, str) else None
        if special is not None:
            return special(self, node)
        if isinstance(function, FunctionType):
            return self.call(node, function, [self.value(part) for part in node.args])
        if isinstance(function, type) and self.unit.slots(function):
            return self._constructed(node, function)
        raise self.error(node, f"a call of {function!r:.60}")

    def _method(self, node: ast.Call, called: ast.Attribute) -> IrValue:
        owner = self.value(called.value)
        kind = class_of(owner.kind)
        if kind is dict and called.attr == "get":
            return self._get(owner, node.args)
        if kind is dict and called.attr == "clear":
            self.check(owner, dict)
            self.note_change(called.value)
            self.code.do(f"call void @PyDict_Clear(ptr {owner.text})")
            return self.constant(None)
        if kind is list and called.attr == "append":
            self.check(owner, list)
            value = self.boxed(node.args[0])
            self.note_change(called.value)
            self.append(owner, value)
            return self.constant(None)
        function = getattr(owner.kind, called.attr, None)
        if isinstance(function, FunctionType):
            return self.call(node, function, [owner, *map(self.value, node.args)])
        if called.attr in self.unit.slots(owner.kind) and not node.args:
            return self._referenced(self.load(owner, called.attr))
        raise self.error(node, f"a call of .{called.attr} of {owner.kind}")

    def _referenced(self, reference: IrValue) -> IrValue:
        """What a weak reference refers to, or None."""
        kind = self.constant(weakref.ref).text
        found = self.code.let(f"call ptr @type_of(ptr {reference.text})").text
        self.bail_if(self.code.let(f"icmp ne ptr {found}, {kind}").text)
        call = f"ptr {reference.text}, ptr null"
        return self.kept(f"(ptr, ...) @PyObject_CallFunctionObjArgs({call})", None)

    def note_change(self, node: ast.expr) -> None:
        """Note that something is changed that was not made here, and that is no scratch."""
        name = node.id if isinstance(node, ast.Name) else ""
        slot = node.attr if isinstance(node, ast.Attribute) else ""
        if name not in self.made and not {name, slot} & self.unit.scratch:
            self.code.do("call void @changes(ptr %pool)")

    def call(self, node: ast.expr, function: FunctionType, given: Sequence[IrValue]) -> IrValue:
        """A call of another compiled function; one that is left to Python bails out."""
        symbol = self.unit.symbol(function)
        result = self.unit.kind(function.__annotations__.get("return"))
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        values = list(given)
        for name in names[len(values) :]:
            values.append(self._default(node, function, names, name))
        if symbol is None:
            self.code.jump("bail")
            self.code.start(self.code.fresh("never"))
            kind = Raw.BIT if result is bool else result
            return IrValue("false", Raw.BIT) if kind is Raw.BIT else IrValue("null", kind)
        arguments: list[str] = []
        for name, value in zip(names, values):
            kind = self.unit.kind(function.__annotations__.get(name))
            passed = self.bit(value) if kind is bool else self.box(value)
            arguments.append(passed.typed)
        call = f"{symbol}({', '.join(['ptr %pool', *arguments])})"
        if result is not bool:
            found = self.code.let(f"call ptr {call}", result)
            self.bail_if_null(found)
            return found
        answer = self.code.let(f"call i8 {call}").text
        self.bail_if(self.code.let(f"icmp eq i8 {answer}, {BAIL}").text)
        return self.code.let(f"icmp eq i8 {answer}, {YES}", Raw.BIT)

    def _default(
        self, node: ast.expr, function: FunctionType, names: Sequence[str], name: str
    ) -> IrValue:
        for keyword in node.keywords if isinstance(node, ast.Call) else ():
            if keyword.arg == name:
                return self.value(keyword.value)
        defaults = function.__defaults__ or ()
        place = names.index(name) - len(names) + len(defaults)
        if place < 0:
            raise self.error(node, f"{function.__name__} needs {name}")
        return self.constant(defaults[place])

    def bit(self, value: IrValue) -> IrValue:
        """A truth in a register."""
        if value.kind is Raw.BIT:
            return value
        self.check(value, bool)
        return self.code.let(f"icmp eq ptr {value.text}, {self.constant(True).text}", Raw.BIT)

    def new(self, kind: type) -> IrValue:
        """A new object with empty slots."""
        return self.kept(f"@PyType_GenericAlloc(ptr {self.constant(kind).text}, i64 0)", kind)

    def _constructed(self, node: ast.Call, kind: type) -> IrValue:
        made, given = self.new(kind), [self.value(part) for part in node.args]
        begin = kind.__init__  # type: ignore[misc]
        if is_dataclass(kind) and not hasattr(kind, "__post_init__"):
            for name, value in zip([field.name for field in fields(kind)], given, strict=True):
                self.put(made, name, self.box(value))
        elif isinstance(begin, FunctionType):
            self.call(node, begin, [made, *given])
        return made

    def put(self, owner: IrValue, name: str, value: IrValue) -> None:
        """Fill a slot of an object whose class was looked at."""
        offset, _ = self.unit.slots(class_of(owner.kind))[name]
        place = self.code.let(f"getelementptr i8, ptr {owner.text}, i64 {offset}").text
        self.code.do(f"call void @put(ptr %pool, ptr {place}, ptr {value.text})")

    def narrowed(self, test: ast.expr) -> tuple[dict[str, Kind], dict[str, Kind]]:
        """What a test says of the classes of variables, where it holds and where not."""
        raise NotImplementedError

    # ---- truths ---------------------------------------------------------------------------------

    def truth(self, node: ast.expr, yes: str, no: str) -> None:
        """Go on at one of two labels, as an expression is true."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.truth(node.operand, no, yes)
        elif isinstance(node, ast.BoolOp):
            every, before = isinstance(node.op, ast.And), self.kinds
            surely: frozenset[tuple[str, Any]] | None = None  # known after the first part
            for part in node.values[:-1]:
                further = self.code.fresh("and" if every else "or")
                self.truth(part, further if every else yes, no if every else further)
                surely = self.known if surely is None else surely
                self.code.start(further)
                self.kinds = self.kinds | self.narrowed(part)[0 if every else 1]
            self.truth(node.values[-1], yes, no)
            self.kinds, self.known = before, surely or frozenset()
        elif isinstance(node, ast.Compare):
            self._compare(node, yes, no)
        else:
            self.is_true(node, self.value(node), yes, no)

    def is_true(self, node: ast.expr, value: IrValue, yes: str, no: str) -> str:
        """Go on at one of two labels, as a value is true; gives the label from where."""
        kind = value.kind
        if kind is Raw.BIT:
            condition = value.text
        elif kind in (Raw.INT, int):
            condition = self.code.let(f"icmp ne i64 {self.number(value).text}, 0").text
        elif kind is bool:
            condition = self.bit(value).text
        elif class_of(kind) in (tuple, list, dict):
            condition = self.code.let(f"icmp ne i64 {self.size(value).text}, 0").text
        elif isinstance(kind, type) and self.unit.slots(kind):  # an object, or None
            condition = self.code.let(f"icmp ne ptr {value.text}, {self.constant(None).text}").text
        else:
            raise self.error(node, f"the truth of {kind}")
        self.code.branch(condition, yes, no)
        return self.code.label

    def _compare(self, node: ast.Compare, yes: str, no: str) -> None:
        if len(node.ops) > 1:  # what stands in the middle has no effects
            terms = zip([node.left, *node.comparators], node.ops, node.comparators)
            each: list[ast.expr] = [ast.Compare(a, [way], [b]) for a, way, b in terms]
            self.truth(ast.BoolOp(ast.And(), each), yes, no)
            return
        operator, right = node.ops[0], node.comparators[0]
        if isinstance(operator, ast.Is | ast.IsNot):
            a, b = self.boxed(node.left), self.boxed(right)
            way = "eq" if isinstance(operator, ast.Is) else "ne"
            self.code.branch(self.code.let(f"icmp {way} ptr {a.text}, {b.text}").text, yes, no)
            return
        if isinstance(operator, ast.NotEq | ast.NotIn):
            yes, no = no, yes
        a, b = self.value(node.left), self.value(right)
        if isinstance(operator, ast.Eq | ast.NotEq):
            self._equal(a, b, yes, no)
        elif type(operator) in _ORDERED:
            x, y = self.number(a), self.number(b)
            way = _ORDERED[type(operator)]
            self.code.branch(self.code.let(f"icmp {way} i64 {x.text}, {y.text}").text, yes, no)
        else:
            raise self.error(node, "no compiled function may use this comparison")

    def _equal(self, a: IrValue, b: IrValue, yes: str, no: str) -> None:
        kinds = {a.kind, b.kind}
        if Raw.FLOAT in kinds:
            x, y = self.real(a), self.real(b)
            self.code.branch(self.code.let(f"fcmp oeq double {x.text}, {y.text}").text, yes, no)
        elif Raw.INT in kinds or int in kinds:
            if not kinds & {Raw.INT}:  # most often one object
                other = self.code.fresh("other")
                self.code.branch(self.code.let(f"icmp eq ptr {a.text}, {b.text}").text, yes, other)
                self.code.start(other)
            x, y = self.number(a), self.number(b)
            self.code.branch(self.code.let(f"icmp eq i64 {x.text}, {y.text}").text, yes, no)
        else:
            x, y = self.box(a), self.box(b)
            tables = class_of(a.kind) is class_of(b.kind) is dict
            if tables:
                self.check(x, dict)
                self.check(y, dict)
            how = "@same_items" if tables else "@equal"
            answer = self.code.let(f"call i8 {how}(ptr {x.text}, ptr {y.text})").text
            self.bail_if(self.code.let(f"icmp eq i8 {answer}, {BAIL}").text)
            self.code.branch(self.code.let(f"icmp eq i8 {answer}, {YES}").text, yes, no)


def _is_hashable(function: object) -> bool:
    return isinstance(function, FunctionType | BuiltinFunctionType | type)
