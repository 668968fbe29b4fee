"""Places in which a Python program keeps a value: names, attributes, functions, containers."""

from __future__ import annotations

from tests.attacks.mutation.scenario import Place

_NAMES = (
    Place("global", "value = OLD",
          ("value", "globals()['value']", "globals().get('value')", "eval('value')",
           "sys.modules[__name__].value", "importlib.import_module(__name__).value",
           "vars(sys.modules[__name__])['value']"),
          ("value = NEW", "globals()['value'] = NEW", "globals().update(value=NEW)",
           "setattr(sys.modules[__name__], 'value', NEW)", "exec('global value; value = fresh', "
           "globals(), {'fresh': NEW})"), "value"),
    Place("global of a helper's module", "other = types.ModuleType('other')\nother.value = OLD\n"
          "exec('def read_other(): return value', other.__dict__)",
          ("other.value", "other.read_other()", "vars(other)['value']", "other.__dict__['value']",
           "getattr(other, 'value')", "operator.attrgetter('value')(other)"),
          ("other.value = NEW", "other.__dict__['value'] = NEW", "vars(other).update(value=NEW)"),
          "other.value"),
    Place("module found by name", "other = sys.modules[NAME + '.o'] = types.ModuleType(NAME + '.o')"
          "\nother.value = OLD",
          ("sys.modules[NAME + '.o'].value", "importlib.import_module(NAME + '.o').value"),
          ("other.value = NEW", "fresh = types.ModuleType('o'); fresh.value = NEW; "
           "other = sys.modules[NAME + '.o'] = fresh"), "other.value"),
    Place("module with __getattr__", "other = types.ModuleType('other')\nother.held = {'value': "
          "OLD}"
          "\nother.__getattr__ = lambda name: other.held[name]",
          ("other.value", "getattr(other, 'value')"),
          ("other.held['value'] = NEW", "other.value = NEW"), "other.value"),
    Place("name of the builtins", "setattr(builtins, 'ridgeline_attacked', OLD)",
          ("ridgeline_attacked", "builtins.ridgeline_attacked"),
          ("setattr(builtins, 'ridgeline_attacked', NEW)", "builtins.ridgeline_attacked = NEW"),
          "builtins.ridgeline_attacked"),
    Place("closure", "def make():\n    value = OLD\n    FUNCTION\n    def put(new):\n"
          "        nonlocal value\n        value = new\n    return f, put, lambda: value\n"
          "f, put, peek = make()", ("value", "[value][0]"), ("put(NEW)",), "peek()"),
    Place("closure of a helper", "def make():\n    value = OLD\n    def put(new):\n"
          "        nonlocal value\n        value = new\n    return lambda: value, put\n"
          "peek, put = make()", ("peek()", "peek.__closure__[0].cell_contents"),
          ("put(NEW)", "peek.__closure__[0].cell_contents = NEW"), "peek()"),
    Place("closure of a class", "def make():\n    value = OLD\n    class Box:\n"
          "        def get(self):\n            return value\n    def put(new):\n"
          "        nonlocal value\n        value = new\n    return Box(), put\nbox, put = make()",
          ("box.get()",), ("put(NEW)",), "box.get()"),
    Place("default argument", "def f(x, v=OLD):\n    return USE", ("v",),
          ("f.__defaults__ = (NEW,)",), "f.__defaults__[0]"),
    Place("default argument of a helper", "def get(value=OLD):\n    return value", ("get()",),
          ("get.__defaults__ = (NEW,)", "get = (lambda value=NEW: value)"), "get.__defaults__[0]"),
    Place("keyword default of a helper", "def get(*, value=OLD):\n    return value",
          ("get()", "get(**{})", "get.__kwdefaults__['value']"),
          ("get.__kwdefaults__ = {'value': NEW}", "get.__kwdefaults__['value'] = NEW"),
          "get.__kwdefaults__['value']"),
    Place("what a helper returns", "def get():\n    return OLD", ("get()",),
          ("get = lambda: NEW", "get.__code__ = (lambda: NEW).__code__",
           "def get():\n    return NEW"), kinds="plain"),
    Place("attribute of a function", "def get():\n    return get.value\nget.value = OLD",
          ("get.value", "get()", "get.__dict__['value']", "getattr(get, 'value')"),
          ("get.value = NEW", "get.__dict__['value'] = NEW", "setattr(get, 'value', NEW)"),
          "get.value"),
    Place("local variables by name", "value = OLD",
          ("local = value\nv = locals()['local']", "local = value\nv = vars()['local']",
           "local = value\nv = eval('local')"), ("value = NEW",), "value"),
    Place("wrapped helper", "value = OLD\ndef wrapping(g):\n    @functools.wraps(g)\n"
          "    def inner(*args):\n        return g(*args)\n    return inner\n@wrapping\n"
          "def get():\n    return value", ("get()", "get.__wrapped__()"),
          ("value = NEW", "get.__wrapped__.__globals__['value'] = NEW"), "value"),
    Place("cached helper", "value = OLD\n@functools.lru_cache\ndef get():\n    return value",
          ("get()",), ("value = NEW; get.cache_clear()",)),
    Place("recursion", "value = OLD\ndef deep(n):\n    return value if n == 0 else deep(n - 1)",
          ("deep(3)",), ("value = NEW",), "value"),
    Place("exception", "value = OLD\ndef fails():\n    raise KeyError(value)",
          ("try:\n    fails()\nexcept KeyError as error:\n    v = error.args[0]",),
          ("value = NEW",), "value"),
    Place("context manager", "value = OLD\n@contextlib.contextmanager\ndef held():\n    yield "
          "value",
          ("with held() as v:\n    pass",), ("value = NEW",), "value"),
    Place("context manager class", "class Held:\n    value = OLD\n    def __enter__(self):\n"
          "        return self.value\n    def __exit__(self, *exc):\n        pass\nheld = Held()",
          ("with held as v:\n    pass",), ("held.value = NEW", "Held.value = NEW"), "held.value",
          kinds="data"),
    Place("local generator", "value = OLD\ndef items():\n    yield 0\n    yield value",
          ("list(items())[1]", "[item for item in items()][1]", "[*items()][-1]",
           "for v in items():\n    pass"), ("value = NEW",), "value"),
    Place("context variable", "var = contextvars.ContextVar('var', default=OLD)",
          ("var.get()", "contextvars.copy_context().run(var.get)"),
          ("var.set(NEW)",), "var.get()"),
    Place("context of its own", "var = contextvars.ContextVar('var')\n"
          "context = contextvars.copy_context()\ncontext.run(var.set, OLD)",
          ("context.run(var.get)", "context[var]"), ("context.run(var.set, NEW)",), "context[var]"),
    Place("thread's own variable", "local = threading.local()\nlocal.value = OLD",
          ("local.value", "getattr(local, 'value')", "local.__dict__['value']"),
          ("local.value = NEW", "local.__dict__['value'] = NEW"), "local.value"),
    Place("single dispatch", "@functools.singledispatch\ndef get(o):\n    return None\n"
          "get.register(int, lambda o: OLD)", ("get(1)", "get.dispatch(int)(1)"),
          ("get.register(int, lambda o: NEW)",), "get(1)", kinds="plain"),
)  # fmt: skip

