"""Classes with `__torch_function__` decide what functions do with their objects, as in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import ridgeline as rl  # noqa: E402

LIBRARIES = (torch, rl)


def diagonal(lib: Any) -> Any:
    """A class of numbers on a diagonal that knows `mean`, `matmul` and `cat`, and nothing else."""

    class Diagonal:
        def __init__(self, n: int, value: float) -> None:
            self.n, self.value = n, value

        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is lib.mean:
                return args[0].value / args[0].n
            if func in (lib.matmul, lib.Tensor.matmul):
                a, b = (lib.eye(x.n) * x.value if isinstance(x, Diagonal) else x for x in args)
                return lib.matmul(a, b)
            if func is lib.cat:
                return [x.value if isinstance(x, Diagonal) else "tensor" for x in args[0]]
            if func is lib.add:
                return sorted(t.__name__ for t in types)
            return NotImplemented

    class Special(Diagonal):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return "special" if func is lib.add else NotImplemented

    return Diagonal, Special


@pytest.mark.parametrize("eager", [False, True])
def test_a_class_decides_what_functions_do(eager: bool) -> None:
    found = []
    for lib in LIBRARIES:
        diagonal_of, special_of = diagonal(lib)
        d, s = diagonal_of(2, 3.0), special_of(2, 5.0)
        dense = lib.arange(4.0).reshape(2, 2)
        with rl.eager() if eager else rl.enable_grad():
            found.append(
                [
                    lib.mean(d),
                    lib.matmul(d, dense).tolist(),
                    lib.matmul(dense, d).tolist(),
                    lib.cat([dense, d]),
                    lib.cat((d, d)),
                    lib.add(d, 1),
                    lib.add(d, s),
                    lib.add(s, d),
                ]
            )
    assert found[0] == found[1]


def test_what_no_class_takes_is_a_type_error() -> None:
    for lib in LIBRARIES:
        diagonal_of, _ = diagonal(lib)
        for call in (lib.exp, lib.zeros_like, lib.ones(2).add_):
            with pytest.raises(TypeError):
                call(diagonal_of(2, 1.0))


def test_sizes_and_numbers_are_as_they_were() -> None:
    np.testing.assert_equal(rl.zeros([2, 3]).reshape((3, 2)).shape, (3, 2))
    assert rl.ones(2).new_full((2,), 3.0).tolist() == [3.0, 3.0]
