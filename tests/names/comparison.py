"""The cases of `cases.txt`: which of torch's names and keywords they use, and how they are run."""

from __future__ import annotations

import ast
import linecache
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tools.torch_names import CASES, covered

ROWS = np.array([[0.5, -1.2, 2.0, 0.1], [1.5, 0.3, -0.7, 2.2], [-0.4, 1.1, 0.9, -2.5]], np.float32)


@dataclass(frozen=True)
class Case:
    """An expression, and whether its values are random."""

    text: str
    random: bool

    def run(self, torch: Any, tmp: Path) -> Any:
        """The result with a framework."""
        return eval(compile(self.text, "<case>", "eval"), names(torch, tmp))

    def function(self, torch: Any, tmp: Path) -> tuple[Callable[[], Any], dict[str, Any]]:
        """The same as a function with a source, for jit, and the names that it reads."""
        file = f"<case {abs(hash(self.text))}>"
        source = f"def case():\n    return {self.text}\n"
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        space = names(torch, tmp)
        exec(compile(source, file, "exec"), space)
        return space["case"], space


def cases() -> Iterator[Case]:
    for line in CASES.read_text().splitlines():
        if line and not line.startswith("#"):
            yield Case(line.removeprefix("~ "), line.startswith("~"))


def uses() -> dict[str, set[str]]:
    """The names that the cases use, each with its keywords."""
    found: dict[str, set[str]] = {}
    for case in cases():
        for name, keywords in covered(ast.parse(case.text)):
            found.setdefault(name, set()).update(keywords)
    return found


def names(torch: Any, tmp: Path) -> dict[str, Any]:
    """What an expression may name: tensors of all kinds, and short ways to train and save."""
    nn = torch.nn
    x = torch.tensor(ROWS, requires_grad=True)

    def same(module: Any) -> Any:
        with torch.no_grad():
            for place, parameter in enumerate(module.parameters()):
                count = parameter.numel()
                values = np.cos(np.arange(count, dtype=np.float32) + place).reshape(parameter.shape)
                parameter.copy_(torch.tensor(values))
        return module

    def leaf_gradient(run: Callable[[Any], Any]) -> Any:
        leaf = torch.tensor(ROWS, requires_grad=True)
        run(leaf)
        return leaf.grad

    def inside(block: Any, run: Callable[[], Any]) -> Any:
        with block:
            return run()

    def trained(make: Callable[[Any], Any]) -> Any:
        layer = same(nn.Linear(4, 2))
        optimizer = make(list(layer.parameters()))
        for _ in range(3):
            optimizer.zero_grad()
            (layer(torch.tensor(ROWS)) ** 2).sum().backward()
            optimizer.step()
        return layer.weight

    def scheduled(make: Callable[[Any], Any]) -> list[float]:
        optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0)
        scheduler, rates = make(optimizer), []
        for _ in range(5):
            optimizer.step()
            metric = (1.0,) if "Plateau" in type(scheduler).__name__ else ()
            scheduler.step(*metric)
            rates.append(optimizer.param_groups[0]["lr"])
        return rates

    def scalars(make: Callable[[str], Any]) -> bool:
        try:
            writer = make(str(tmp / "events"))
        except (AttributeError, ModuleNotFoundError):  # torch's own needs the package tensorboard
            return True
        with writer:
            writer.add_scalar("loss", 0.5, 3)
        return any((tmp / "events").iterdir())

    def quietly(run: Callable[[], Any]) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return run()

    def doubled(value):
        return value * 2

    def cubed(base: Any, value: Any) -> Any:
        class Cube(base):
            @staticmethod
            def forward(ctx: Any, given: Any) -> Any:
                ctx.save_for_backward(given)
                return given**3

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return gradient * 3 * ctx.saved_tensors[0] ** 2

        return Cube.apply(value)

    return {
        "torch": torch, "nn": nn, "F": nn.functional, "x": x * 1,
        "y": torch.tensor(ROWS[::-1].copy()),
        "p": torch.tensor(np.abs(ROWS) + 0.25), "v": torch.tensor(ROWS[0]),
        "s": torch.tensor(np.sin(np.arange(16, dtype=np.float32)).reshape(4, 4)),
        "b": torch.tensor(np.sin(np.arange(24, dtype=np.float32)).reshape(2, 3, 4)),
        "img": torch.tensor(np.cos(np.arange(288, dtype=np.float32)).reshape(2, 4, 6, 6)),
        "w2": torch.tensor(np.cos(np.arange(36, dtype=np.float32)).reshape(2, 2, 3, 3)),
        "w1": torch.tensor(np.cos(np.arange(12, dtype=np.float32)).reshape(2, 2, 3)),
        "c": torch.tensor(ROWS + 1j * ROWS[::-1]), "m": torch.tensor(ROWS > 0.4),
        "i": torch.tensor([0, 2, 1]), "k": torch.tensor([[0, 3, 1, 2]] * 3),
        "pairs": [(float(n), n) for n in range(5)], "same": same, "leaf_gradient": leaf_gradient,
        "inside": inside, "trained": trained, "scheduled": scheduled, "cubed": cubed,
        "path": str(tmp / "file.pt"),
        "scalars": scalars, "quietly": quietly, "doubled": doubled, "leaf": x,
        "imported": lambda lib, path: import_module(f"{lib.__name__}.{path}"),
        "called_with": lambda block, run, *args: inside(block, lambda: run(*args)),
    }  # fmt: skip


def plain(value: Any) -> Any:
    """A result as NumPy arrays and Python values, with the names of element types."""
    if hasattr(value, "detach"):
        if getattr(value, "is_sparse", False):
            value = value.to_dense()
        kind = str(value.dtype).rpartition(".")[2]
        held = value.detach().to("cpu")
        held = held.float() if kind == "bfloat16" else held
        return kind, np.array(held.numpy() if hasattr(held, "numpy") else held)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def assert_alike(ours: Any, theirs: Any, random: bool) -> None:
    """Equal values up to rounding; of random ones, equal shapes and types."""
    if isinstance(theirs, list):
        assert isinstance(ours, list) and len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            assert_alike(one, other, random)
    elif isinstance(theirs, tuple):
        assert ours[0] == theirs[0] and ours[1].shape == theirs[1].shape
        if not random:
            np.testing.assert_allclose(ours[1], theirs[1], rtol=2e-5, atol=2e-6)
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        assert_alike(list(ours.values()), list(theirs.values()), random)
    elif isinstance(theirs, float):
        np.testing.assert_allclose(float(ours), theirs, rtol=1e-5)
    elif isinstance(theirs, bool | int | str | None):
        assert random or ours == theirs
    else:
        assert type(ours).__name__ == type(theirs).__name__
