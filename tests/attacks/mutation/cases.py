"""Scenarios that are no value in a place: the world outside, layers, branches on values."""

from __future__ import annotations

from tests.attacks.mutation.asked import ASKED
from tests.attacks.mutation.libraries import LIBRARY_CASES
from tests.attacks.mutation.scenario import Case
from tests.attacks.mutation.strange import STRANGE_CASES


def _calls(name: str, expression: str, setup: str = "", **options: object) -> Case:
    text = f"{setup}\ndef f(x):\n    return x * {expression}\n"
    return Case(name, text, **options)  # type: ignore[arg-type]


_WORLD = (
    *(_calls(f"clock: {clock}", f"0 + ({clock})", differs=True) for clock in (
        "time.time_ns() % 2**20", "time.perf_counter_ns() % 2**20", "time.monotonic_ns() % 2**20",
        "time.process_time_ns() % 2**20", "int(uuid.uuid4()) % 2**20", "secrets.randbits(20)",
        "secrets.randbelow(2**20)", "int.from_bytes(os.urandom(2), 'big')",
        "int(secrets.token_hex(2), 16)", "random.SystemRandom().random()")),
    _calls("module random", "random.random()", "random.seed(5)", advances=True,
           change="random.seed(7)"),
    _calls("random choice", "random.choice(list(range(999)))", "random.seed(5)", advances=True,
           change="random.seed(7)"),
    _calls("random imported by name", "draw(0, 10**6)", "random.seed(5)\nfrom random import "
           "randint as draw",
           advances=True, change="random.seed(7)"),
    _calls("random order", "order()[0]", "random.seed(5)\ndef order():\n    a = list(range(99))\n"
           "    random.shuffle(a)\n    return a", advances=True, change="random.seed(8)"),
    _calls("np.random", "np.random.rand()", "np.random.seed(5)", advances=True,
           change="np.random.seed(7)"),
    _calls("np.random, integers", "int(np.random.randint(10**6))", "np.random.seed(5)",
           advances=True, change="np.random.seed(7)"),
    _calls("size of a file", "os.path.getsize(path)", "path = os.path.join(FOLDER, 'a')\n"
           "open(path, 'w').write('ab')", change="open(path, 'a').write('cd')"),
    _calls("names in a folder", "len(os.listdir(FOLDER))", "open(os.path.join(FOLDER, 'a'), "
           "'w').close()",
           change="open(os.path.join(FOLDER, str(len(os.listdir(FOLDER)))), 'w').close()"),
    _calls("whether a file exists", "(2 if os.path.exists(path) else 3)",
           "path = os.path.join(FOLDER, 'a')", change="open(path, 'w').close()",
           back="os.remove(path)"),
    _calls("open file", "int(file.readline())", "path = os.path.join(FOLDER, 'a')\n"
           "open(path, 'w').write('1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n9\\n10\\n' * 9)\nfile = "
           "open(path)",
           advances=True, change="file.seek(0)"),
    _calls("folder of work", "len(os.getcwd())", change="HOME = os.getcwd(); os.chdir('/')",
           back="os.chdir(HOME)"),
    _calls("environment that comes and goes", "len(os.environ)",
           change="os.environ['RIDGELINE_ATTACKED_TOO'] = '1'",
           back="del os.environ['RIDGELINE_ATTACKED_TOO']"),
    _calls("number of threads", "threading.active_count()", change="done = threading.Event(); "
           "t = threading.Thread(target=done.wait); t.start()", back="done.set(); t.join()"),
    _calls("limit of recursion", "sys.getrecursionlimit()",
           change="sys.setrecursionlimit(sys.getrecursionlimit() + 500)",
           back="sys.setrecursionlimit(sys.getrecursionlimit() - 500)"),
    _calls("function of math that is replaced", "float(fake.sqrt(4.0))",
           "fake = types.ModuleType('fake')\nfake.sqrt = math.sqrt", change="fake.sqrt = math.exp",
           back="fake.sqrt = math.cos"),
    _calls("function imported by name", "helper()", "other = types.ModuleType('other')\n"
           "exec('def helper(): return 2', other.__dict__)\nhelper = other.helper",
           change="other.helper.__code__ = (lambda: 3).__code__",
           back="other.helper.__code__ = (lambda: 2).__code__"),
    _calls("code in a string", "eval(code)", "code = '1 + 1'", change="code = '1 + 2'",
           back="code = '7'"),
    _calls("compiled code", "eval(code)", "code = compile('k + 1', 'a', 'eval')\nk = 1",
           change="k = 2", back="k = 9"),
    _calls("number of calls", "count()", "calls = 0\ndef count():\n    global calls\n    calls += "
           "1\n"
           "    return calls", advances=True, change="calls = 0"),
    _calls("number of calls, nonlocal", "count()", "def make():\n    calls = 0\n    def count():\n"
           "        nonlocal calls\n        calls += 1\n        return calls\n    def reset():\n"
           "        nonlocal calls\n        calls = 0\n    return count, reset\n"
           "count, reset = make()", advances=True, change="reset()"),
    _calls("mutable default that grows", "grow()", "def grow(seen=[]):\n    seen.append(1)\n"
           "    return len(seen)", advances=True, change="grow.__defaults__[0].clear()"),
    _calls("cached helper with arguments", "get(1)", "k = 2\n@functools.lru_cache\n"
           "def get(n):\n    return n * k", change="k = 3; get.cache_clear()",
           back="k = 2; get.cache_clear()"),
    _calls("cache written by hand", "get(1)", "k, cache = 2, {}\ndef get(n):\n    if n not in "
           "cache:\n"
           "        cache[n] = k\n    return cache[n]", change="k = 3; cache.clear()",
           back="cache[1] = 8"),
    _calls("match statement", "get()", "state = {'kind': 'a', 'k': 2}\ndef get():\n    match "
           "state:\n"
           "        case {'kind': 'a', 'k': k}:\n            return k\n        case _:\n"
           "            return 7", change="state['k'] = 3", back="state['kind'] = 'b'"),
    _calls("isinstance of a class that registers", "(2 if isinstance(3, Abstract) else 5)",
           "import abc\nclass Abstract(abc.ABC):\n    pass", change="Abstract.register(int)",
           back="pass"),
    _calls("sorted by a state", "sorted([1, 2, 3], key=lambda a: sign * a)[0]", "sign = 1",
           change="sign = -1", back="sign = 1"),
    _calls("filtered by a state", "len([a for a in range(9) if a < limit])", "limit = 3",
           change="limit = 5", back="limit = 3"),
    _calls("number of objects", "len(Box.made)", "class Box:\n    made = []\n    def "
           "__init__(self):\n"
           "        Box.made.append(self)\nBox()", change="Box()", back="Box.made.pop()"),
    _calls("subclasses", "len(Box.__subclasses__())", "class Box:\n    pass\nclass A(Box):\n    "
           "pass",
           change="class B(Box):\n    pass", back="class C(Box):\n    pass"),
    _calls("references", "len(weak)", "class Box:\n    pass\na, b = Box(), Box()\n"
           "weak = weakref.WeakSet([a, b])", change="del b", back="b = Box(); weak.add(b)"),
    _calls("weak reference that dies", "(2 if ref() is None else 3)", "class Box:\n    pass\n"
           "a = Box()\nref = weakref.ref(a)", change="del a",
           back="a = Box(); ref = weakref.ref(a)"),
    _calls("length of a name", "len(Box.__name__)", "class Box:\n    pass",
           change="Box.__name__ = 'Longer'", back="Box.__name__ = 'Box'"),
    _calls("doc of a function", "len(g.__doc__)", "def g():\n    'text'",
           change="g.__doc__ = 'longer text'", back="g.__doc__ = 'text'"),
    _calls("names of an object", "len(dir(box))", "box = types.SimpleNamespace(a=1)",
           change="box.b = 2", back="del box.b"),
    _calls("attributes of an object", "len(vars(box))", "box = types.SimpleNamespace(a=1)",
           change="box.b = 2", back="del box.b"),
    _calls("default of getattr", "getattr(box, 'b', 5)", "box = types.SimpleNamespace(a=1)",
           change="box.b = 2", back="del box.b"),
    _calls("missing key", "box.get('b', 5)", "box = {'a': 1}", change="box['b'] = 2",
           back="del box['b']"),
    _calls("missing global", "globals().get('b', 5)", "", change="b = 2", back="del b"),
    _calls("missing name caught", "get()", "def get():\n    try:\n        return absent\n"
           "    except NameError:\n        return 5", change="absent = 2", back="del absent"),
    _calls("missing attribute caught", "get()", "class Box:\n    pass\nbox = Box()\ndef get():\n"
           "    try:\n        return box.absent\n    except AttributeError:\n        return 5",
           change="box.absent = 2", back="del box.absent; Box.absent = 9"),
    _calls("type of a value", "len(type(box).__name__)", "box = 1", change="box = 'a'",
           back="box = 1.0"),
    _calls("bit of a string", "int(text.split('=')[1])", "text = 'k=2'", change="text = 'k=3'",
           back="text = 'k=9'"),
    _calls("JSON", "json.loads(text)['k']", "text = '{\"k\": 2}'", change="text = '{\"k\": 3}'",
           back="text = '{\"k\": 9}'"),
    _calls("template", "int(template.substitute(k=k))", "template = string.Template('1$k')\nk = 2",
           change="k = 3", back="template = string.Template('2$k')"),
    _calls("bisection", "bisect.bisect(marks, 5)", "marks = [1, 4, 7]", change="marks[1] = 6",
           back="marks[:] = [1, 4, 7]"),
)  # fmt: skip

