"""A function's syntax in which every read from outside and every call reports itself.

The rewritten text does what the original does, in the same order, on the same lines; each report
is a call of a method of one object, `HOOKS`, which the copy finds among its free variables.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, TypeVar

from ridgeline.tracing.reads.patterns import written
from ridgeline.tracing.reads.scopes import (
    Comprehension,
    Scope,
    class_scope,
    comprehension_scope,
    function_scope,
    is_global,
)
from ridgeline.tracing.reads.source import Definition, Function

HOOKS = "__ridgeline_reads__"
OWN_NAMES = "_ridgeline_"  # with which the variables begin that a copy has besides
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.MatMult: "matmul", ast.LShift: "lshift",
    ast.RShift: "rshift", ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor",
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
    ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert",
    ast.Is: "is_", ast.IsNot: "is_not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
N = TypeVar("N", bound=ast.AST)


def rewritten(definition: Definition, free: frozenset[str]) -> Function:
    """The function with reports; `free` are the names that it takes from functions around it."""
    return _Rewriter(definition.owner, free).function(deepcopy(definition.node))


class _Rewriter(ast.NodeTransformer):
    def __init__(self, owner: str, free: frozenset[str]) -> None:
        self._owners = [owner]  # classes around, for private names
        self._free = free
        self._scopes: list[Scope] = []
        self._first: list[str | None] = []  # the first arguments of the functions around

    def function(self, node: Function) -> Function:
        """The outermost function: its decorators, defaults and annotations belong outside."""
        node.args.defaults = [ast.Constant(None) for _ in node.args.defaults]
        node.args.kw_defaults = [d and ast.Constant(None) for d in node.args.kw_defaults]
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        self._inside(node)
        if not isinstance(node, ast.Lambda):
            node.decorator_list, node.returns = [], None
        return node

    def _inside(self, node: Function) -> None:
        """Rewrite the body of a function."""
        every = [*node.args.posonlyargs, *node.args.args]
        self._scopes.append(function_scope(node))
        self._first.append(every[0].arg if every else None)
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            node.body = self._statements(node.body)
        self._first.pop()
        self._scopes.pop()

    def _statements(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in body:
            found = self.visit(statement)
            made += found if isinstance(found, list) else [found]
        return made

    def _report(self, node: ast.AST, method: str, *args: ast.expr) -> ast.Call:
        hook = ast.Attribute(ast.Name(HOOKS, ast.Load()), method, ast.Load())
        return _at(ast.Call(hook, list(args), []), node)

    def _text(self, name: str) -> ast.Constant:
        return ast.Constant(self._mangled(name))

    def _mangled(self, name: str) -> str:
        owner = self._owners[-1].lstrip("_")
        private = name.startswith("__") and not name.endswith("__") and "." not in name
        return f"_{owner}{name}" if private and owner else name

    # ---- names and functions --------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> ast.expr:
        name = self._mangled(node.id)
        if not isinstance(node.ctx, ast.Load) or not is_global(name, self._scopes, self._free):
            return node
        return node if name == "__debug__" else self._report(node, "name", ast.Constant(name))

    def visit_Global(self, node: ast.Global) -> list[ast.stmt]:
        seen = [
            _at(ast.Expr(self._report(node, "rebinds", self._text(name))), node)
            for name in node.names
        ]
        return [node, *seen]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._nested(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._nested(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._nested(node)

    def _nested(self, node: Function) -> ast.AST:
        node.args.defaults = [self.visit(d) for d in node.args.defaults]
        node.args.kw_defaults = [d and self.visit(d) for d in node.args.kw_defaults]
        if not isinstance(node, ast.Lambda):
            node.decorator_list = self._decorators(node.decorator_list)
        self._inside(node)
        return node

    def _decorators(self, given: Sequence[ast.expr]) -> list[ast.expr]:
        return [self._report(d, "call", self.visit(d)) for d in given]

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        built = _at(ast.Attribute(ast.Name(HOOKS, ast.Load()), "built", ast.Load()), node)
        node.decorator_list = [*self._decorators(node.decorator_list), built]
        node.bases = [self.visit(b) for b in node.bases]
        node.keywords = [self.visit(k) for k in node.keywords]
        self._scopes.append(class_scope(node))
        self._owners.append(node.name)
        node.body = self._statements(node.body)
        self._owners.pop()
        self._scopes.pop()
        return node

    def visit_Import(self, node: ast.Import) -> Any:
        names = [(alias.name, 0, "") for alias in node.names]
        return self._imported(node, names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        names = [(node.module or "", node.level, alias.name) for alias in node.names]
        return self._imported(node, names)

    def _imported(
        self, node: ast.Import | ast.ImportFrom, names: list[tuple[str, int, str]]
    ) -> list[ast.stmt]:
        """An import, between reports of what it loads and what it finds, or that it fails."""

        def said(method: str, *args: str | int) -> ast.stmt:
            return _at(
                ast.Expr(self._report(node, method, *[ast.Constant(arg) for arg in args])), node
            )

        failed = ast.ExceptHandler(None, None, [said("import_failed"), ast.Raise()])
        return [
            *(said("importing", module, level) for module, level, _ in names),
            _at(ast.Try([node], [failed], [], []), node),
            *(said("imported", *name) for name in names),
        ]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        value = node.value and self.visit(node.value)
        made = ast.AnnAssign(self.visit(node.target), node.annotation, value, node.simple)
        return _at(made, node)

    # ---- reads ----------------------------------------------------------------------------------

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        value, name = self.visit(node.value), self._text(node.attr)
        if isinstance(node.ctx, ast.Load):
            return self._report(node, "attribute", value, name)
        owner = self._report(node, "changing", value)
        return _at(ast.Attribute(owner, node.attr, node.ctx), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        value = self.visit(node.value)
        if isinstance(node.ctx, ast.Load):
            return self._report(node, "item", value, self._key(node.slice))
        owner = self._report(node, "changing_item", value)
        return _at(ast.Subscript(owner, self.visit(node.slice), node.ctx), node)

    def _key(self, node: ast.expr) -> ast.expr:
        """What stands between brackets, as a value."""
        if isinstance(node, ast.Slice):
            ends = [self.visit(e) if e else ast.Constant(None) for e in (node.lower, node.upper)]
            step = self.visit(node.step) if node.step else ast.Constant(None)
            return self._report(node, "slice", *ends, step)
        if isinstance(node, ast.Tuple):
            return _at(ast.Tuple([self._key(e) for e in node.elts], ast.Load()), node)
        made: ast.expr = self.visit(node)
        return made

    def visit_Starred(self, node: ast.Starred) -> ast.AST:
        if not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        return _at(ast.Starred(self._iterated(node.value), node.ctx), node)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        keys = [key and self._hashed(key) for key in node.keys]
        values = [
            self.visit(v) if k is not None else self._report(v, "mapping", self.visit(v))
            for k, v in zip(node.keys, node.values)
        ]
        return _at(ast.Dict(keys, values), node)

    def visit_Set(self, node: ast.Set) -> ast.AST:
        return _at(ast.Set([self._hashed(e) for e in node.elts]), node)

    def _hashed(self, node: ast.expr) -> ast.expr:
        """A key of a dict or an element of a set, which numbers equal to it have to find."""
        if isinstance(node, ast.Constant | ast.Starred):
            made: ast.expr = self.visit(node)
            return made
        return self._report(node, "key", self.visit(node))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = node.func
        if isinstance(function, ast.Name) and function.id == "super" and not node.args:
            first = self._first[-1] if self._first else None
            if first is not None and is_global("super", self._scopes, self._free):
                given = [ast.Name("__class__", ast.Load()), ast.Name(first, ast.Load())]
                return _at(ast.Call(function, [_at(g, node) for g in given], []), node)
        if isinstance(function, ast.Attribute):
            name = self._text(function.attr)
            called = self._report(function, "method", self.visit(function.value), name)
        else:
            called = self._report(function, "call", self.visit(function))
        args = [self.visit(a) for a in node.args]
        keywords = [
            _at(ast.keyword(k.arg, self.visit(k.value)), k)
            if k.arg is not None
            else _at(ast.keyword(None, self._report(k.value, "mapping", self.visit(k.value))), k)
            for k in node.keywords
        ]
        return _at(ast.Call(called, args, keywords), node)

    # ---- loops and unpacking --------------------------------------------------------------------

    def _iterated(self, node: ast.expr, target: ast.expr | None = None) -> ast.expr:
        """A value that is iterated over; elements that are unpacked are looked into as well."""
        nested = target is not None and isinstance(target, ast.Tuple | ast.List)
        return self._report(node, "iterate", self.visit(node), ast.Constant(nested))

    def _looped(self, loop: ast.comprehension) -> ast.expr:
        if loop.is_async:
            source: ast.expr = self.visit(loop.iter)
            return source
        return self._iterated(loop.iter, loop.target)

    def visit_For(self, node: ast.For) -> ast.AST:
        made = ast.For(
            self.visit(node.target), self._iterated(node.iter, node.target),
            self._statements(node.body), self._statements(node.orelse), node.type_comment,
        )  # fmt: skip
        return _at(made, node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        unpacked = [t for t in node.targets if isinstance(t, ast.Tuple | ast.List)]
        value = self._unpacked(node.value, unpacked[0]) if unpacked else self.visit(node.value)
        if any(self._is_outside(t) for t in node.targets):
            value = self._report(node, "kept", value)
        made = ast.Assign([self.visit(t) for t in node.targets], value, node.type_comment)
        return _at(made, node)

    def _is_outside(self, target: ast.expr) -> bool:
        """True for a name of the module or of a function around."""
        if not isinstance(target, ast.Name) or target.id not in self._scopes[-1].declared:
            return False
        return target.id in self._free or is_global(target.id, self._scopes, self._free)

    def _unpacked(self, node: ast.expr, target: ast.expr) -> ast.expr:
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else []
        inner = [part for part in parts if isinstance(part, ast.Tuple | ast.List)]
        return self._iterated(node, inner[0] if inner else None)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.AST:
        return _at(ast.YieldFrom(self._iterated(node.value)), node)

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        return self._comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        return self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
        return self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        return self._comprehension(node)

    def _comprehension(self, node: Comprehension) -> ast.AST:
        first = self._looped(node.generators[0])  # in the scope around
        self._scopes.append(comprehension_scope(node))
        loops = []
        for number, loop in enumerate(node.generators):
            source = first if number == 0 else self._looped(loop)
            tests = [self._test(t) for t in loop.ifs]
            loops.append(ast.comprehension(self.visit(loop.target), source, tests, loop.is_async))
        made: ast.AST
        if isinstance(node, ast.DictComp):
            made = ast.DictComp(self._hashed(node.key), self.visit(node.value), loops)
        elif isinstance(node, ast.SetComp):
            made = ast.SetComp(self._hashed(node.elt), loops)
        else:
            made = type(node)(self.visit(node.elt), loops)
        self._scopes.pop()
        return _at(made, node)

    # ---- operators, tests, texts ----------------------------------------------------------------

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        operator = ast.Constant(_OPERATORS[type(node.op)])
        return self._report(node, "binary", operator, self.visit(node.left), self.visit(node.right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not):
            return _at(ast.UnaryOp(node.op, self._test(node.operand)), node)
        if isinstance(node.operand, ast.Constant):
            return node
        operator = ast.Constant(_OPERATORS[type(node.op)])
        return self._report(node, "unary", operator, self.visit(node.operand))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        operator, value = ast.Constant(_OPERATORS[type(node.op)]), self.visit(node.value)
        if isinstance(node.target, ast.Name):
            before = self.visit(_at(ast.Name(node.target.id, ast.Load()), node.target))
            after = self._report(node, "inplace", operator, before, value)
            if self._is_outside(node.target):
                after = self._report(node, "kept", after)
            return _at(ast.Assign([node.target], after), node)
        owner = self.visit(node.target.value)
        if isinstance(node.target, ast.Attribute):
            name = self._text(node.target.attr)
            by: ast.expr = self._report(node, "augmenting", operator, owner, name)
        else:
            key = self._key(node.target.slice)
            by = self._report(node, "augmenting_item", operator, owner, key)
        return _at(ast.Expr(_at(ast.Call(by, [value], []), node)), node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        parts = [self.visit(part) for part in (node.left, *node.comparators)]
        if len(parts) == 2:
            operator = ast.Constant(_OPERATORS[type(node.ops[0])])
            return self._report(node, "compare", operator, *parts)
        seen: list[ast.expr] = [self._report(node, "observe", part) for part in parts]
        return _at(ast.Compare(seen[0], node.ops, seen[1:]), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        *first, last = [self.visit(value) for value in node.values]
        seen = [self._report(v, "truth", v) for v in first]
        return _at(ast.BoolOp(node.op, [*seen, last]), node)

    def _test(self, node: ast.expr) -> ast.expr:
        return self._report(node, "test", self.visit(node))

    def visit_If(self, node: ast.If) -> ast.AST:
        body, other = self._statements(node.body), self._statements(node.orelse)
        return _at(ast.If(self._test(node.test), body, other), node)

    def visit_While(self, node: ast.While) -> ast.AST:
        body, other = self._statements(node.body), self._statements(node.orelse)
        return _at(ast.While(self._test(node.test), body, other), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        made = ast.IfExp(self._test(node.test), self.visit(node.body), self.visit(node.orelse))
        return _at(made, node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return _at(ast.Assert(self._test(node.test), node.msg and self.visit(node.msg)), node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        spec = self.visit(node.format_spec) if node.format_spec else ast.Constant("")
        how = ast.Constant(chr(node.conversion) if node.conversion > 0 else "")
        text = self._report(node, "text", self.visit(node.value), how, spec)
        return _at(ast.FormattedValue(text, -1, None), node)

    def visit_Match(self, node: ast.Match) -> Any:
        """A chain of `if`s, whose tests match the subject against one pattern after the other."""
        subject = ast.Name(f"{OWN_NAMES}subject", ast.Store())
        chain: list[ast.stmt] = []
        for case in reversed(node.cases):
            fits = written(case.pattern, f"{OWN_NAMES}found", self._matching, self.visit)
            tests = [*fits, *([self._test(case.guard)] if case.guard else [])]
            test = tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)
            chain = [_at(ast.If(test, self._statements(case.body), chain), case.pattern)]
        return [_at(ast.Assign([subject], self.visit(node.subject)), node), *chain]

    def _matching(self, node: ast.pattern, pattern: ast.expr) -> ast.Call:
        subject = ast.Name(f"{OWN_NAMES}subject", ast.Load())
        return self._report(node, "match", subject, pattern)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        parts = [p and self._report(p, "raised", self.visit(p)) for p in (node.exc, node.cause)]
        return _at(ast.Raise(*parts), node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        kinds = node.type and self._report(node.type, "caught", self.visit(node.type))
        return _at(ast.ExceptHandler(kinds, node.name, self._statements(node.body)), node)

    def visit_With(self, node: ast.With) -> ast.AST:
        items = []
        for item in node.items:
            entered = self._report(item.context_expr, "entering", self.visit(item.context_expr))
            target = item.optional_vars and self.visit(item.optional_vars)
            items.append(ast.withitem(entered, target))
        return _at(ast.With(items, self._statements(node.body), node.type_comment), node)


def _at(made: N, node: ast.AST) -> N:
    """A new node at the place of an old one; what is new below it gets its place in the end."""
    return ast.copy_location(made, node)