_BOX = "class Box:\n    def __init__(self, value):\n        self.value = value\n"
_ATTRIBUTES = (
    Place("attribute", _BOX + "box = Box(OLD)",
          ("box.value", "getattr(box, 'value')", "getattr(box, 'val' + 'ue')", "vars(box)['value']",
           "box.__dict__['value']", "operator.attrgetter('value')(box)",
           "object.__getattribute__(box, 'value')", "box.__getattribute__('value')",
           "[a for a in vars(box).values()][0]", "copy.copy(box).value"),
          ("box.value = NEW", "setattr(box, 'value', NEW)", "object.__setattr__(box, 'value', NEW)",
           "box.__dict__['value'] = NEW", "vars(box).update(value=NEW)", "box = Box(NEW)",
           "box.__dict__ = {'value': NEW}", "Box.__init__(box, NEW)"), "box.value"),
    Place("attribute of an attribute", _BOX + "box = Box(Box(OLD))",
          ("box.value.value", "operator.attrgetter('value.value')(box)",
           "functools.reduce(getattr, ['value', 'value'], box)"),
          ("box.value.value = NEW", "box.value = Box(NEW)", "vars(box.value)['value'] = NEW"),
          "box.value.value"),
    Place("attribute of a class", "class Box:\n    value = OLD\nbox = Box()",
          ("Box.value", "box.value", "type(box).value", "box.__class__.value",
           "getattr(Box, 'value')", "vars(Box)['value']", "Box.__dict__['value']",
           "operator.attrgetter('value')(Box)", "type.__getattribute__(Box, 'value')"),
          ("Box.value = NEW", "setattr(Box, 'value', NEW)", "type.__setattr__(Box, 'value', NEW)",
           "type(box).value = NEW"), "Box.value", kinds="data"),
    Place("attribute of a base class", "class Base:\n    value = OLD\nclass Middle(Base):\n    "
          "pass\n"
          "class Box(Middle):\n    pass\nbox = Box()",
          ("box.value", "Box.value", "super(Box, box).value", "type(box).value",
           "type(box).__mro__[2].value"), ("Base.value = NEW",), "Base.value", kinds="data"),
    Place("attribute that comes between", "class Base:\n    value = OLD\nclass Box(Base):\n    "
          "pass\n"
          "box = Box()", ("box.value", "type(box).value", "Box.value", "getattr(box, 'value')"),
          ("Box.value = NEW",), kinds="data"),
    Place("attribute that hides the class's", "class Box:\n    value = OLD\nbox = Box()",
          ("box.value", "getattr(box, 'value')"), ("box.value = NEW", "vars(box)['value'] = NEW"),
          kinds="data"),
    Place("through cls", "class Box:\n    value = OLD\n    @classmethod\n    def get(cls):\n"
          "        return cls.value\nclass Child(Box):\n    pass\nbox = Child()",
          ("Box.get()", "box.get()", "Child.get()", "Child().get()"), ("Box.value = NEW",),
          "Box.value", kinds="data"),
    Place("through type(self)", "class Box:\n    value = OLD\n    def get(self):\n"
          "        return type(self).value\nbox = Box()", ("box.get()", "Box.get(box)",
          "Box().get()"),
          ("Box.value = NEW",), "Box.value", kinds="data"),
    Place("through super()", "class Base:\n    value = OLD\nclass Box(Base):\n    value = None\n"
          "    def get(self):\n        return super().value\nbox = Box()", ("box.get()",),
          ("Base.value = NEW",), "Base.value", kinds="data"),
    Place("attribute of a metaclass", "class Meta(type):\n    value = OLD\n"
          "class Box(metaclass=Meta):\n    pass", ("Box.value", "type(Box).value", "Meta.value"),
          ("Meta.value = NEW",), "Meta.value", kinds="data"),
    Place("property of a metaclass", "class Meta(type):\n    held = OLD\n    @property\n"
          "    def value(cls):\n        return cls.held\nclass Box(metaclass=Meta):\n    pass",
          ("Box.value",), ("Meta.held = NEW", "Box.held = NEW"), "Meta.held", kinds="data"),
    Place("slot", "class Box:\n    __slots__ = ('value',)\nbox = Box()\nbox.value = OLD",
          ("box.value", "getattr(box, 'value')", "Box.value.__get__(box)"),
          ("box.value = NEW", "object.__setattr__(box, 'value', NEW)",
          "Box.value.__set__(box, NEW)"),
          "box.value"),
    Place("property that is replaced", "class Box:\n    @property\n    def value(self):\n"
          "        return OLD\nbox = Box()", ("box.value", "Box.value.fget(box)"),
          ("Box.value = property(lambda self: NEW)",), kinds="plain"),
    Place("property over a global", "held = OLD\nclass Box:\n    value = property(lambda self: "
          "held)\n"
          "box = Box()", ("box.value",), ("held = NEW",), "held"),
    Place("cached property", "class Box:\n    held = OLD\n    @functools.cached_property\n"
          "    def value(self):\n        return self.held\nbox = Box()", ("box.value",),
          ("box.__dict__.pop('value', None); Box.held = NEW", "box.value = NEW"), kinds="data"),
    Place("static method", "class Box:\n    @staticmethod\n    def get():\n        return OLD\n"
          "box = Box()", ("Box.get()", "box.get()", "type(box).get()"),
          ("Box.get = staticmethod(lambda: NEW)", "box.get = lambda: NEW; Box.get = box.get"),
          kinds="plain"),
    Place("class method", "class Box:\n    @classmethod\n    def get(cls):\n        return OLD\n"
          "box = Box()", ("Box.get()", "box.get()"), ("Box.get = classmethod(lambda cls: NEW)",),
          kinds="plain"),
    Place("method", "class Box:\n    def get(self):\n        return OLD\nbox = Box()",
          ("box.get()", "Box.get(box)", "operator.methodcaller('get')(box)",
          "getattr(box, 'get')()"),
          ("Box.get = lambda self: NEW", "Box.get.__code__ = (lambda self: NEW).__code__",
           "setattr(Box, 'get', lambda self: NEW)"), kinds="plain"),
    Place("method that an instance hides", "class Box:\n    def get(self):\n        return OLD\n"
          "box = Box()", ("box.get()", "operator.methodcaller('get')(box)"),
          ("box.get = lambda: NEW", "vars(box)['get'] = lambda: NEW"), kinds="plain"),
    Place("special method", "class Box:\n    def __getitem__(self, i):\n        return OLD\n"
          "    def __call__(self):\n        return OLD\nbox = Box()", ("box[0]", "box()"),
          ("Box.__getitem__ = lambda self, i: NEW; Box.__call__ = lambda self: NEW",),
          kinds="plain"),
    Place("operator of a class", "class Box:\n    def __add__(self, o):\n        return OLD\n"
          "    __eq__ = __contains__ = __matmul__ = __add__\nbox = Box()",
          ("box + 1", "box == 1", "box @ 1"),
          ("Box.__add__ = Box.__eq__ = Box.__matmul__ = lambda self, o: NEW",), kinds="plain"),
    Place("class of an object", "class First:\n    value = OLD\nclass Second(First):\n"
          "    value = None\nbox = First()", ("box.value", "type(box).value"),
          ("Second.value = NEW; box.__class__ = Second",), kinds="data"),
    Place("bases of a class", "class First:\n    value = OLD\nclass Second:\n    pass\n"
          "class Box(First):\n    pass\nbox = Box()", ("box.value", "Box.value"),
          ("Second.value = NEW; Box.__bases__ = (Second,)",), kinds="data"),
    Place("descriptor", "class Field:\n    held = OLD\n    def __get__(self, o, owner=None):\n"
          "        return self.held\nclass Box:\n    value = Field()\nbox = Box()",
          ("box.value", "Box.value", "vars(Box)['value'].held"),
          ("vars(Box)['value'].held = NEW", "Field.held = NEW", "Field.__get__ = lambda *a: NEW; "
           "Field.held = NEW"), "vars(Box)['value'].held", kinds="plain"),
    Place("__getattr__", "class Box:\n    def __init__(self):\n        self.held = {'value': OLD}\n"
          "    def __getattr__(self, name):\n        return self.held[name]\nbox = Box()",
          ("box.value", "getattr(box, 'value')", "operator.attrgetter('value')(box)"),
          ("box.held['value'] = NEW", "Box.__getattr__ = lambda self, name: NEW",
          "box.value = NEW"),
          kinds="plain"),
    Place("__getattribute__", "class Box:\n    value = OLD\n"
          "    def __getattribute__(self, name):\n        return object.__getattribute__(self, "
          "name)"
          "\nbox = Box()", ("box.value",), ("Box.value = NEW", "box.value = NEW",
           "Box.__getattribute__ = lambda self, name: NEW"), kinds="plain"),
    Place("member of an enumeration", "class Colour(enum.Enum):\n    RED = OLD\n    BLUE = 'blue'",
          ("Colour.RED.value", "Colour['RED'].value", "list(Colour)[0].value",
          "Colour.RED._value_"),
          ("Colour.RED._value_ = NEW",), "Colour.RED.value", kinds="plain"),
    Place("chosen member", "class Colour(enum.Enum):\n    RED = OLD\n    BLUE = 3\n"
          "box = types.SimpleNamespace(colour=Colour.RED)", ("box.colour.value",),
          ("box.colour = Colour.RED if box.colour is Colour.BLUE else Colour.BLUE",), kinds="int"),
    Place("field of a dataclass", "@dataclasses.dataclass\nclass Box:\n    value: object = OLD\n"
          "box = Box(OLD)", ("box.value", "dataclasses.asdict(box)['value']",
           "dataclasses.astuple(box)[0]", "dataclasses.replace(box).value"),
          ("box.value = NEW", "box = dataclasses.replace(box, value=NEW)"), "box.value",
          kinds="plain"),
    Place("default of a dataclass", "@dataclasses.dataclass\nclass Box:\n    value: object = OLD",
          ("Box().value", "Box.value"), ("Box.value = NEW; Box.__init__.__defaults__ = (NEW,)",),
          kinds="plain"),
    Place("named tuple", "Pair = collections.namedtuple('Pair', 'first value')\nbox = Pair(1, OLD)",
          ("box.value", "box[1]", "box._asdict()['value']", "(lambda first, value: value)(*box)"),
          ("box = box._replace(value=NEW)", "box = Pair(1, NEW)"), "box.value"),
    Place("weak reference", _BOX + "box = Box(OLD)\nref = weakref.ref(box)",
          ("ref().value", "weakref.proxy(box).value"), ("box.value = NEW",), "box.value"),
    Place("weak dictionary", _BOX + "box = Box(OLD)\n"
          "held = weakref.WeakValueDictionary(a=box)", ("held['a'].value",),
          ("box.value = NEW", "box = held['a'] = Box(NEW)"), "box.value"),
    Place("environment variable", "os.environ['RIDGELINE_ATTACKED'] = str(OLD)",
          ("int(os.environ['RIDGELINE_ATTACKED'])", "int(os.getenv('RIDGELINE_ATTACKED'))",
           "int(os.environ.get('RIDGELINE_ATTACKED', 0))"),
          ("os.environ['RIDGELINE_ATTACKED'] = str(NEW)",
           "os.environ.update(RIDGELINE_ATTACKED=str(NEW))"), kinds="int"),
    Place("file", "path = os.path.join(FOLDER, 'state.txt')\n"
          "def put(value):\n    with open(path, 'w') as file:\n        file.write(str(value))\n"
          "put(OLD)", ("int(open(path).read())", "with open(path) as file:\n    v = "
          "int(file.read())",
           "int(np.loadtxt(path))"), ("put(NEW)",), kinds="int"),
)  # fmt: skip