_NETWORK = """
rl.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
def f(x):
    return model(x)
"""
_STEP = """
weight = nn.Parameter(rl.ones(6))
optimizer = optim.SGD([weight], lr=0.1, momentum=0.5)
def f(x):
    optimizer.zero_grad()
    loss = ((weight * x - 1) ** 2).sum()
    loss.backward()
    optimizer.step()
    return loss, weight.detach() + 0
"""
_LAYERS = (
    Case("weights replaced", _NETWORK, "model[0].weight = nn.Parameter(rl.ones(4, 6))",
         "model[0].weight = nn.Parameter(rl.zeros(4, 6))"),
    Case("weights filled", _NETWORK, "nn.init.constant_(model[0].weight, 0.5)",
         "model[0].weight.data.zero_()"),
    Case("data of a weight", _NETWORK, "model[2].bias.data = rl.ones(2)",
         "model[2].bias.data.add_(1)"),
    Case("layer replaced", _NETWORK, "model[1] = nn.Tanh()", "model[1] = nn.Sigmoid()"),
    Case("layer added", _NETWORK, "model.append(nn.Tanh())", "model.append(nn.Sigmoid())"),
    Case("layer removed", _NETWORK, "del model[2]", "del model[1]"),
    Case("layer through _modules", _NETWORK, "model._modules['1'] = nn.Tanh()",
         "model._modules['1'] = nn.Sigmoid()"),
    Case("layer through __dict__", _NETWORK, "model.__dict__['_modules']['1'] = nn.Tanh()",
         "model.__dict__['_modules']['1'] = nn.Sigmoid()"),
    Case("weight through _parameters", _NETWORK,
         "model[0]._parameters['bias'] = nn.Parameter(rl.ones(4))",
         "model[0]._parameters['bias'] = None"),
    Case("bias taken away", _NETWORK, "model[0].bias = None", "model[2].bias = None"),
    Case("state loaded", _NETWORK,
         "model.load_state_dict({k: t + 1 for k, t in model.state_dict().items()})"),
    Case("forward hook", _NETWORK, "hook = model[0].register_forward_hook(lambda m, i, o: o * 2)",
         "hook.remove()"),
    Case("forward pre-hook", _NETWORK,
         "hook = model[0].register_forward_pre_hook(lambda m, i: (i[0] + 1,))", "hook.remove()"),
    Case("forward of an instance", _NETWORK, "model.forward = lambda y: y * 2",
         "del model.__dict__['forward']"),
    Case("forward of a class", _NETWORK.replace("nn.ReLU()", "Own()").replace(
         "model =", "class Own(nn.Module):\n    def forward(self, y):\n        return y * "
         "2\nmodel ="),
         "Own.forward = lambda self, y: y + 7", "Own.forward = lambda self, y: y"),
    Case("training and evaluation", _NETWORK.replace("nn.ReLU()", "nn.BatchNorm1d(4)").replace(
         "model(x)", "model(x.reshape(1, 6).repeat(3, 1) * rl.tensor([[1.0], [2.0], [5.0]]))"),
         "model.eval()", "model.train()"),
    Case("training of one layer", _NETWORK.replace("nn.ReLU()", "nn.Dropout(1.0)"),
         "model[1].training = False", "model[1].training = True"),
    Case("rate of a dropout", _NETWORK.replace("nn.ReLU()", "nn.Dropout(1.0)"),
         "model[1].p = 0.0", "model[1].p = 1.0"),
    Case("slope of a layer", _NETWORK.replace("nn.ReLU()", "nn.LeakyReLU(0.1)"),
         "model[1].negative_slope = -3.0", "model[1].__dict__['negative_slope'] = 5.0"),
    Case("gradient wanted or not", _NETWORK, "[p.requires_grad_(False) for p in "
         "model.parameters()]",
         "model[0].weight.requires_grad_(True)"),
    Case("jitted network", _NETWORK + "f = model\n", "model[1] = nn.Tanh()",
         "nn.init.constant_(model[0].weight, 0.5)"),
    Case("jitted method of a network", "class Net(nn.Module):\n    def __init__(self):\n"
         "        super().__init__()\n        self.scale, self.w = 2, nn.Parameter(rl.ones(6))\n"
         "    def step(self, x):\n        return x * self.w * self.scale\nnet = Net()\nf = "
         "net.step\n",
         "net.scale = 3", "net.w = nn.Parameter(rl.zeros(6))"),
    Case("buffer", "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
         "        self.register_buffer('b', rl.ones(6))\n    def forward(self, x):\n"
         "        return x * self.b\nnet = Net()\nf = lambda x: net(x)\n",
         "net.b = rl.zeros(6)", "net._buffers['b'] = rl.ones(6) * 3"),
    Case("buffer that counts", "class Net(nn.Module):\n    def __init__(self):\n"
         "        super().__init__()\n        self.register_buffer('b', rl.zeros(6))\n"
         "    def forward(self, x):\n        self.b += 1\n        return x * self.b\nnet = Net()\n"
         "f = lambda x: net(x)\n", "net.b = rl.ones(6) * 9", "net.b.zero_()", advances=True),
    Case("tensor that an attribute keeps", "class Net:\n    h = rl.zeros(6)\nnet = Net()\n"
         "def f(x):\n    net.h = net.h * 0.5 + x\n    return net.h\n", "net.h = rl.ones(6)",
         "net.h = rl.zeros(6)", advances=True),
    Case("tensor that a list keeps", "held = [rl.zeros(6)]\ndef f(x):\n"
         "    held[0] = held[0] * 0.5 + x\n    return held[0]\n", "held[0] = rl.ones(6)",
         "held[0] = rl.zeros(6)", advances=True),
    Case("tensor that a global keeps", "h = rl.zeros(6)\ndef f(x):\n    global h\n"
         "    h = h * 0.5 + x\n    return h\n", "h = rl.ones(6)", "h = rl.zeros(6)", advances=True),
    Case("learning rate", _STEP, "optimizer.param_groups[0]['lr'] = 0.01",
         "optimizer.param_groups[0]['lr'] = 0.5", advances=True),
    Case("momentum", _STEP, "optimizer.param_groups[0]['momentum'] = 0.9",
         "optimizer.param_groups[0]['momentum'] = 0.0", advances=True),
    Case("weight decay", _STEP, "optimizer.param_groups[0]['weight_decay'] = 0.3",
         "optimizer.param_groups[0]['weight_decay'] = 0.0", advances=True),
    Case("nesterov", _STEP, "optimizer.param_groups[0]['nesterov'] = True",
         "optimizer.param_groups[0]['nesterov'] = False", advances=True),
    Case("group added", _STEP.replace("weight * x", "weight * x + more").replace(
         "optimizer =", "more = nn.Parameter(rl.ones(6))\noptimizer ="),
         "optimizer.add_param_group({'params': [more]})", "optimizer.param_groups.pop()",
         advances=True),
    Case("groups replaced", _STEP, "optimizer.param_groups = [dict(g, lr=0.01) for g in "
         "optimizer.param_groups]", "optimizer.param_groups[0]['params'] = []", advances=True),
    Case("parameters of a group", _STEP.replace("weight * x", "weight * x + more").replace(
         "optimizer =", "more = nn.Parameter(rl.ones(6))\noptimizer ="),
         "optimizer.param_groups[0]['params'].append(more); optimizer.state[more] = {}",
         "optimizer.param_groups[0]['params'].pop(0)", advances=True, live=False),
    Case("optimizer replaced", _STEP, "optimizer = optim.Adam([weight], lr=0.3)",
         "optimizer = optim.SGD([weight], lr=0.2)", advances=True),
    Case("state of an optimizer", _STEP, "optimizer.state.clear()", advances=True, live=False),
    Case("hook of a weight", _STEP, "hook = weight.register_hook(lambda g: g * 2)",
         "hook.remove()", advances=True),
    Case("hook after a gradient", _STEP,
         "hook = weight.register_post_accumulate_grad_hook(lambda p: [p.grad.mul_(2), None][1])",
         "hook.remove()", advances=True),
    Case("gradient set by hand", _STEP.replace("    optimizer.zero_grad()\n", ""),
         "weight.grad = rl.ones(6)", "weight.grad = None", advances=True),
    Case("gradient mode", "weight = nn.Parameter(rl.ones(6))\ndef f(x):\n"
         "    return x if (weight * x).requires_grad else -x\n", "rl.set_grad_enabled(False)",
         "rl.set_grad_enabled(True)"),
    Case("default element type", "def f(x):\n    return rl.ones(6) * 2\n",
         "rl.set_default_dtype(rl.float64)", "rl.set_default_dtype(rl.float32)"),
    Case("schedule of a learning rate", _STEP.replace("def f", "schedule = "
         "optim.lr_scheduler.StepLR(optimizer, 1, 0.5)\ndef f"), "schedule.step()", advances=True),
)  # fmt: skip

