"""Kinds of values that a program keeps: how each is used, and changed where it lies."""

from __future__ import annotations

from tests.attacks.mutation.scenario import Kind

_OBJECT_USES = (
    "x * v.k", "x * getattr(v, 'k')", "x * getattr(v, 'ok'[1:])", "x * operator.attrgetter('k')(v)",
    "x * (v.k if hasattr(v, 'k') else 1)", "x[: v.k]", "x * json.loads(json.dumps(v.k))",
)  # fmt: skip
_DICT_OF_OBJECT = ("x * vars(v)['k']", "x * v.__dict__['k']", "x * sum(vars(v).values())")
_OBJECT_CHANGES = ("V.k = 4", "setattr(V, 'k', 4)", "object.__setattr__(V, 'k', 4)")
_DICT_CHANGES = ("V.__dict__['k'] = 4", "vars(V).update(k=4)", "V.__dict__ = {'k': 4}")
_SEQUENCE_USES = (
    "x * v[1]", "x * sum(v)", "x * list(v)[-1]", "x * next(iter(v)) + len(v) + v[1]",
    "x * max(v)", "x * [a for a in v][1]", "x * operator.itemgetter(1)(v)",
    "x * sum(a for a in v)", "x * sorted(v)[-1]", "x * tuple(reversed(v))[0]",
    "x * sum(i * a for i, a in enumerate(v))", "x * functools.reduce(operator.add, v)",
    "x * sum(map(int, v))", "x * (lambda a, *rest: sum(rest) + a)(*v)",
    "x * sum(itertools.chain(v, v))", "x * list(zip(v, v))[1][1]", "x if 2 in v else -x",
    "x * v.__getitem__(1)", "x * max(itertools.accumulate(v))", "x * len(str(list(v)[1] ** 9))",
)  # fmt: skip
_MAPPING_USES = (
    "x * v['b']", "x * sum(v.values())", "x * v.get('b', 5)", "x * sum(a for _, a in v.items())",
    "x * dict(v)['b']", "x * {**v}['b']", "x * operator.itemgetter('b')(v)",
    "x * [v[k] for k in v][1]", "x * v.__getitem__('b')", "x * max(v.values())",
    "x * v[list(v)[1]]", "x * v.copy()['b']",
)  # fmt: skip
_MAPPING_CHANGES = ("V['b'] = 4", "V.update(b=4)", "V.__setitem__('b', 4)")


def _object(
    name: str, made: str, setup: str, changes: tuple[str, ...], slots: bool = False
) -> Kind:
    uses = _OBJECT_USES if slots else _OBJECT_USES + _DICT_OF_OBJECT
    return Kind(name, made.replace("K", "2"), made.replace("K", "3"), uses, changes, setup)


def _sequence(name: str, made: str, changes: tuple[str, ...]) -> Kind:
    old, new = made.replace("ITEMS", "[1, 2]"), made.replace("ITEMS", "[1, 3]")
    return Kind(name, old, new, _SEQUENCE_USES, changes)


def _mapping(name: str, made: str, changes: tuple[str, ...] = _MAPPING_CHANGES) -> Kind:
    old = made.replace("ITEMS", "{'a': 1, 'b': 2}")
    return Kind(name, old, made.replace("ITEMS", "{'a': 1, 'b': 3}"), _MAPPING_USES, changes)