_CONTAINERS = tuple(
    Place(f"item of a {name}", f"box = {made}", reads, changes, "box[KEY]".replace("KEY", key))
    for name, made, key, reads, changes in (
        ("list", "[0, OLD]", "1", ("box[1]", "box[-1]", "[a for a in box][1]", "list(box)[1]",
         "operator.itemgetter(1)(box)", "(lambda a, b: b)(*box)", "box[1:][0]",
         "_, v = box\nv = v", "for v in box:\n    pass", "[*box][1]", "dict(enumerate(box))[1]"),
         ("box[1] = NEW", "box[1:] = [NEW]", "box = [0, NEW]", "box.pop(); box.append(NEW)")),
        ("list of lists", "[[0], [0, OLD]]", "1][1", ("box[1][1]", "sum(box, [])[-1]",
         "[b for a in box for b in a][-1]"), ("box[1][1] = NEW", "box[1] = [0, NEW]")),
        ("tuple of lists", "([0], [0, OLD])", "1][1", ("box[1][1]", "box[-1][-1]"),
         ("box[1][1] = NEW", "box = ([0], [0, NEW])")),
        ("dict", "{'a': 0, 'b': OLD}", "'b'", ("box['b']", "box.get('b')", "list(box.values())[1]",
         "[b for a, b in box.items()][1]", "operator.itemgetter('b')(box)", "{**box}['b']",
         "(lambda a, b: b)(**box)", "box[list(box)[1]]", "box.setdefault('b', 7)"),
         ("box['b'] = NEW", "box.update(b=NEW)", "box |= {'b': NEW}", "box = dict(box, b=NEW)",
          "del box['b']; box['b'] = NEW")),
        ("dict of dicts", "{'a': {'b': {'c': OLD}}}", "'a']['b']['c'", ("box['a']['b']['c']",
         "functools.reduce(operator.getitem, 'abc', box)"),
         ("box['a']['b']['c'] = NEW", "box['a']['b'] = {'c': NEW}",
         "box['a'] = {'b': {'c': NEW}}")),
        ("deque", "collections.deque([0, OLD])", "1", ("box[1]", "box[-1]", "list(box)[1]",
         "[a for a in box][1]", "next(reversed(box))"),
         ("box[1] = NEW", "box.pop(); box.append(NEW)", "box = collections.deque([0, NEW])")),
        ("bounded deque", "collections.deque([0, OLD], 2)", "-1", ("box[-1]", "list(box)[-1]"),
         ("box.append(NEW)", "box.extend([0, NEW])")),
        ("UserList", "collections.UserList([0, OLD])", "1", ("box[1]", "box.data[1]",
        "list(box)[1]"),
         ("box[1] = NEW", "box.data[1] = NEW", "box.data = [0, NEW]")),
        ("UserDict", "collections.UserDict(b=OLD)", "'b'", ("box['b']", "box.data['b']",
         "dict(box)['b']", "box.get('b')"), ("box['b'] = NEW", "box.data['b'] = NEW",
         "box.data = {'b': NEW}")),
        ("ChainMap", "collections.ChainMap({}, {'b': OLD})", "'b'", ("box['b']", "box.get('b')",
         "dict(box)['b']", "[m for m in box.maps if 'b' in m][0]['b']"),
         ("box['b'] = NEW", "box.maps[1]['b'] = NEW; box.maps[0].clear()",
          "box.maps.insert(0, {'b': NEW})", "box = box.new_child({'b': NEW})")),
        ("defaultdict", "collections.defaultdict(lambda: OLD)", "'b'", ("box['b']",
         "box.get('b', box['b'])"), ("box['b'] = NEW", "box.clear(); "
         "box.default_factory = lambda: NEW")),
        ("OrderedDict", "collections.OrderedDict(a=0, b=OLD)", "'b'", ("box['b']",
         "list(box.values())[-1]"), ("box['b'] = NEW", "box['b'] = NEW; box.move_to_end('b')")),
        ("subclass of dict", "type('Own', (dict,), {'__missing__': lambda self, k: "
        "self['b']})(b=OLD)",
         "'b'", ("box['b']", "box['c']"),
         ("box['b'] = NEW", "type(box).__missing__ = lambda self, k: NEW; box['b'] = NEW")),
        ("subclass of list", "type('Own', (list,), {})([0, OLD])", "1", ("box[1]", "list(box)[1]"),
         ("box[1] = NEW", "list.__setitem__(box, 1, NEW)")),
        ("array of objects", "np.array([0, None], dtype=object); box[1] = OLD", "1", ("box[1]",
         "box.tolist()[1]"), ("box[1] = NEW", "box[1:] = [NEW]")),
        ("long list", "[0] * 4000 + [OLD]", "4000", ("box[4000]", "box[-1]", "list(box)[-1]",
         "[a for a in box][-1]"), ("box[4000] = NEW", "box[-1] = NEW")),
        ("long dict", "{i: 0 for i in range(4000)}; box[4000] = OLD", "4000", ("box[4000]",
         "list(box.values())[-1]", "box.get(4000)"), ("box[4000] = NEW",
         "box.update({4000: NEW})")),
    )
)  # fmt: skip