_OTHERS = (
    Case("branch on a value in try", "def f(x):\n    try:\n        if x.sum() > LIMIT:\n"
         "            return x * 2\n    except Exception:\n        pass\n    return x * 3\nLIMIT "
         "= 5\n",
         "LIMIT = 500", "LIMIT = 5"),
    Case("branch on a value, everything caught", "def f(x):\n    try:\n        big = bool((x > "
         "3).any())\n"
         "    except BaseException:\n        big = False\n    return x * k if big else -x\nk = 1\n",
         "k = 2"),
    Case("branch on a value in a helper", "def big(y):\n    try:\n        return float(y.sum()) > "
         "3\n"
         "    except Exception as error:\n        return False\ndef f(x):\n"
         "    return x * k if big(x) else -x\nk = 1\n", "k = 2"),
    Case("suppressed", "def f(x):\n    out = x * k\n    with contextlib.suppress(Exception):\n"
         "        if x.max() > 2:\n            out = out + 100\n    return out\nk = 1\n", "k = 2"),
    Case("caught and finally", "def f(x):\n    out = x\n    try:\n        n = int(x.sum())\n"
         "        out = x * n * k\n    except Exception:\n        out = -x\n    finally:\n"
         "        return out\nk = 1\n", "k = 2"),
    Case("text of a tensor", "def f(x):\n    return x * len(str(x * k))\nk = 1\n", "k = 1000.125"),
    Case("text of a tensor in an f-string", "def f(x):\n    return x * len(f'{x * k}')\nk = 1\n",
         "k = 1000.125"),
    Case("repr of a tensor", "def f(x):\n    return x * len(repr(x * k))\nk = 1\n", "k = 1000.125"),
    Case("format of a number", "def f(x):\n    return x * len(f'{(x * k).sum():.3f}')\nk = 1\n",
         "k = 10000"),
    Case("number of a tensor", "def f(x):\n    return x * (x * k).sum().item()\nk = 1\n", "k = 2"),
    Case("list of a tensor", "def f(x):\n    return x * sum((x * k).tolist())\nk = 1\n", "k = 2"),
    Case("array of a tensor", "def f(x):\n    return x * float((x * k).numpy().sum())\nk = 1\n",
         "k = 2"),
    Case("one object or two", "a = [1]\nb = a\ndef f(x, a, b):\n    return x * (2 if a is b else "
         "3)\n",
         "b = [1]", "b = a", arguments="a, b"),
    Case("one tensor or two", "a = rl.ones(6)\nb = a\ndef f(x, a, b):\n"
         "    return x * (2 if a is b else 3)\n", "b = rl.ones(6)", "b = a", arguments="a, b"),
    Case("one object or two, written", "a = [1]\nb = a\ndef f(x, a, b):\n    return x * (a[0] + "
         "b[0])\n",
         "b = [5]", "a = b", arguments="a, b"),
    Case("one dict or two", "a = {}\nb = a\ndef f(x, a, b):\n    return x * (2 if a is b else 3)\n",
         "b = {}", "b = a", arguments="a, b"),
    Case("argument and global are one", "a = [1]\nb = a\ndef f(x, a):\n"
         "    return x * (2 if a is b else 3)\n", "b = [1]", "b = a", arguments="a"),
    Case("same tensor, written in place", "a = rl.ones(6)\nb = a\ndef f(x, a, b):\n    c = a * x\n"
         "    a.add_(1)\n    return c + b\n", "b = rl.ones(6)", "b = a", arguments="a, b",
         advances=True),
    Case("views of one tensor", "base = rl.ones(12)\na, b = base[:6], base[6:]\n"
         "def f(x, a, b):\n    a.mul_(2)\n    return x * b\n", "b = base[:6]", "b = base[3:9]",
         arguments="a, b", advances=True),
    Case("identity of globals", "a = b = object()\ndef f(x):\n    return x * (2 if a is b else "
         "3)\n",
         "b = object()", "b = a"),
    Case("identity number", "a = b = object()\ndef f(x):\n"
         "    return x * (2 if id(a) == id(b) else 3)\n", "b = object()", "b = a"),
    Case("jitted callable object", "class Scale:\n    k = 2\n    def __call__(self, x):\n"
         "        return x * self.k\nf = Scale()\n", "f.k = 3", "type(f).__call__ = "
         "lambda self, x: x + self.k"),
    Case("jitted partial", "def g(k, x):\n    return x * k['a']\nf = functools.partial(g, {'a': "
         "2})\n",
         "f.args[0]['a'] = 3", "f.args[0]['a'] = 9"),
    Case("jitted partial with keywords", "def g(x, k):\n    return x * k\n"
         "f = functools.partial(g, k=2)\n", "f.keywords['k'] = 3", "f.keywords['k'] = 9"),
    Case("jitted static method", "class Box:\n    k = 2\n    @staticmethod\n    def g(x):\n"
         "        return x * Box.k\nf = Box.g\n", "Box.k = 3", "Box.k = 4"),
    Case("jitted class method", "class Box:\n    k = 2\n    @classmethod\n    def g(cls, x):\n"
         "        return x * cls.k\nf = Box.g\n", "Box.k = 3", "Box.k = 4"),
    Case("jitted wrapped function", "k = 2\ndef wrapping(g):\n    @functools.wraps(g)\n"
         "    def inner(*a, **kw):\n        return g(*a, **kw) * k\n    return inner\n@wrapping\n"
         "def f(x):\n    return x + k\n", "k = 3", "f.__wrapped__.__code__ = (lambda x: x - "
         "k).__code__"),
    Case("its own code", "def f(x):\n    return x * 2\n", "f.__code__ = (lambda x: x * 3).__code__",
         "f.__code__ = (lambda x: x + 1).__code__"),
    Case("its own attribute", "def f(x):\n    return x * f.k\nf.k = 2\n", "f.k = 3", "f.k = 9"),
    Case("its own default", "def f(x, *, k=2):\n    return x * k\n", "f.__kwdefaults__ = {'k': 3}",
         "f.__kwdefaults__['k'] = 9"),
    Case("jitted function inside", "k = 2\n@rl.jit\ndef inner(y):\n    return y * k\ndef f(x):\n"
         "    return inner(x) + k\n", "k = 3", "k = 9"),
    Case("function chosen by a table", "table = {'a': lambda y: y * 2}\nwhich = 'a'\ndef f(x):\n"
         "    return table[which](x)\n", "table['b'] = lambda y: y + 3; which = 'b'",
         "table['b'] = lambda y: y - 4"),
    Case("loop over functions", "steps = [lambda y: y * 2]\ndef f(x):\n    for step in steps:\n"
         "        x = step(x)\n    return x\n", "steps.append(lambda y: y + 1)", "steps.reverse()"),
    Case("loop over a range from a state", "state = types.SimpleNamespace(n=2)\ndef f(x):\n"
         "    for _ in range(state.n):\n        x = x * 2\n    return x\n", "state.n = 3",
         "state.n = 0"),
    Case("while over a state", "limits = [2]\ndef f(x):\n    i = 0\n    while i < limits[0]:\n"
         "        x, i = x + i + 1, i + 1\n    return x\n", "limits[0] = 4", "limits[0] = 1"),
    Case("condition that skips a read", "a, b = True, 2\ndef f(x):\n    return x if a else x * b\n",
         "a = False", "b = 5"),
    Case("or that skips a read", "a, b = 0, 2\ndef f(x):\n    return x * (a or b)\n", "b = 7",
         "a = 5"),
    Case("equality of objects", "class Key:\n    def __init__(self, n):\n        self.n = n\n"
         "    def __eq__(self, o):\n        return self.n == o.n\na, b = Key(1), Key(1)\n"
         "def f(x):\n    return x * (2 if a == b else 3)\n", "b.n = 2", "a.n = 2"),
    Case("order of objects", "@functools.total_ordering\nclass Key:\n    def __init__(self, n):\n"
         "        self.n = n\n    def __lt__(self, o):\n        return self.n < o.n\n"
         "    def __eq__(self, o):\n        return self.n == o.n\na, b = Key(1), Key(2)\n"
         "def f(x):\n    return x * (2 if a < b else 3)\n", "b.n = 0", "a.n = -1"),
    Case("configuration object", "class Config:\n    def __init__(self, **kw):\n"
         "        self.__dict__.update(kw)\nconfig = Config(layers=[{'act': 'relu'}], scale=2)\n"
         "def f(x):\n    for layer in config.layers:\n        x = getattr(rl, layer['act'])(x)\n"
         "    return x * config.scale\n", "config.layers[0]['act'] = 'tanh'",
         "config.layers.append({'act': 'exp'})"),
    Case("lock", "lock = threading.Lock()\ndef f(x):\n    with lock:\n        return x * k\nk = "
         "2\n",
         "k = 3", "k = 4"),
    Case("held lock", "lock = threading.Lock()\ndef f(x):\n    return x * (2 if lock.locked() "
         "else 3)\n",
         "lock.acquire()", "lock.release()"),
    Case("event", "event = threading.Event()\ndef f(x):\n    return x if event.is_set() else -x\n",
         "event.set()", "event.clear()"),
    Case("generator that a function makes", "def items(n):\n    for i in range(n):\n        yield "
         "i * k\n"
         "k = 2\ndef f(x):\n    return sum(x * i for i in items(3))\n", "k = 3", "k = 1"),
    Case("iterators of its own", "values = [1, 2, 3]\ndef f(x):\n    it = iter(values)\n    "
         "next(it)\n"
         "    return x * next(it)\n", "values[1] = 9", "values.insert(0, 4)"),
    Case("count of its own", "start = 2\ndef f(x):\n    numbers = itertools.count(start)\n"
         "    return x * next(numbers) * next(numbers)\n", "start = 3", "start = 1"),
    Case("random stream of its own", "seed = 2\ndef f(x):\n    return x * "
         "random.Random(seed).random()\n",
         "seed = 3", "seed = 4"),
    Case("slice object", "which = slice(0, 3)\ndef f(x):\n    return x[which]\n",
         "which = slice(1, 5)",
         "which = slice(None, None, 2)"),
    Case("range object", "numbers = range(3)\ndef f(x):\n    return x * sum(numbers)\n",
         "numbers = range(5)", "numbers = range(0, 9, 4)"),
    Case("element type", "kind = rl.float32\ndef f(x):\n    return x.to(kind)\n",
         "kind = rl.float64",
         "kind = rl.int32"),
    Case("shape", "shape = [2, 3]\ndef f(x):\n    return x.reshape(shape)\n", "shape.reverse()",
         "shape[:] = [6]"),
    Case("complex number", "k = 1 + 2j\ndef f(x):\n    return x * k.real + k.imag\n", "k = 3 + 2j",
         "k = 3 - 2j"),
    Case("decimal and fraction", "from fractions import Fraction\nk = Fraction(1, 2)\ndef f(x):\n"
         "    return x * float(k) * k.denominator\n", "k = Fraction(3, 4)", "k = Fraction(1, 8)"),
    Case("ellipsis and None in an index", "where = (Ellipsis, 0)\ndef f(x):\n"
         "    return x.reshape(2, 3)[where]\n", "where = (None, 0)", "where = (0, Ellipsis)"),
    Case("tensor subscripted by a state", "i = 2\ndef f(x):\n    return x[i] * x\n", "i = 3",
         "i = -1"),
)  # fmt: skip

CASES = _WORLD + _LAYERS + _OTHERS + ASKED + LIBRARY_CASES + STRANGE_CASES
