"""Scenarios in which a library runs methods of the user's, draws numbers, or keeps the state."""

from __future__ import annotations

from tests.attacks.mutation.scenario import Case


def _reads_k(name: str, setup: str, use: str) -> Case:
    """What is used comes to something else when the global `k` changes."""
    return Case(name, f"k = 2\n{setup}\ndef f(x):\n    return x * {use}\n", "k = 3", "k = 2")


def _state(name: str, setup: str, use: str, change: str, back: str = "", **options: bool) -> Case:
    return Case(name, f"{setup}\ndef f(x):\n    return x * {use}\n", change, back, **options)


_SHIFTED = """
import datetime
class Zone(datetime.tzinfo):
    def utcoffset(self, when):
        return datetime.timedelta(hours=k)
at = datetime.datetime(2020, 1, 1, tzinfo=Zone())
"""
_VISITED = """
import ast
class Visitor(ast.NodeVisitor):
    def visit_Name(self, node):
        self.found = k
def visited():
    visitor = Visitor()
    visitor.visit(ast.parse('a'))
    return visitor.found
"""
_REPLACED = """
@dataclasses.dataclass
class Made:
    k: int = 0
    def __post_init__(self):
        self.k = k
made = Made()
"""
_FOUND = """
class Kind(enum.Enum):
    A = 2
    B = 3
    @classmethod
    def _missing_(cls, value):
        return cls(k)
"""
_FIELDS = """
@dataclasses.dataclass(order=True)
class Pair:
    a: int = 2
one, other = Pair(), Pair()
"""
_MAPPING = """
class Mapping:
    def keys(self):
        return ['a']
    def __getitem__(self, key):
        return k
def updated():
    made = {}
    made.update(Mapping())
    return made['a']
"""
_OWN_DICT = """
class Table(dict):
    def __getitem__(self, key):
        return super().__getitem__(key) * k
    def __contains__(self, key):
        return k == 2 and dict.__contains__(self, key)
    def __len__(self):
        return super().__len__() * k
table = Table(a=5)
"""
_FORMATTER = """
class Formatter(string.Formatter):
    def get_value(self, key, args, kwargs):
        return k
formatter = Formatter()
"""
_GRADIENT = """
weight = nn.Parameter(rl.ones(6))
def f(x):
    return rl.autograd.grad((weight * x).sum(), [weight])[0]
"""

LIBRARY_CASES = (
    _reads_k("the offset of a time zone", _SHIFTED, "(at.utcoffset().total_seconds() / 3600)"),
    _reads_k("a visitor of a syntax tree", _VISITED, "visited()"),
    _reads_k("a dataclass that is replaced", _REPLACED, "dataclasses.replace(made).k"),
    _reads_k("a member that is missing", _FOUND, "Kind(77).value"),
    _reads_k("a formatter of one's own", _FORMATTER, "int(formatter.format('{a}'))"),
    _reads_k("a text that asks a mapping", _MAPPING, "int('%(a)s' % Mapping())"),
    _reads_k("a dict that asks a mapping", _MAPPING, "updated()"),
    *(_reads_k(f"a dict of one's own: {use}", _OWN_DICT, use)
      for use in ("table['a']", "(2 if 'a' in table else 3)", "len(table)")),
    _reads_k("a ufunc of Python", "times = np.frompyfunc(lambda a: a * k, 1, 1)", "times(2)"),
    _reads_k("a ufunc of Python, reduced", "times = np.frompyfunc(lambda a, b: a * b * k, 2, 1)",
             "times.reduce([1, 2, 3])"),
    *(_state(f"fields of a dataclass: {use}", _FIELDS, use, "other.a = 3", "other.a = 2")
      for use in ("(2 if one == other else 3)", "(2 if one < other else 3)", "len(repr(other) * "
                  "other.a)")),
    _state("the table of an enumeration", "class Kind(enum.Enum):\n    A = 2\n    B = 3",
           "Kind(2).value", "Kind._value2member_map_[2] = Kind.B",
           "Kind._value2member_map_[2] = Kind.A"),
    _state("annotations of a class", "class Typed:\n    a: int",
           "len(typing.get_type_hints(Typed))",
           "Typed.__annotations__['b'] = int", "del Typed.__annotations__['b']"),
    _state("what an array of one's own keeps", "class Array(np.ndarray):\n    pass\n"
           "array_ = np.ones(2).view(Array)\narray_.k = 2", "array_.k", "array_.k = 3",
           "array_.k = 2"),
    _state("a line of a file", "import linecache, tempfile\npath = tempfile.mktemp()\n"
           "def put(text):\n    with open(path, 'w') as file:\n        file.write(text)\n"
           "    linecache.clearcache()\nput('2')", "int(linecache.getline(path, 1))", "put('3')",
           "put('2')"),
    _state("draws of a library", "import scipy.linalg, scipy.stats\nnp.random.seed(1)",
           "float(scipy.stats.ortho_group.rvs(2)[0, 0])", "np.random.seed(2)", advances=True),
    _state("the seed of the stream", "rl.manual_seed(2)", "rl.initial_seed()", "rl.manual_seed(3)",
           "rl.manual_seed(2)"),
    Case("a hook on what grad() asks for", _GRADIENT,
         "handle = weight.register_hook(lambda g: g * 3)", "handle.remove()"),
)  # fmt: skip