PLAIN = (
    Kind("int", "2", "3", ("x * v", "x[:v]", "x.repeat(v)", "sum([x] * v)", "x.reshape(v, -1)",
         "x * len(f'{v * 5}') + v", "x ** v", "x * (5 if v == 2 else 6)", "x * int(str(v))",
         "x * [0, 1, 4, 9][v]", "x * {2: 'a', 3: 'bc'}[v].__len__()", "x.roll(v)")),
    Kind("float", "0.5", "0.25", ("x * v", "x + rl.tensor(v)", "rl.full((6,), v) * x",
         "x.clamp(max=v * 4)", "x * math.exp(v)", "x - v if v > 0.3 else x + v")),
    Kind("bool", "True", "False", ("x if v else -x", "x.sum(0, keepdim=v)", "x * (v + 1)",
         "x if not v else x + 1", "x * (1 if v and True else 7)")),
    Kind("1 or True", "1", "True", ("x * (2 if v is True else 3)", "x * len(type(v).__name__)",
         "x * (5 if isinstance(v, bool) else 6)")),
    Kind("1 or 1.0", "1", "1.0", ("x.long() * v", "x.long() + v", "x * len(str(v))")),
    Kind("True or 1.0", "True", "1.0", ("x.long() * v", "x * len(repr(v))")),
    Kind("0.0 or -0.0", "0.0", "-0.0", ("rl.copysign(x, rl.tensor(v))", "x * v",
         "x * math.copysign(1, v)", "rl.full((6,), v)")),
    Kind("nan", "float('nan')", "1.0", ("x * v", "x if v == v else -x")),
    Kind("str", "'relu'", "'tanh'", ("getattr(rl, v)(x)", "x if v == 'relu' else -x",
         "x * ord(v[0])", "getattr(x, v)()", "x if v.startswith('re') else -x",
         "x if re.match('rel.', v) else -x", "{'relu': rl.relu, 'tanh': rl.tanh}[v](x)")),
    Kind("bytes", "b'ab'", "b'cb'", ("x * v[0]", "x if v == b'ab' else -x")),
    Kind("None or 3", "None", "3", ("x if v is None else x * v", "x * (v or 7)")),
)  # fmt: skip

