"""From tiles to threads: the text of a tile kernel as the text of a kernel of threads.

A tile's elements are dealt out to the threads of a block in turn, so thread t has elements t,
t + T, t + 2T... in registers, and what is pointwise is done by each thread for its own. A tile that
others read by rows or columns (`dot`, `v[:, None]`, `v.sum(axis=1)`) lies in shared memory too.
Reductions go over a thread's own elements, the lanes of a warp, and the warps.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import NoReturn

from ridgeline.simt.frontend.problems import problem
from ridgeline.simt.frontend.source import CapturedFunction
from ridgeline.simt.ir import SourcePlace
from ridgeline.simt.tile.language import POINTWISE

_REDUCTIONS = {"max": ("max", "-inf"), "min": ("min", "inf"), "sum": ("+", "0")}
_SYMBOLS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<",
    ast.RShift: ">>", ast.USub: "-", ast.UAdd: "+", ast.Not: "not ", ast.Invert: "~", ast.Lt: "<",
    ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_ELEMENT = "e_"  # the number of a thread's own element
_PLACE = "q_"  # the element's place in its tile


@dataclass(frozen=True)
class IndexSpan:
    """Indices from a start on, as many as a size says."""

    start: str
    size: str


@dataclass(frozen=True)
class TileType:
    """The sizes of a tile and its element type, as texts."""

    shape: tuple[str, ...]
    dtype: str

    @property
    def total(self) -> str:
        """How many elements it has."""
        return " * ".join(f"({size})" for size in self.shape)


@dataclass
class TileElement:
    """One element of a tile expression: its text, and where it counts."""

    text: str
    masks: list[str] = field(default_factory=list)


def lowered(captured: CapturedFunction, threads: int) -> str:
    """The text of the kernel of threads."""
    return _Lowering(captured, threads).text()


class _Lowering:
    def __init__(self, captured: CapturedFunction, threads: int) -> None:
        self.captured, self.count = captured, threads
        self.function = captured.tree
        self.lines: list[str] = []
        self.depth = 1
        self.arrays = self._arrays()
        self.spans: dict[str, IndexSpan] = {}
        self.tiles: dict[str, TileType] = {}
        self.masks: dict[str, list[str]] = {}  # where a tile variable's elements count
        self.shared: set[str] = set()
        self.fresh = 0

    def text(self) -> str:
        """The whole function."""
        head = ast.unparse(self.function.args)
        self._reduction_memory()
        for statement in self.function.body:
            self._statement(statement)
        return f"def {self.function.name}({head}):\n" + "\n".join(self.lines) + "\n"

    def _arrays(self) -> dict[str, str]:
        """The array parameters with their element types."""
        found = {}
        for parameter in self.function.args.args:
            kind = parameter.annotation
            if isinstance(kind, ast.Subscript) and ast.unparse(kind.value) in ("out", "inout"):
                kind = kind.slice
            if isinstance(kind, ast.Subscript):
                found[parameter.arg] = ast.unparse(kind.value)
        return found

    def _reduction_memory(self) -> None:
        calls = [n for n in ast.walk(self.function) if isinstance(n, ast.Call)]
        if any(isinstance(c.func, ast.Attribute) and c.func.attr in _REDUCTIONS for c in calls):
            self._put(f"reduced_f32 = shared({self.count // 32}, f32)")

    # ---- text ---------------------------------------------------------------------------------

    def _put(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def _name(self, word: str) -> str:
        self.fresh += 1
        return f"{word}_{self.fresh}"

    def _fail(self, node: ast.AST, message: str, help: str = "") -> NoReturn:
        source = self.captured.source
        line, column = getattr(node, "lineno", source.first), getattr(node, "col_offset", 0)
        raise problem(message, SourcePlace(source.path, line, column + 1), source, help)

    # ---- statements ---------------------------------------------------------------------------

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, value in zip(targets, values):
                    self._assign(target, value)
            case ast.Assign(targets=[target], value=value):
                self._assign(target, value)
            case ast.AugAssign(target=target, op=op, value=value):
                whole = ast.BinOp(_loaded(target), op, value)
                self._assign(target, ast.copy_location(whole, node))
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as call, body=body):
                self._for(name, call, body)
            case ast.If():
                self._put(f"if {self._scalar(node.test)}:")
                self._body(node.body)
                if node.orelse:
                    self._put("else:")
                    self._body(node.orelse)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case _:
                self._fail(node, f"tile kernels have no {type(node).__name__}")

    def _body(self, body: list[ast.stmt]) -> None:
        self.depth += 1
        before = len(self.lines)
        for statement in body:
            self._statement(statement)
        if len(self.lines) == before:
            self._put("pass")
        self.depth -= 1

    def _for(self, name: str, call: ast.Call, body: list[ast.stmt]) -> None:
        if _is_word(call, "range"):
            length, size = self._scalar(call.args[0]), ast.unparse(call.args[1])
            start = self._name("start")
            self.spans[name] = IndexSpan(start, size)
            self._put(f"for {start} in range(0, {length}, {size}):")
        else:
            self._put(f"for {name} in {self._scalar(call)}:")
        self._body(body)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Subscript):
            self._store(target, value)
            return
        if not isinstance(target, ast.Name):
            self._fail(target, "tiles are assigned to names and to elements of arrays")
        if isinstance(value, ast.Call) and _is_word(value, "span"):
            start, size = (self._scalar(value.args[0]), ast.unparse(value.args[1]))
            held = self._name("start")
            self._put(f"{held} = {start}")
            self.spans[target.id] = IndexSpan(held, size)
            return
        value = self._extracted(value)
        kind = self._type(value)
        if kind is None:
            self._put(f"{target.id} = {self._scalar(value)}")
            return
        self._tile(target.id, kind, value)

    def _tile(self, name: str, kind: TileType, value: ast.expr) -> None:
        """A tile variable takes the value of a tile expression."""
        known = self.tiles.get(name)
        if known is None:
            self._put(f"{name} = simt.local({self._own(kind)}, {kind.dtype})")
            self.tiles[name] = kind
        elif known.shape != kind.shape:
            self._fail(value, f"{name} is a tile of {known.shape} and is given one of {kind.shape}")
        kind = self.tiles[name]
        element = self._element(value, kind)
        # what goes on adding up counts everywhere: elements past an end have added zeros
        again = any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value))
        self.masks[name] = [] if again else list(dict.fromkeys(element.masks))
        self._elementwise(kind, f"{name}[{_ELEMENT}] = {element.text}")
        if name in self.shared:
            self._share(name, kind)

    def _elementwise(self, kind: TileType, line: str) -> None:
        """A line for every element that a thread has of a tile."""
        self._put(f"for {_ELEMENT} in simt.unroll({self._own(kind)}):")
        self.depth += 1
        self._put(f"{_PLACE} = {_ELEMENT} * {self.count} + threadIdx.x")
        self._put(line)
        self.depth -= 1

    def _own(self, kind: TileType) -> str:
        """How many elements of a tile a thread has."""
        return f"({kind.total} + {self.count - 1}) // {self.count}"

    def _share(self, name: str, kind: TileType) -> None:
        self._put("syncthreads()")
        inside = f"if {_PLACE} < {kind.total}:"
        self._elementwise(kind, f"{inside} {name}_s[{_PLACE}] = {name}[{_ELEMENT}]")
        self._put("syncthreads()")

    def _in_shared(self, name: str) -> str:
        """The shared memory of a tile variable, which is there from now on."""
        kind = self.tiles[name]
        if name not in self.shared:
            self.shared.add(name)
            self.lines.insert(0, f"    {name}_s = shared({kind.total}, {kind.dtype})")
            self._share(name, kind)
        return f"{name}_s"

    def _store(self, target: ast.Subscript, value: ast.expr) -> None:
        name = ast.unparse(target.value)
        if name not in self.arrays:
            self._fail(target, f"{name} is no array of this kernel")
        value = self._extracted(value)
        sizes = self._span_sizes(target)
        if not sizes:
            index = ", ".join(self._scalar(part) for part in _indices(target))
            self._put(f"if threadIdx.x == 0: {name}[{index}] = {self._scalar(value)}")
            return
        kind = TileType(sizes, self.arrays[name])
        index, text = ", ".join(self._index(target, kind)), self._element(value, kind).text
        put = f"{name}.put({index}, {self.arrays[name]}({text}))"
        self._elementwise(kind, f"if {_PLACE} < {kind.total}: {put}")

    # ---- what is taken out of expressions -----------------------------------------------------

    def _extracted(self, value: ast.expr) -> ast.expr:
        """An expression whose reductions and products are variables of their own."""
        made = _Extraction(self).visit(value)
        assert isinstance(made, ast.expr)
        return made

    def reduced(self, node: ast.Call, inner: ast.expr) -> ast.expr:
        """The variable that holds a reduction."""
        assert isinstance(node.func, ast.Attribute)
        name = node.func.attr
        kind = self._type(inner)
        if kind is None:
            self._fail(node, f"{name}() is of a tile")
        axes = [k.value for k in node.keywords if k.arg in ("axis", "dim")] + node.args
        if axes:
            return self._reduced_rows(name, inner, kind, int(ast.unparse(axes[0])))
        join, start = _REDUCTIONS[name]
        held, first = self._name(name), f'f32("{start}")' if start != "0" else "f32(0)"
        element = self._element(inner, kind)
        where = " and ".join((f"{_PLACE} < {kind.total}", *dict.fromkeys(element.masks)))
        self._put(f"{held} = {first}")
        joined = _joined(join, held, f"f32({element.text})")
        self._elementwise(kind, f"if {where}: {held} = {joined}")
        self._put(f"{held} = simt.warp_{name}({held})")
        self._put("syncthreads()")
        self._put(f"if simt.lane == 0: reduced_f32[simt.warp] = {held}")
        self._put("syncthreads()")
        self._put(f"{held} = reduced_f32[0]")
        for warp in range(1, self.count // 32):
            self._put(f"{held} = {_joined(join, held, f'reduced_f32[{warp}]')}")
        return ast.Name(held, ast.Load())

    def _reduced_rows(self, name: str, inner: ast.expr, kind: TileType, axis: int) -> ast.expr:
        if len(kind.shape) != 2 or axis not in (0, 1, -1):
            self._fail(inner, "reductions along an axis are of tiles with two axes")
        source = self._named(inner, kind)
        memory = self._in_shared(source)
        kept, gone = (kind.shape[1], kind.shape[0]) if axis == 0 else kind.shape
        join, start = _REDUCTIONS[name]
        held, result = self._name("line"), TileType((kept,), "f32")
        self.tiles[held] = result
        self._put(f"{held} = simt.local({self._own(result)}, f32)")
        self._put(f"for {_ELEMENT} in simt.unroll({self._own(result)}):")
        self.depth += 1
        self._put(f"{_PLACE} = {_ELEMENT} * {self.count} + threadIdx.x")
        first = f'f32("{start}")' if start != "0" else "f32(0)"
        self._put(f"part_ = {first}")
        self._put(f"if {_PLACE} < {kept}:")
        self.depth += 1
        place = f"k_ * ({kept}) + {_PLACE}" if axis == 0 else f"{_PLACE} * ({gone}) + k_"
        self._put(f"for k_ in range({gone}):")
        self.depth += 1
        counts = [_placed(mask, place) for mask in self.masks.get(source, [])]
        part = f"part_ = {_joined(join, 'part_', f'f32({memory}[{place}])')}"
        self._put(f"if {' and '.join(counts)}: {part}" if counts else part)
        self.depth -= 2
        self._put(f"{held}[{_ELEMENT}] = part_")
        self.depth -= 1
        return ast.Name(held, ast.Load())

    def product(self, left: ast.expr, right: ast.expr) -> ast.expr:
        """The variable that holds `tile.dot(left, right)`."""
        kinds = [self._type(side) for side in (left, right)]
        a, b = kinds
        if a is None or b is None or len(a.shape) != 2 or len(b.shape) != 2:
            self._fail(left, "tile.dot takes two tiles with two axes each")
        if a.shape[1] != b.shape[0]:
            self._fail(left, f"tile.dot of tiles of {a.shape} and {b.shape}")
        one, other = (self._in_shared(self._named(s, k)) for s, k in ((left, a), (right, b)))
        held, kind = self._name("dot"), TileType((a.shape[0], b.shape[1]), "f32")
        self.tiles[held] = kind
        self._put(f"{held} = simt.local({self._own(kind)}, f32)")
        self._put(f"for {_ELEMENT} in simt.unroll({self._own(kind)}):")
        self.depth += 1
        self._put(f"{_PLACE} = {_ELEMENT} * {self.count} + threadIdx.x")
        row, column = self._coordinates(kind)
        self._put("part_ = f32(0)")
        self._put(f"if {_PLACE} < {kind.total}:")
        self._put(f"    for k_ in range({a.shape[1]}):")
        left_at, right_at = f"{row} * ({a.shape[1]}) + k_", f"k_ * ({b.shape[1]}) + {column}"
        self._put(f"        part_ += f32({one}[{left_at}]) * f32({other}[{right_at}])")
        self._put(f"{held}[{_ELEMENT}] = part_")
        self.depth -= 1
        return ast.Name(held, ast.Load())

    def _named(self, value: ast.expr, kind: TileType) -> str:
        """The variable that holds a tile."""
        if isinstance(value, ast.Name) and value.id in self.tiles:
            return value.id
        name = self._name("tile")
        self._tile(name, kind, value)
        return name

    # ---- expressions --------------------------------------------------------------------------

    def _span_sizes(self, node: ast.Subscript) -> tuple[str, ...]:
        """The sizes of the spans among the indices of an array."""
        names = [i.id for i in _indices(node) if isinstance(i, ast.Name)]
        return tuple(self.spans[name].size for name in names if name in self.spans)

    def _is_span(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.spans

    def _type(self, node: ast.expr) -> TileType | None:
        """The type of a tile expression; None for a number."""
        match node:
            case ast.Name(id=name):
                return self.tiles.get(name)
            case ast.Subscript(value=ast.Name(id=name)) if name in self.arrays:
                spans = self._span_sizes(node)
                return TileType(spans, self.arrays[name]) if spans else None
            case ast.Subscript(value=ast.Name(id=name)) if name in self.tiles:
                return None  # a line that is spread over a tile: the others say how far
            case ast.Call() if _is_word(node, "zeros") or _is_word(node, "full"):
                shape = node.args[0]
                sizes = shape.elts if isinstance(shape, ast.Tuple) else [shape]
                return TileType(tuple(map(ast.unparse, sizes)), ast.unparse(node.args[-1]))
            case ast.Call(func=ast.Name(id=cast), args=[inner]):
                kind = self._type(inner)
                return None if kind is None else TileType(kind.shape, cast)
            case ast.Compare():
                kinds = [self._type(e) for e in (node.left, *node.comparators)]
                known = next((k for k in kinds if k), None) or self._outer(node)
                return None if known is None else TileType(known.shape, "bool_")
            case ast.Call() if _is_word(node, "where"):
                first, second = self._type(node.args[1]), self._type(node.args[2])
                condition = self._type(node.args[0])
                known = first or second
                if known is None and condition is not None:
                    return TileType(condition.shape, "f32")
                return known
        children = [e for e in ast.iter_child_nodes(node) if isinstance(e, ast.expr)]
        found = [kind for kind in map(self._type, children) if kind is not None]
        for kind in found[1:]:
            if kind.shape != found[0].shape:
                self._fail(node, f"tiles of {found[0].shape} and {kind.shape} do not fit",
                           "v[:, None] and v[None, :] spread a line over a tile")  # fmt: skip
        return found[0] if found else self._outer(node)

    def _outer(self, node: ast.expr) -> TileType | None:
        """The tile over which lines of both axes are spread."""
        sizes: dict[int, TileType] = {}
        for part in ast.walk(node):
            if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name):
                line = self.tiles.get(part.value.id)
                if line is not None:
                    sizes.setdefault(_spread_axis(part), line)
        if sizes.keys() != {0, 1}:
            return None
        return TileType((sizes[0].shape[0], sizes[1].shape[0]), sizes[0].dtype)

    def _scalar(self, node: ast.expr) -> str:
        """A number that all threads have, as text."""
        return self._element(self._extracted(node), None).text

    def _element(self, node: ast.expr, kind: TileType | None) -> TileElement:
        """An expression for one element of a tile of a type, or as a number."""
        match node:
            case ast.Name(id=name) if name in self.tiles and kind is not None:
                held = f"{name}[{_ELEMENT}]"
                return TileElement(held, self.masks.get(name, []))
            case ast.Subscript(value=ast.Name(id=name)) if name in self.arrays and kind is not None:
                if self._type(node) is not None:
                    return self._loaded(node, name, kind)
            case ast.Subscript(value=ast.Name(id=name)) if name in self.tiles and kind is not None:
                place = self._coordinates(kind)[_spread_axis(node)]
                masks = [_placed(mask, place) for mask in self.masks.get(name, [])]
                return TileElement(f"{self._in_shared(name)}[{place}]", masks)
            case ast.Call() if _is_word(node, "zeros"):
                return TileElement(f"{ast.unparse(node.args[1])}(0)")
            case ast.Call() if _is_word(node, "full"):
                value = self._element(node.args[1], None).text
                return TileElement(f"{ast.unparse(node.args[2])}({value})")
            case ast.Call() if _is_word(node, "block"):
                letter = "xyz"[int(ast.unparse(node.args[0])) if node.args else 0]
                return TileElement(f"blockIdx.{letter}")
            case ast.Call() if _is_word(node, "where"):
                c, a, b = (self._element(e, kind) for e in node.args)
                return TileElement(f"({a.text} if {c.text} else {b.text})", _masks([c, a, b]))
            case ast.Call(func=ast.Attribute(attr=name)) if (
                _is_word(node, name) and name in POINTWISE
            ):
                parts = [self._element(e, kind) for e in node.args]
                texts = ", ".join(p.text for p in parts)
                return TileElement(f"{POINTWISE[name]}({texts})", _masks(parts))
        return self._rebuilt(node, kind)

    def _rebuilt(self, node: ast.expr, kind: TileType | None) -> TileElement:
        """An expression of Python's own, over elements."""
        match node:
            case ast.BinOp():
                parts = [self._element(e, kind) for e in (node.left, node.right)]
                text = f"({parts[0].text} {_SYMBOLS[type(node.op)]} {parts[1].text})"
            case ast.UnaryOp():
                parts = [self._element(node.operand, kind)]
                text = f"({_SYMBOLS[type(node.op)]}{parts[0].text})"
            case ast.Compare(ops=[op], comparators=[right]):
                parts = [self._element(e, kind) for e in (node.left, right)]
                text = f"({parts[0].text} {_SYMBOLS[type(op)]} {parts[1].text})"
            case ast.BoolOp():
                parts = [self._element(e, kind) for e in node.values]
                word = " and " if isinstance(node.op, ast.And) else " or "
                text = f"({word.join(part.text for part in parts)})"
            case ast.Call():
                parts = [self._element(e, kind) for e in node.args]
                inner = ", ".join(part.text for part in parts)
                text = f"{ast.unparse(node.func)}({inner})"
            case ast.Name() | ast.Constant() | ast.Attribute() | ast.Subscript():
                return TileElement(ast.unparse(node))
            case _:
                self._fail(node, f"tile kernels have no {type(node).__name__}")
        return TileElement(text, _masks(parts))

    def _loaded(self, node: ast.Subscript, name: str, kind: TileType) -> TileElement:
        index = self._index(node, kind)
        masks = [
            f"{at} < {name}.shape[{axis}]"
            for axis, (at, i) in enumerate(zip(index, _indices(node)))
            if self._is_span(i)
        ]
        return TileElement(f"{name}.get({', '.join(index)}, 0)", masks)

    def _index(self, node: ast.Subscript, kind: TileType) -> list[str]:
        places = iter(self._coordinates(kind))
        found = []
        for index in _indices(node):
            if isinstance(index, ast.Name) and index.id in self.spans:
                found.append(f"{self.spans[index.id].start} + {next(places)}")
            else:
                found.append(self._element(index, None).text)
        return found

    def _coordinates(self, kind: TileType) -> list[str]:
        if len(kind.shape) == 1:
            return [_PLACE]
        return [f"{_PLACE} // ({kind.shape[1]})", f"{_PLACE} % ({kind.shape[1]})"]


