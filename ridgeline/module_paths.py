"""Where torch's modules live here: `ridgeline.utils.data` is `ridgeline.data`, and so on.

A finder before Python's own serves the paths of the table, names that stand for a package of ours
(`ridgeline/as_torch.py`), and teaches other libraries what our tensors are. One behind it serves
what is an attribute of the module above, so that `import ridgeline.jit` works as torch's does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from ridgeline.torch_names import reason, where

PACKAGE = "ridgeline"
# modules of torch whose names all stand in the module around them here
_INSIDE = {
    "nn": "activation adaptive batchnorm channelshuffle container conv distance dropout flatten "
    "fold instancenorm linear loss module normalization padding pixelshuffle pooling rnn sparse "
    "transformer upsampling",
    "distributions": "bernoulli beta binomial categorical cauchy chi2 constraint_registry "
    "continuous_bernoulli dirichlet exponential fishersnedecor gamma generalized_pareto geometric "
    "gumbel half_cauchy half_normal independent inverse_gamma kumaraswamy laplace lkj_cholesky "
    "log_normal logistic_normal lowrank_multivariate_normal mixture_same_family multinomial "
    "multivariate_normal negative_binomial normal one_hot_categorical pareto poisson "
    "relaxed_bernoulli relaxed_categorical studentT transformed_distribution uniform von_mises "
    "weibull wishart",
    "optim": "adadelta adagrad adamax adamw asgd nadam radam rmsprop rprop",
    "amp": "autocast_mode grad_scaler",
    "amp.cuda": "autocast_mode grad_scaler common",
    "fx": "proxy subgraph_rewriter",
    "nn.parallel": "data_parallel distributed",
    "utils.tensorboard": "writer",
}
# where modules of torch are here
PATHS = {
    **{f"{home}.{name}": home for home, names in _INSIDE.items() for name in names.split()},
    **{f"nn.modules.{name}": "nn" for name in _INSIDE["nn"].split()},
    "autograd.grad_mode": "autograd",
    "autograd.profiler": "profiler",
    "_dynamo": "compiling",
    "_dynamo.config": "compiling.config",
    "_dynamo.eval_frame": "compiling",
    "_inductor": "compiling",
    "_utils": "utils.dense_tensors",
    "cuda.amp": "amp.cuda",
    "data.dataloader": "data.loader",
    "data.distributed": "data.sampler",
    "mps": "absent_devices",
    "nn.attention.flex_attention": "nn.flex_attention",
    "nn.modules": "nn",
    "nn.utils.clip_grad": "nn.utils",
    "nn.utils.stateless": "func",
    "utils._pytree": "utils.pytree",
    "utils.data": "data",
    "utils.data.dataloader": "data.loader",
    "utils.data.distributed": "data.sampler",
    "utils.hooks": "nn.hooks",
    "utils.model_zoo": "hub",
    "xpu": "absent_devices",
}
for _real in ("activation", "dropout", "linear", "loss", "module", "normalization", "pooling",
              "transformer"):  # fmt: skip
    del PATHS[f"nn.{_real}"]  # files of ours
# libraries that are told what our tensors are as soon as they are imported
TEACHERS = {"einops._backends": f"{PACKAGE}.interop.einops"}
_STANDS_FOR = {PACKAGE: PACKAGE}


def home(path: str) -> str:
    """Where a module of torch is here, both without the name of the package."""
    above, _, name = path.rpartition(".")
    return PATHS.get(path) or (f"{home(above)}.{name}" if above else name)


class _Existing(Loader):
    """Gives out an object that exists already, and leaves its own spec in place."""

    def __init__(self, module: Any) -> None:
        self._module, self._spec = module, getattr(module, "__spec__", None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The object, whatever it is: Python asks no more of it than attributes."""
        module: ModuleType = self._module
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has run; only what Python wrote into it is taken back."""
        if isinstance(module, ModuleType):
            module.__spec__ = self._spec


class _Teaching(Loader):
    """Loads a module as its own loader would, and then the module of ours that goes with it."""

    def __init__(self, own: Any, teacher: str) -> None:
        self._own, self._teacher = own, teacher

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """What its own loader makes."""
        made: ModuleType | None = self._own.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, and teach it."""
        self._own.exec_module(module)
        import_module(self._teacher)


class _TorchPaths(MetaPathFinder):
    """Before Python's own finders: modules that are elsewhere, and names for packages of ours."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for what is not where its name says."""
        root, _, rest = fullname.partition(".")
        package = _STANDS_FOR.get(root)
        if fullname in TEACHERS:
            spec = PathFinder.find_spec(fullname, path)
            if spec is not None and spec.loader is not None:
                spec.loader = _Teaching(spec.loader, TEACHERS[fullname])
            return spec
        if package is None or not rest:
            return None
        own = f"{package}.{home(rest) if package == PACKAGE else rest}"
        if own == fullname:
            return None
        try:
            return _spec(fullname, import_module(own))
        except ModuleNotFoundError as error:
            if error.name != own:
                raise
            raise _no_module(fullname, rest) from None


class _Attributes(MetaPathFinder):
    """Behind Python's own finders: what is no module, but an attribute of one of ours."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for an attribute of the module above."""
        above, _, name = fullname.rpartition(".")
        if fullname.partition(".")[0] != PACKAGE or name.startswith("__"):
            return None
        found = getattr(sys.modules.get(above), name, None)
        if found is not None:
            return _spec(fullname, found)
        path = fullname.partition(".")[2]
        if reason(path) and above in sys.modules:
            raise _no_module(fullname, path)
        return None


def _no_module(fullname: str, path: str) -> ModuleNotFoundError:
    """What is said of a module that is not here; with what there is in place of one of torch's."""
    why = reason(path)
    text = f"No module named {fullname!r}" + (f". It is not here: {why}" if why else "")
    return ModuleNotFoundError(text, name=fullname)


def _spec(fullname: str, module: Any) -> ModuleSpec:
    return ModuleSpec(fullname, _Existing(module), is_package=True)


def install() -> None:
    """Serve torch's paths from now on; called when the package is imported."""
    sys.meta_path.insert(0, _TorchPaths())
    sys.meta_path.append(_Attributes())
    for module, teacher in TEACHERS.items():
        if module in sys.modules:
            import_module(teacher)


def serve(name: str, package: str) -> None:
    """Let another name, such as `torch`, stand for a package of ours."""
    _STANDS_FOR[name] = package


def unknown(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a public module: modules by torch's paths, or what else may be meant."""
    own = module.removeprefix(PACKAGE).removeprefix(".")

    def find(name: str) -> Any:
        path = f"{own}.{name}" if own else name
        if home(path) != path:
            return import_module(f"{PACKAGE}.{path}")
        raise AttributeError(missing(module, name), name=name, obj=sys.modules[module])

    return find


def missing(module: str, name: str) -> str:
    """What is said of a name that a public module does not have."""
    from difflib import get_close_matches

    near = get_close_matches(name, [n for n in dir(sys.modules[module]) if n[0] != "_"], 3)
    text = f"module {module!r} has no attribute {name!r}"
    hints = [f"Did you mean {', '.join(near)}?"] if near and not name.startswith("_") else []
    found = where(module, name)
    return ". ".join((text, *([found] if found else []), *hints))