DATA = (
    Kind("tuple", "(1, 2)", "(1, 3)", _SEQUENCE_USES),
    _sequence("list", "ITEMS", ("V[1] = 4", "V.append(4)", "V.__setitem__(slice(1, 2), [4])",
              "V.insert(1, 4)", "list.append(V, 4)", "V.extend((4, 4))")),
    _sequence("deque", "collections.deque(ITEMS)", ("V[1] = 4", "V.append(4)", "V.extend([4])")),
    _sequence("deque of bounded length", "collections.deque(ITEMS, maxlen=2)",
              ("V.append(4)", "V.rotate(1); V[1] = 4")),
    _sequence("UserList", "collections.UserList(ITEMS)", ("V[1] = 4", "V.append(4)",
              "V.data[1] = 4", "V.data = [1, 4]")),
    _sequence("array", "array.array('i', ITEMS)", ("V[1] = 4", "V.append(4)")),
    _sequence("bytearray", "bytearray(ITEMS)", ("V[1] = 4", "V.append(4)", "V[:] = b'ab'")),
    _sequence("memoryview", "memoryview(bytearray(ITEMS))", ("V[1] = 4", "V.obj[1] = 4")),
    _sequence("small array of NumPy", "np.array(ITEMS)", ("V[1] = 4", "np.add(V, 1, out=V)",
              "V.fill(4)",
              "np.copyto(V, [1, 4])")),
    Kind("long list", "list(range(5000))", "list(range(5001))",
         ("x * (sum(v) % 97)", "x * (v[4321] % 7) + len(v)", "x + max(v)", "x * v[-1]"),
         ("V[4321] = 4; V[-1] = 9999", "V.append(100000)", "V.reverse()")),
    Kind("large array of NumPy", "np.arange(5000.0)", "np.arange(5000.0) + 1",
         ("x * float(v.sum())", "x * v[-1]", "x * rl.tensor(v)[-6:]", "x * rl.from_numpy(v)[-6:]",
          "x * float(v[10:].max())", "x + rl.from_numpy(v).sum()"),
         ("V[-1] = 7777", "np.multiply(V, 2, out=V)", "V[2000:] = 9e5")),
    _mapping("dict", "ITEMS", (*_MAPPING_CHANGES, "V.__ior__({'b': 4})", "dict.update(V, b=4)")),
    _mapping("OrderedDict", "collections.OrderedDict(ITEMS)"),
    _mapping("defaultdict", "collections.defaultdict(int, ITEMS)"),
    _mapping("Counter", "collections.Counter(ITEMS)", ("V['b'] += 2", "V.update(['b'])")),
    _mapping("UserDict", "collections.UserDict(ITEMS)", (*_MAPPING_CHANGES, "V.data['b'] = 4")),
    _mapping("ChainMap", "collections.ChainMap({}, ITEMS)",
             (*_MAPPING_CHANGES, "V.maps[1]['b'] = 4", "V.maps.insert(0, {'b': 4})")),
    _mapping("mapping proxy", "types.MappingProxyType(ITEMS)", ()),
    Kind("set", "{1, 2}", "{1, 3}", ("x * sum(v)", "x if 2 in v else -x", "x * max(v) + len(v)",
         "x * len(v & {2})", "x * sorted(v)[1]"), ("V.discard(2); V.add(4)",
         "V.symmetric_difference_update({2, 5})")),
    Kind("frozenset", "frozenset({1, 2})", "frozenset({1, 3})", ("x * sum(v)", "x * max(v)")),
    Kind("nested containers", "{'a': [1, {'b': (2, [3])}]}", "{'a': [1, {'b': (4, [5])}]}",
         ("x * v['a'][1]['b'][1][0]", "x * sum(v['a'][-1]['b'][1])"),
         ("V['a'][1]['b'][1][0] = 9", "V['a'][1]['b'][1].insert(0, 8)", "V['a'][1]={'b':(1,[7])}")),
    Kind("tensor", "rl.arange(6.0)", "rl.arange(6.0) + 1",
         ("x * v", "x @ v", "rl.stack([x, v])", "x * (1 if v.requires_grad else 2) + v"),
         ("V.add_(1)", "V[1] = 9", "V.copy_(rl.ones(6))", "V.data = rl.ones(6)",
          "V.view(2, 3)[0, 0] = 5", "V.mul_(3)")),
    Kind("tensors of two types", "rl.arange(6.0)", "rl.arange(6)", ("v + 1", "v * 2")),
    Kind("tensors of two shapes", "rl.ones(6)", "rl.ones(1) * 2", ("x * v", "x * v.shape[0]")),
    Kind("list of tensors", "[rl.ones(6), rl.ones(6) * 2]", "[rl.ones(6), rl.ones(6) * 3]",
         ("x * v[1]", "x * sum(v)", "rl.stack(v) * x", "rl.stack(v).sum(0) * x + v[-1]"),
         ("V[1] = V[1] * 3", "V.append(rl.ones(6))", "V[1].add_(1)")),
    Kind("dict of tensors", "{'w': rl.ones(6)}", "{'w': rl.ones(6) * 3}",
         ("x * v['w']", "x * sum(v.values())"), ("V['w'] = rl.zeros(6)", "V['w'].mul_(2)")),
    _object("namespace", "types.SimpleNamespace(k=K)", "", (*_OBJECT_CHANGES,
            *_DICT_CHANGES[:2])),
    _object("object", "Plain(K)", "class Plain:\n    def __init__(self, k):\n        self.k = k",
            _OBJECT_CHANGES + _DICT_CHANGES),
    _object("object with slots", "Slotted(K)", "class Slotted:\n    __slots__ = ('k',)\n"
            "    def __init__(self, k):\n        self.k = k",
            (*_OBJECT_CHANGES, "type(V).k.__set__(V, 4)"), slots=True),
    _object("dataclass", "Data(K)", "@dataclasses.dataclass\nclass Data:\n    k: int",
            _OBJECT_CHANGES + _DICT_CHANGES),
    _object("frozen dataclass", "Data(K)", "@dataclasses.dataclass(frozen=True)\nclass Data:\n"
            "    k: int", ("object.__setattr__(V, 'k', 4)", "V.__dict__['k'] = 4")),
    _object("named tuple", "Pair(1, K)", "Pair = collections.namedtuple('Pair', 'j k')", (),
            slots=True),
    _object("property", "Prop(K)", "class Prop:\n    def __init__(self, k):\n        self._k = k\n"
            "    @property\n    def k(self):\n        return self._k", ("V._k = 4",), slots=True),
    _object("__getattr__", "Late(K)", "class Late:\n    def __init__(self, k):\n"
            "        self.held = {'k': k}\n    def __getattr__(self, name):\n"
            "        if name == 'held':\n            raise AttributeError(name)\n"
            "        return self.held[name]", ("V.held['k'] = 4", "V.k = 4"), slots=True),
    _object("descriptor", "Described(K)", "class Field:\n    def __get__(self, o, owner=None):\n"
            "        return o.hidden if o is not None else self\nclass Described:\n    k = "
            "Field()\n"
            "    def __init__(self, k):\n        self.hidden = k", ("V.hidden = 4", "V.k = 4"),
            slots=True),
    Kind("weak reference", "weakref.ref(keep(Kept(2)))", "weakref.ref(keep(Kept(3)))",
         ("x * v().k",), ("V().k = 4",), "class Kept:\n    def __init__(self, k):\n"
         "        self.k = k\nKEPT = []\ndef keep(o):\n    KEPT.append(o)\n    return o"),
    Kind("object that acts as a number", "Number(2)", "Number(3)",
         ("x * float(v)", "x * int(v)", "x[: operator.index(v)]", "x * len(v)", "x * v()",
          "x * v[0]", "x if v else -x - int(v)", "x * sum(v)", "x if 2 in v else -x",
          "x * hash(v)", "x * len(str(v)) + round(v)", "x * (v + 1)"),
         ("V.n = 4",), "class Number:\n    def __init__(self, n):\n        self.n = n\n"
         "    def __float__(self):\n        return float(self.n)\n"
         "    def __index__(self):\n        return self.n\n    __int__ = __len__ = __hash__ = "
         "__index__\n"
         "    def __call__(self):\n        return self.n\n    def __getitem__(self, i):\n"
         "        return self.n + i\n    def __bool__(self):\n        return self.n == 2\n"
         "    def __iter__(self):\n        yield self.n\n    def __contains__(self, k):\n"
         "        return k == self.n\n    def __str__(self):\n        return 'a' * self.n\n"
         "    def __round__(self):\n        return self.n\n    def __add__(self, k):\n"
         "        return self.n + k"),
)  # fmt: skip