_ARGUMENTS = (
    Place("argument", "box = OLD", ("box",), ("box = NEW",), "box", "box"),
    Place("item of a list argument", "box = [0, OLD]", ("box[1]", "list(box)[-1]",
          "[a for a in box][1]"), ("box[1] = NEW", "box = [0, NEW]"), "box[1]", "box"),
    Place("item of a dict argument", "box = {'b': OLD}", ("box['b']", "box.get('b')",
          "list(box.values())[0]"), ("box['b'] = NEW", "box = {'b': NEW}"), "box['b']", "box"),
    Place("attribute of an argument", _BOX + "box = Box(OLD)", ("box.value", "vars(box)['value']",
          "getattr(box, 'va' + 'lue')", "operator.attrgetter('value')(box)"),
          ("box.value = NEW", "object.__setattr__(box, 'value', NEW)", "box = Box(NEW)",
           "box.__dict__['value'] = NEW"), "box.value", "box"),
    Place("class attribute of an argument", "class Box:\n    value = OLD\nbox = Box()",
          ("box.value", "type(box).value"), ("Box.value = NEW",), "Box.value", "box", "data"),
    Place("item of a deque argument", "box = collections.deque([0, OLD])", ("box[1]",
          "list(box)[1]"),
          ("box[1] = NEW", "box.append(NEW); box.popleft()"), "box[1]", "box"),
    Place("item of a UserList argument", "box = collections.UserList([0, OLD])", ("box[1]",),
          ("box[1] = NEW", "box.data[1] = NEW"), "box[1]", "box"),
    Place("item of a ChainMap argument", "box = collections.ChainMap({}, {'b': OLD})",
          ("box['b']",), ("box['b'] = NEW", "box.maps[1]['b'] = NEW; box.maps[0].clear()"),
          "box['b']", "box"),
    Place("closure of a function argument", "def make(value):\n    return lambda: value\n"
          "box = make(OLD)", ("box()",), ("box.__closure__[0].cell_contents = NEW",
          "box = make(NEW)"), "box()", "box"),
)  # fmt: skip

