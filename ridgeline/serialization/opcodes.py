"""A pickle, interpreted opcode by opcode: values and containers, and a few names with a meaning.

`pickle.Unpickler` calls whatever a file names. This machine has no way to: a name is looked up in
the table of `names.py`, a call goes to what stands there, and an object's state is set in the two
ways that plain values need. Nothing recurses, so depth is no danger; keys are small, since hashing
a deep tuple would be.
"""

from __future__ import annotations

import pickletools
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import IO, Any

from ridgeline.errors import InputFileError
from ridgeline.serialization.allowed import Allowed, is_allowed
from ridgeline.serialization.names import Element, Made, Refused, SavedArray, name_of, plain_key

_STATE = "_metadata"  # the attribute that torch gives the dict of a module's state
_VALUES = frozenset((
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING",
    "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
))  # fmt: skip
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set,
}  # fmt: skip
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")
_GETS = ("GET", "BINGET", "LONG_BINGET")
_IGNORED = ("PROTO", "FRAME")


def run(file: IO[bytes], persistent: Callable[[Any], Any]) -> Any:
    """The object of the pickle that begins here; `persistent` gives what stands for a storage."""
    machine = PickleMachine(persistent)
    try:
        for opcode, argument, _ in pickletools.genops(file):
            if opcode.name == "STOP":
                return machine.result()
            machine.do(opcode.name, argument)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise InputFileError(
            f"the file is damaged: its pickle cannot be read ({error!s:.80})",
            help="use another copy of it",
        ) from error
    raise InputFileError("the file is damaged: its pickle has no end")


class PickleMachine:
    """The stack of a pickle, its marks and what it put aside."""

    def __init__(self, persistent: Callable[[Any], Any]) -> None:
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._persistent = persistent

    def result(self) -> Any:
        """What is left when the pickle ends."""
        (found,) = self._stack
        return _finished(found)

    def do(self, name: str, argument: Any) -> None:
        """Carry out one opcode."""
        stack = self._stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        elif name in _PUTS:
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in _GETS:
            stack.append(self._memo[argument])
        elif name in _TUPLES:
            self._push(tuple(self._pop(_TUPLES[name])))
        elif name == "MARK":
            self._marks.append(len(stack))
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._since_mark()
        elif name == "DUP":
            stack.append(stack[-1])
        elif name not in _IGNORED:
            method = getattr(self, f"_{name.lower()}", None)
            if method is None:
                raise InputFileError(
                    f"the file is refused: its pickle uses {name}, which no saved tensor needs"
                )
            method(argument)

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self, count: int) -> list[Any]:
        if len(self._stack) < count or (self._marks and len(self._stack) - count < self._marks[-1]):
            raise ValueError("an operand is missing")
        found = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return [_finished(value) for value in found]

    def _since_mark(self) -> list[Any]:
        begin = self._marks.pop()
        found = [_finished(value) for value in self._stack[begin:]]
        del self._stack[begin:]
        return found

    def _tuple(self, _: Any) -> None:
        self._push(tuple(self._since_mark()))

    def _list(self, _: Any) -> None:
        self._push(self._since_mark())

    def _dict(self, _: Any) -> None:
        made: dict[Any, Any] = {}
        _set_items(made, self._since_mark())
        self._push(made)

    def _frozenset(self, _: Any) -> None:
        self._push(frozenset(map(plain_key, self._since_mark())))

    def _append(self, _: Any) -> None:
        (value,) = self._pop(1)
        _list_of(self._stack[-1]).append(value)

    def _appends(self, _: Any) -> None:
        values = self._since_mark()
        _list_of(self._stack[-1]).extend(values)

    def _setitem(self, _: Any) -> None:
        pair = self._pop(2)
        _set_items(self._stack[-1], pair)

    def _setitems(self, _: Any) -> None:
        items = self._since_mark()
        _set_items(self._stack[-1], items)

    def _additems(self, _: Any) -> None:
        values = self._since_mark()
        if type(self._stack[-1]) is not set:
            raise ValueError("elements for what is no set")
        self._stack[-1].update(map(plain_key, values))

    def _global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._push(name_of(module, name))

    def _stack_global(self, _: Any) -> None:
        module, name = self._pop(2)
        if not (isinstance(module, str) and isinstance(name, str)):
            raise ValueError("a name that is no text")
        self._push(name_of(module, name))

    def _call(self) -> tuple[Any, tuple[Any, ...]]:
        """What is called, and with what."""
        (arguments,) = self._pop(1)
        if type(arguments) is not tuple:
            raise ValueError("a call with what are no arguments")
        called = self._stack[-1]
        self._pop(1)
        if isinstance(called, Refused):
            raise called.error()
        if not isinstance(called, Made | Allowed):
            raise ValueError("a call of what is no function")
        return called, arguments

    def _reduce(self, _: Any) -> None:
        called, arguments = self._call()
        give = called.called(arguments) if isinstance(called, Allowed) else called.make(*arguments)
        self._push(give)

    def _newobj(self, _: Any) -> None:
        called, arguments = self._call()
        give = called.made(arguments) if isinstance(called, Allowed) else called.make(*arguments)
        self._push(give)

    def _binpersid(self, _: Any) -> None:
        (key,) = self._pop(1)
        self._push(self._persistent(key))

    def _build(self, _: Any) -> None:
        """Give an object its state: an array its contents, torch's dicts their one attribute."""
        (state,) = self._pop(1)
        target = self._stack[-1]
        if isinstance(target, SavedArray | Element):
            target.build(state)
        elif type(target) is OrderedDict and type(state) is dict:
            if _STATE in state:
                setattr(target, _STATE, state[_STATE])
        elif is_allowed(type(target)):
            _set_state(target, state)
        elif isinstance(target, Refused):
            raise target.error()
        else:
            raise ValueError(f"state for {type(target).__name__}")


def _finished(value: Any) -> Any:
    """An array that has got its contents, as the array; a class as itself; all else as it is."""
    if isinstance(value, Allowed) or (isinstance(value, Made) and value.value is not None):
        return value.value
    return value.value() if isinstance(value, SavedArray) and value.built else value


def _set_state(target: Any, state: Any) -> None:
    """Give an object of a class that the program allows its attributes, as `pickle` does."""
    if hasattr(target, "__setstate__"):
        target.__setstate__(state)
        return
    own, slots = state if type(state) is tuple and len(state) == 2 else (state, None)
    for part in (own, slots):
        if part is not None and (
            type(part) is not dict or not all(type(name) is str for name in part)
        ):
            raise ValueError(f"a state of {type(target).__name__} that is no dict")
    if own:
        vars(target).update(own)
    for name, value in (slots or {}).items():
        setattr(target, name, value)


def _list_of(target: Any) -> Any:
    kind = type(target)
    if kind not in (list, deque) and not (isinstance(target, list) and is_allowed(kind)):
        raise ValueError("elements for what is no list")
    return target


def _set_items(target: Any, items: list[Any]) -> None:
    if not isinstance(target, dict) or len(items) % 2:
        raise ValueError("items for what is no dict")
    for key, value in zip(items[::2], items[1::2]):
        target[plain_key(key)] = value