_FUNCTIONS = """
def scaled(y, k=2, *, j=1):
    return y * k + j
def shifted(y, k=3, *, j=2):
    return y - k * j
"""
CALLABLE = (
    Kind("lambda", "(lambda y: y * 2)", "(lambda y: y + 5)",
         ("v(x)", "list(map(v, [x]))[0]", "functools.reduce(lambda a, b: b(a), [v], x)",
          "v.__call__(x)"), ("V.__code__ = (lambda y: y - 3).__code__",)),
    Kind("function", "scaled", "shifted", ("v(x)", "v(y=x)", "(lambda g: g(x))(v)"),
         ("V.__code__ = (lambda y, k=1, *, j=1: y - k).__code__", "V.__defaults__ = (7,)",
          "V.__kwdefaults__ = {'j': 9}", "V.__defaults__ = (V.__defaults__[0] + 1,)"), _FUNCTIONS),
    Kind("attribute of a function", "marked(2)", "marked(3)",
         ("x * v.k", "x * getattr(v, 'k')", "x * v.__dict__['k']", "v(x) * v.k"),
         ("V.k = 4", "V.__dict__['k'] = 4", "setattr(V, 'k', 4)"),
         "def marked(k):\n    def g(y):\n        return y\n    g.k = k\n    return g"),
    Kind("partial", "functools.partial(scaled, k=2)", "functools.partial(scaled, k=3)",
         ("v(x)", "x * v.keywords['k']"), ("V.keywords['k'] = 4",), _FUNCTIONS),
    Kind("partial of a list", "functools.partial(operator.getitem, [1, 2])",
         "functools.partial(operator.getitem, [1, 3])", ("x * v(1)",), ("V.args[0][1] = 4",)),
    Kind("bound method", "Counter2(2).times", "Counter2(3).times", ("v(x)",
         "v.__func__(v.__self__, x)"),
         ("V.__self__.k = 4",), "class Counter2:\n    def __init__(self, k):\n        self.k = k\n"
         "    def times(self, y):\n        return y * self.k"),
    Kind("bound method of a list", "[1, 2].__getitem__", "[1, 3].__getitem__", ("x * v(1)",),
         ("V.__self__[1] = 4",)),
    Kind("closure", "made(2)", "made(3)", ("v(x)",), ("V.__closure__[0].cell_contents = 4",),
         "def made(k):\n    return lambda y: y * k"),
    Kind("class", "type('A', (), {'k': 2})", "type('A', (), {'k': 3})",
         ("x * v.k", "x * v().k", "x * vars(v)['k']", "x * getattr(v, 'k')"),
         ("V.k = 4", "type.__setattr__(V, 'k', 4)", "setattr(V, 'k', 4)")),
    Kind("layer", "made_layer(2.0)", "made_layer(3.0)", ("v(x)",
         "x * v.weight.detach()[:, 0].sum()",
         "v.forward(x)"), ("V.weight.data = V.weight.data * 2",
         "rl.nn.init.constant_(V.weight, 4.0)",
         "V.bias = None", "V.load_state_dict({k: t * 2 for k, t in V.state_dict().items()})"),
         "def made_layer(k):\n    layer = nn.Linear(6, 2)\n    with rl.no_grad():\n"
         "        layer.weight.fill_(k)\n        layer.bias.fill_(k)\n    return layer"),
)  # fmt: skip

