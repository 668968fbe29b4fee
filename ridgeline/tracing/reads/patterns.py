"""Patterns of `match` statements: as expressions of a reporting copy, and matched by its reports.

Python matches a pattern by instructions that no report can see: they look names and attributes up,
compare, ask for classes and run methods. Here a pattern is a tuple of its kind and its parts, with
a function for each value or class that it names, and what it reads goes through the hooks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Pattern: TypeAlias = tuple[Any, ...]
Found: TypeAlias = dict[str, Any]  # what a pattern binds

_SEQUENCE, _MAPPING, _ITSELF = 1 << 5, 1 << 6, 1 << 22  # Py_TPFLAGS_… of what matches what
_ABSENT = object()


# ---- as expressions ------------------------------------------------------------------------------


def written(
    pattern: ast.pattern,
    found: str,
    matching: Callable[[ast.pattern, ast.expr], ast.expr],
    visit: Callable[[ast.expr], ast.expr],
) -> list[ast.expr]:
    """Tests that are true where a pattern matches, and then have bound its names.

    `matching` gives the call that matches a pattern in form of a tuple, whose result is kept under
    the name `found`; `visit` rewrites the expressions in it.
    """
    names: list[str] = []
    call = matching(pattern, _tuple(pattern, names, visit))
    kept = ast.NamedExpr(ast.Name(found, ast.Store()), call)
    tests: list[ast.expr] = [ast.Compare(kept, [ast.IsNot()], [ast.Constant(None)])]
    if names:
        parts = [ast.Subscript(_load(found), ast.Constant(name), ast.Load()) for name in names]
        bound = [ast.NamedExpr(ast.Name(n, ast.Store()), p) for n, p in zip(names, parts)]
        tests.append(ast.Tuple(list[ast.expr](bound), ast.Load()))  # true, for it is not empty
    return [ast.copy_location(test, pattern) for test in tests]


def _load(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _tuple(
    pattern: ast.pattern | None, names: list[str], visit: Callable[[ast.expr], ast.expr]
) -> ast.expr:
    """A pattern as an expression for a tuple; the names that it binds are added to the list."""

    def later(value: ast.expr) -> ast.expr:
        nothing = ast.arguments([], [], None, [], [], None, [])
        return ast.Lambda(nothing, visit(value))

    def many(patterns: Sequence[ast.pattern]) -> ast.expr:
        return ast.Tuple([_tuple(each, names, visit) for each in patterns], ast.Load())

    def binds(name: str | None) -> ast.expr:
        if name is not None and name not in names:
            names.append(name)
        return ast.Constant(name)

    match pattern:
        case ast.MatchValue(value):
            parts = [ast.Constant("value"), later(value)]
        case ast.MatchSingleton(value):
            parts = [ast.Constant("singleton"), ast.Constant(value)]
        case ast.MatchSequence(patterns):
            parts = [ast.Constant("sequence"), many(patterns)]
        case ast.MatchStar(name):
            parts = [ast.Constant("star"), binds(name)]
        case ast.MatchMapping(keys, patterns, rest):
            asked: list[ast.expr] = [later(key) for key in keys]
            parts = [ast.Constant("mapping"), ast.Tuple(asked, ast.Load()), many(patterns),
                     binds(rest)]  # fmt: skip
        case ast.MatchClass(kind, patterns, attributes, inner):
            named: list[ast.expr] = [ast.Constant(name) for name in attributes]
            parts = [ast.Constant("class"), later(kind), many(patterns),
                     ast.Tuple(named, ast.Load()), many(inner)]  # fmt: skip
        case ast.MatchAs(inner, name):
            parts = [ast.Constant("as"), _tuple(inner, names, visit), binds(name)]
        case ast.MatchOr(patterns):
            parts = [ast.Constant("or"), many(patterns)]
        case _:
            return ast.Constant(None)  # anything
    return ast.Tuple(list[ast.expr](parts), ast.Load())


# ---- matched -------------------------------------------------------------------------------------


class Matcher:
    """Matches subjects by the reports of an instrumented copy."""

    def __init__(self, hooks: Any) -> None:
        self._hooks = hooks

    def match(self, subject: Any, pattern: Pattern | None) -> Found | None:
        """What a pattern binds where it matches, else None."""
        found: Found = {}
        return found if self._fits(subject, pattern, found) else None

    def _fits(self, subject: Any, pattern: Pattern | None, found: Found) -> bool:
        if pattern is None:
            return True
        kind, *parts = pattern
        matched: bool = getattr(self, f"_{kind}")(subject, *parts, found)
        return matched

    def _all(self, subjects: Sequence[Any], patterns: Sequence[Any], found: Found) -> bool:
        return all(self._fits(s, p, found) for s, p in zip(subjects, patterns))

    def _value(self, subject: Any, value: Callable[[], Any], found: Found) -> bool:
        return bool(self._hooks.test(self._hooks.compare("eq", subject, value())))

    def _singleton(self, subject: Any, value: Any, found: Found) -> bool:
        return bool(self._hooks.compare("is_", subject, value))

    def _as(self, subject: Any, inner: Pattern | None, name: str | None, found: Found) -> bool:
        if not self._fits(subject, inner, found):
            return False
        if name is not None:
            found[name] = subject
        return True

    def _or(self, subject: Any, patterns: Sequence[Pattern | None], found: Found) -> bool:
        return any(self._fits(subject, pattern, found) for pattern in patterns)

    def _sequence(self, subject: Any, patterns: Sequence[Any], found: Found) -> bool:
        if not type(subject).__flags__ & _SEQUENCE:
            return False
        starred = [i for i, p in enumerate(patterns) if p is not None and p[0] == "star"]
        size = self._hooks.call(len)(subject)
        if size != len(patterns) if not starred else size < len(patterns) - 1:
            return False
        values = list(self._hooks.iterate(subject, False))
        if starred:
            first, after = starred[0], len(patterns) - starred[0] - 1
            until = len(values) - after
            name = patterns[first][1]
            if name is not None:
                found[name] = values[first:until]
            values[first:until] = [None]
            patterns = [None if i == first else p for i, p in enumerate(patterns)]
        return self._all(values, patterns, found)

    def _mapping(
        self,
        subject: Any,
        keys: Sequence[Callable[[], Any]],
        patterns: Sequence[Pattern | None],
        rest: str | None,
        found: Found,
    ) -> bool:
        if not type(subject).__flags__ & _MAPPING:
            return False
        if keys and self._hooks.call(len)(subject) < len(keys):
            return False
        asked = [key() for key in keys]
        if len(set(asked)) < len(asked):
            raise ValueError(f"mapping pattern checks duplicate key ({asked[-1]!r})")
        values = [self._hooks.method(subject, "get")(key, _ABSENT) for key in asked]
        if any(value is _ABSENT for value in values) or not self._all(values, patterns, found):
            return False
        if rest is not None:
            every = dict(self._hooks.mapping(subject))
            found[rest] = {key: value for key, value in every.items() if key not in asked}
        return True

    def _class(
        self,
        subject: Any,
        kind: Callable[[], Any],
        patterns: Sequence[Pattern | None],
        names: tuple[str, ...],
        inner: Sequence[Pattern | None],
        found: Found,
    ) -> bool:
        wanted = kind()
        if not isinstance(wanted, type):
            raise TypeError("called match pattern must be a class")
        if not self._hooks.call(isinstance)(subject, wanted):
            return False
        values: list[Any] = []
        if patterns:
            try:
                places = self._hooks.attribute(wanted, "__match_args__")
            except AttributeError:
                places = ()
                if wanted.__flags__ & _ITSELF:
                    values, places = [subject], (None,)
            _check_places(wanted, places, patterns, names)
            names = (*places[len(values) : len(patterns)], *names)
        try:
            values += [self._hooks.attribute(subject, name) for name in names]
        except AttributeError:
            return False
        return self._all(values, [*patterns, *inner], found)


def _check_places(kind: type, places: Any, patterns: Sequence[Any], names: tuple[str, ...]) -> None:
    """Refuse positional patterns as Python does."""
    if type(places) is not tuple:
        got = type(places).__name__
        raise TypeError(f"{kind.__name__}.__match_args__ must be a tuple (got {got})")
    if len(patterns) > len(places):
        plural = "" if len(places) == 1 else "s"
        raise TypeError(
            f"{kind.__name__}() accepts {len(places)} positional sub-pattern{plural} "
            f"({len(patterns)} given)"
        )
    taken = places[: len(patterns)]
    if taken != (None,) and not all(isinstance(name, str) for name in taken):
        raise TypeError(f"__match_args__ elements must be strings, as those of {kind.__name__}")
    twice = [name for i, name in enumerate((*taken, *names)) if name in (*taken, *names)[:i]]
    if twice:
        raise TypeError(f"{kind.__name__}() got multiple sub-patterns for attribute {twice[0]!r}")
