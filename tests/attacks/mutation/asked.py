"""Scenarios in which C code asks: it runs special methods of Python, or reads what only C shows."""

from __future__ import annotations

from tests.attacks.mutation.scenario import Case

_BOX = """
k = 2
class Box:
    {method}
box = Box()
def f(x):
    return x * {use}
"""


def _special(name: str, result: str, *uses: str, besides: str = "") -> tuple[Case, ...]:
    """Uses of an object, of which a special method says what they come to."""
    parameters = "cls, key" if name == "__class_getitem__" else "self, *others"
    method = f"def {name}({parameters}):\n        return {result}\n    {besides}"
    return tuple(
        Case(f"{name}: {use}", _BOX.format(method=method, use=use), "k = 3", "k = 2")
        for use in uses
    )


def _state(name: str, setup: str, use: str, change: str, back: str) -> Case:
    return Case(name, f"{setup}\ndef f(x):\n    return x * {use}\n", change, back)


ASKED = (
    *_special("__index__", "k", "[5, 6, 7, 8][box]", "(5, 6, 7, 8)[box]", "sum(range(box))",
              "sum([1, 4, 9, 16][:box])", "sum([1] * box)", "int(hex(box), 16)", "len('a' * box)",
              "int('5678'[box])", "x[box]", "x[:box].sum()", "x[box:, None].sum()"),
    *_special("__float__", "float(k)", "float(box)", "math.sqrt(box)", "float(np.float64(box))"),
    *_special("__str__", "str(k)", "int(str(box))", "int('%s' % box)", "int('%s' % (box,))",
              "int('%(a)s' % {'a': box})", "int('{}'.format(box))", "int(f'{box}')"),
    *_special("__eq__", "k == 2", "(2 if (box,) == (1,) else 3)", "(2 if [box] == [1] else 3)",
              "(2 if box in (1,) else 3)", "(2 if box in [1] else 3)", "[0].count(box)",
              "(2 if {0: box} == {0: 1} else 3)", besides="__hash__ = None"),
    *_special("__lt__", "k == 2", "(2 if (box,) < (1,) else 3)", "(2 if [0, box] < [0, 1] else 3)"),
    *_special("__hash__", "k", "{2: 5, 3: 7}[box]", "{(2, 0): 5, (3, 0): 7}[box, 0]",
              "{2: 5, 3: 7}.get(box)", "(2 if box in {2: 5} else 3)", "(2 if box in {2} else 3)",
              besides="def __eq__(self, other):\n        return other == k"),
    *_special("__reversed__", "iter([k])", "list(reversed(box))[0]"),
    *_special("__iter__", "iter([k])", "sum([*box])", "list(box)[0]", "k * len(set(box))"),
    *_special("__round__", "k", "round(box)"), *_special("__abs__", "k", "abs(box)"),
    *_special("__neg__", "k", "(-box)"), *_special("__invert__", "k", "(~box)"),
    *_special("__floor__", "k", "math.floor(box)"), *_special("__ceil__", "k", "math.ceil(box)"),
    *_special("__trunc__", "k", "math.trunc(box)"),
    *_special("__divmod__", "(k, k)", "divmod(box, 1)[0]"),
    *_special("__complex__", "complex(k)", "complex(box).real"),
    *_special("__bytes__", "b'a' * k", "len(bytes(box))"),
    *_special("__length_hint__", "k", "operator.length_hint(box)"),
    *_special("__dir__", "['a'] * k", "len(dir(box))"),
    *_special("__copy__", "k", "copy.copy(box)"),
    *_special("__array__", "np.full(6, k, np.float32)", "rl.tensor(box)",
              "rl.tensor(np.asarray(box))"),
    *_special("__class_getitem__", "k", "Box[0]"),
    *_special("__class__", "int if k == 2 else str", "(2 if isinstance(box, int) else 3)",
              besides="__class__ = property(__class__)"),
    *(_state(f"a view of a dict: {use}", "kept = {'a': 2}\nview = kept.keys()", use,
             "kept['b'] = 3", "del kept['b']")
      for use in ("len(view)", "(2 if view else 3) + len(list(view))", "(2 if 'b' in view else 3)",
                  "len(view & {'a', 'b'})")),
    _state("values of a dict", "kept = {'a': 2}\nview = kept.values()", "sum(view)",
           "kept['a'] = 3", "kept['a'] = 2"),
    _state("a field of a structure", "import ctypes\nclass Pair(ctypes.Structure):\n"
           "    _fields_ = [('a', ctypes.c_double)]\npair = Pair(2)", "pair.a", "pair.a = 3",
           "pair.a = 2"),
    _state("a setting of the collector", "import gc", "gc.get_threshold()[1]",
           "before = gc.get_threshold(); gc.set_threshold(700, 17, 10)",
           "gc.set_threshold(*before)"),
    _state("a metaclass that makes objects", "k = 2\nclass Meta(type):\n"
           "    def __call__(cls, *args):\n        made = super().__call__(*args)\n"
           "        made.k = k\n        return made\nclass Box(metaclass=Meta):\n    pass",
           "Box().k", "k = 3", "k = 2"),
    _state("a partial with a call of its own", "k = 2\nclass Times(functools.partial):\n"
           "    def __call__(self, *args):\n        return super().__call__(*args) * k\n"
           "times = Times(lambda a: a + 1)", "times(1)", "k = 3", "k = 2"),
    _state("a default of a named tuple", "class Pair(typing.NamedTuple):\n    a: int = 2",
           "Pair().a", "Pair.__new__.__defaults__ = (3,)", "Pair.__new__.__defaults__ = (2,)"),
    _state("annotations of a function", "def g(a):\n    return a\ng.__annotations__['a'] = int",
           "len(typing.get_type_hints(g))", "g.__annotations__['b'] = int",
           "del g.__annotations__['b']"),
    _state("a signature that is set", "import inspect\ndef g(a):\n    return a",
           "len(inspect.signature(g).parameters)", "g.__signature__ = inspect.Signature()",
           "del g.__signature__"),
    _state("a class that a library makes", "k = 2\nclass Coder(json.JSONEncoder):\n"
           "    def default(self, value):\n        return 10 ** k",
           "len(json.dumps(object, cls=Coder))", "k = 3", "k = 2"),
    _state("attributes that Python alone finds", "table = {'k': 2}\nclass Box:\n"
           "    def __getattribute__(self, name):\n        return table[name]\nbox = Box()",
           "box.k", "table['k'] = 3", "table['k'] = 2"),
    _state("which text it is", "one = ''.join(['ab', 'c'])\nother = one",
           "(2 if one is other else 3)", "other = ''.join(['ab', 'c'])", "other = one"),
)  # fmt: skip