ADVANCING = tuple(
    Kind(name, made, made, uses, inside, setup, advances=True)
    for name, made, uses, inside, setup in (
        ("iterator of a list", "iter(list(range(1, 90)))", ("x * next(v)", "x * next(v, 0)",
         "x * v.__next__()", "x * list(itertools.islice(v, 2))[1]"), ("next(V)",), ""),
        ("count", "itertools.count(1)", ("x * next(v)",), ("next(V)",), ""),
        ("cycle", "itertools.cycle([1, 2, 3, 4, 5])", ("x * next(v)",), ("next(V)",), ""),
        ("generator", "(i * i for i in range(1, 90))", ("x * next(v)", "x * v.send(None)"),
         ("next(V)",), ""),
        ("iterator of a dict", "iter({i: i for i in range(1, 90)})", ("x * next(v)",), (), ""),
        ("zip", "zip(range(1, 90), range(90))", ("x * next(v)[0]",), ("next(V)",), ""),
        ("queue", "filled()", ("x * v.get()", "x * v.get_nowait()"), ("V.put(V.get())",),
         "def filled():\n    q = queue.Queue()\n    for i in range(1, 90):\n        q.put(i)\n"
         "    return q"),
        ("deque that is used up", "collections.deque(range(1, 90))",
         ("x * v.popleft()", "x * v.pop()"), ("V.rotate(3)",), ""),
        ("list that is used up", "list(range(1, 90))", ("x * v.pop()", "x * v.pop(0)"),
         ("V.append(100)",), ""),
        ("list that grows", "[]", ("[v.append(1), x * len(v)][1]",), ("V.clear()",), ""),
        ("dict that counts", "{'n': 0}", ("[v.update(n=v['n'] + 1), x * v['n']][1]",),
         ("V['n'] = 0",), ""),
        ("object that counts", "Counts()", ("x * v.tick()",), ("V.n = 0",),
         "class Counts:\n    n = 0\n    def tick(self):\n        self.n += 1\n        return "
         "self.n"),
        ("random stream", "random.Random(3)", ("x * v.random()", "x * v.randint(0, 1000)",
         "x * v.choice(list(range(500)))", "x * v.gauss(0, 1)"), ("V.seed(9)",), ""),
        ("random stream of NumPy", "np.random.default_rng(3)", ("x * v.random()",
         "x * float(v.normal())", "x * int(v.integers(0, 10**6))"), (), ""),
        ("old random stream of NumPy", "np.random.RandomState(3)", ("x * v.rand()",),
         ("V.seed(4)",), ""),
        ("text stream", r"io.StringIO('\n'.join(map(str, range(1, 90))))",
         ("x * int(v.readline())", "x * int(next(v))"), ("V.seek(0)",), ""),
        ("iterator class", "Steps()", ("x * next(v)", "x * next(iter(v))"), ("V.n = 0",),
         "class Steps:\n    n = 0\n    def __iter__(self):\n        return self\n"
         "    def __next__(self):\n        self.n += 1\n        return self.n"),
    )
)  # fmt: skip