class _Extraction(ast.NodeTransformer):
    """Takes reductions and products out of an expression, innermost first."""

    def __init__(self, lowering: _Lowering) -> None:
        self.lowering = lowering

    def visit_Call(self, node: ast.Call) -> ast.expr:
        made = self.generic_visit(node)
        assert isinstance(made, ast.Call)
        if _is_word(made, "dot"):
            return self.lowering.product(*made.args)
        if isinstance(made.func, ast.Attribute) and made.func.attr in _REDUCTIONS:
            inner = made.func.value
            if not (isinstance(inner, ast.Name) and inner.id in ("tile", "simt")):
                return self.lowering.reduced(made, inner)
        return made


def _spread_axis(node: ast.Subscript) -> int:
    """The axis along which `v[:, None]` or `v[None, :]` lies."""
    return next((n for n, i in enumerate(_indices(node)) if not _is_none(i)), -1)


def _placed(mask: str, place: str) -> str:
    """Where an element counts, for one at another place."""
    return re.sub(rf"\b{_PLACE}\b", f"({place})", mask)


def _joined(join: str, a: str, b: str) -> str:
    return f"{a} + {b}" if join == "+" else f"{join}({a}, {b})"


def _masks(parts: list[TileElement]) -> list[str]:
    return [mask for part in parts for mask in part.masks]


def _indices(node: ast.Subscript) -> list[ast.expr]:
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_word(call: ast.Call, name: str) -> bool:
    """Whether a call is of `tile.name`."""
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == name
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "tile"
    )


def _loaded(target: ast.expr) -> ast.expr:
    loaded = ast.parse(ast.unparse(target), mode="eval").body
    return ast.copy_location(loaded, target)