_LAYER = """
class Layer(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value
    def forward(self, y):
        return y
"""
_MODULES = (
    Place("attribute of a module of layers", _LAYER + "layer = Layer(OLD)",
          ("layer.value", "getattr(layer, 'value')", "vars(layer)['value']",
           "operator.attrgetter('value')(layer)"),
          ("layer.value = NEW", "object.__setattr__(layer, 'value', NEW)",
           "layer.__dict__['value'] = NEW", "layer = Layer(NEW)"), "layer.value", kinds="plain"),
    Place("class attribute of layers", "class Layer(nn.Module):\n    value = OLD\nlayer = Layer()",
          ("layer.value", "type(layer).value", "Layer.value"), ("Layer.value = NEW",),
          "Layer.value", kinds="plain"),
    Place("attribute of an inner layer", _LAYER + "layer = nn.Sequential(Layer(OLD), nn.ReLU())",
          ("layer[0].value", "next(layer.children()).value", "list(layer.modules())[1].value",
           "layer.get_submodule('0').value"),
          ("layer[0].value = NEW", "layer[0] = Layer(NEW)", "vars(layer[0])['value'] = NEW"),
          "layer[0].value", kinds="plain"),
    Place("list of layers", _LAYER + "layers = nn.ModuleList([Layer(0), Layer(OLD)])",
          ("layers[1].value", "[layer.value for layer in layers][1]", "list(layers)[-1].value"),
          ("layers[1] = Layer(NEW)", "layers[1].value = NEW"), "layers[1].value", kinds="plain"),
    Place("group of an optimizer", "weight = nn.Parameter(rl.ones(6))\n"
          "optimizer = optim.SGD([weight], lr=0.1)\noptimizer.param_groups[0]['own'] = OLD",
          ("optimizer.param_groups[0]['own']", "[g['own'] for g in optimizer.param_groups][0]"),
          ("optimizer.param_groups[0]['own'] = NEW", "optimizer.param_groups[0].update(own=NEW)"),
          "optimizer.param_groups[0]['own']", kinds="plain"),
)  # fmt: skip

PLACES = _NAMES + _ATTRIBUTES + _CONTAINERS + _ARGUMENTS + _MODULES
