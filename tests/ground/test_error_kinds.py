"""Errors are of the kinds that other libraries catch; Python's and NumPy's types name elements."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
import ridgeline.array_api as xp
from ridgeline import errors
from ridgeline.learn.base import NotFittedError


def _hook_that_returns() -> None:
    leaf = rl.ones(2, requires_grad=True)
    leaf.register_post_accumulate_grad_hook(lambda t: t.grad)  # type: ignore[arg-type,return-value]
    leaf.sum().backward()


KINDS: list[tuple[type[Exception], Callable[[], Any]]] = [
    (IndexError, lambda: rl.ones(2, 3).sum(2)),
    (IndexError, lambda: rl.ones(3)[rl.tensor([5])].tolist()),
    (RuntimeError, _hook_that_returns),
    (IndexError, lambda: rl.ones(3)[5]),
    (IndexError, lambda: rl.ones(2, 3)[rl.tensor([True])]),
    (IndexError, lambda: rl.ones(3, 3)[rl.tensor([0, 1]), rl.tensor([0, 1, 2])]),
    (IndexError, lambda: rl.ones(2, 3).index_select(0, rl.tensor([[0]]))),
    (TypeError, lambda: rl.ones(2, 3)["a"]),
    (ValueError, lambda: rl.ones(2, 3) + rl.ones(2)),
    (ValueError, lambda: rl.nn.functional.dropout(rl.ones(2), 1.5)),
    (ValueError, lambda: rl.optim.SGD([rl.ones(1, requires_grad=True)], lr=-1.0)),
    (TypeError, lambda: rl.sum("text")),
    (TypeError, lambda: rl.tensor(object())),
    (TypeError, lambda: iter(rl.tensor(1.0))),
    (TypeError, lambda: len(rl.tensor(1.0))),
    (NotImplementedError, lambda: rl.ones(2) & rl.ones(2)),
    (FileNotFoundError, lambda: rl.models.from_pretrained("/there/is/none")),
    (np.linalg.LinAlgError, lambda: rl.linalg.inv(rl.zeros(2, 2)).tolist()),
    (rl.linalg.LinAlgError, lambda: rl.linalg.cholesky(-rl.eye(2)).tolist()),
    (MemoryError, lambda: rl.zeros(1 << 46).numpy()),
]


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_a_mistake_is_an_error_of_the_kind_that_others_catch(number: int) -> None:
    kind, mistake = KINDS[number]
    with pytest.raises(kind) as found:
        mistake()
    if kind is not MemoryError:
        assert isinstance(found.value, rl.RidgelineError)
        assert isinstance(found.value, RuntimeError)
        assert str(found.value).startswith(type(found.value).code)


def test_out_of_memory_has_torchs_names() -> None:
    assert rl.OutOfMemoryError is rl.cuda.OutOfMemoryError
    assert issubclass(rl.OutOfMemoryError, MemoryError | RuntimeError)


def test_an_estimator_that_is_not_fitted_is_known_to_others() -> None:
    assert issubclass(NotFittedError, ValueError) and issubclass(NotFittedError, AttributeError)


@pytest.mark.parametrize(
    "kind",
    [k for k in vars(errors).values() if isinstance(k, type) and k.__module__ == errors.__name__],
)
def test_every_error_is_made_and_printed_alike(kind: type[rl.RidgelineError]) -> None:
    error = kind("what", note="more", help="do")
    assert isinstance(error, RuntimeError)
    assert str(error) == f"{kind.code}: what\n  note: more\n  help: do"


def test_a_scalar_is_not_iterable_to_numpy() -> None:
    assert not np.iterable(rl.tensor(1.0))
    assert np.iterable(rl.ones(1))


TYPES = [
    (bool, rl.bool), (int, rl.int64), (float, rl.float64), (complex, rl.complex128),
    (np.float32, rl.float32), (np.dtype("int16"), rl.int16), (np.bool_, rl.bool),
    (np.longlong, rl.int64), (rl.bfloat16.numpy.type, rl.bfloat16),
]  # fmt: skip


@pytest.mark.parametrize("given, meant", TYPES)
def test_types_of_python_and_numpy_are_element_types(given: Any, meant: rl.DType) -> None:
    x = rl.ones(3, dtype=rl.float16)
    assert rl.zeros(2, dtype=given).dtype is meant
    assert rl.tensor([1], dtype=given).dtype is meant
    assert rl.asarray(np.ones(2), dtype=given).dtype is meant
    assert x.to(given).dtype is x.to(dtype=given).dtype is x.to("cpu", given).dtype is meant
    assert x.type(given).dtype is meant
    assert meant is rl.bool or x.sum(dtype=given).dtype is meant
    assert rl.zeros_like(x, dtype=given).dtype is meant
    assert xp.asarray([1], dtype=given).dtype is xp.zeros(2, dtype=given).dtype is meant
    assert xp.astype(xp.asarray([1]), given).dtype is meant
    assert xp.isdtype(given, meant) and xp.result_type(given, given) is meant


@pytest.mark.parametrize("given", ["float32", 3, object, np.floating, np.dtype("U3"), [1], str])
def test_what_is_no_element_type_is_refused(given: Any) -> None:
    for wrong in (
        lambda: rl.zeros(2, dtype=given),
        lambda: rl.tensor([1], dtype=given),
        lambda: rl.ones(2).sum(dtype=given),
        lambda: rl.ones(2).to(dtype=given),
        lambda: xp.zeros(2, dtype=given),
        lambda: xp.astype(xp.zeros(2), given),
    ):
        with pytest.raises(TypeError):
            wrong()


def test_to_ignores_nothing() -> None:
    x = rl.ones(2)
    for wrong in (
        lambda: x.to([1]), lambda: x.to(foo=1), lambda: x.to(True), lambda: x.to(object()),
        lambda: x.to("cpu", rl.int32, False, True, True), lambda: x.to(copy=3),
        lambda: rl.nn.Linear(1, 1).to([1]), lambda: rl.nn.Linear(1, 1).to(foo=1),
    ):  # fmt: skip
        with pytest.raises(TypeError):
            wrong()
    assert x.to() is x and x.to(None) is x and x.to("cpu", rl.float32) is x
    assert x.to(rl.float32, False, True) is not x and x.to(x, copy=True) is not x
    assert rl.nn.Linear(1, 1).to(float).weight.dtype is rl.float64


def test_arrays_of_scalars() -> None:
    number = rl.asarray(np.int64(3))
    number += 1
    assert number.item() == 4
    for value, kind in ((rl.tensor(3), rl.int64), (rl.tensor(True), rl.bool), (2.5, rl.float32)):
        assert xp.full((2,), value).dtype is kind
    with pytest.raises(TypeError):
        xp.full((2,), "text")


@pytest.mark.parametrize("given", [None, 3, b"x", [1]])
def test_what_is_no_path_is_refused_by_name(given: Any) -> None:
    for function in (
        rl.models.from_pretrained, rl.models.LanguageModel.from_pretrained, rl.load_program,
        rl.load, lambda path: rl.save({}, path),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="path") as caught:
            function(given)
        assert isinstance(caught.value, rl.RidgelineError)


def test_files_that_cannot_be_read_or_written_say_why_in_numbers(tmp_path: Path) -> None:
    for function in (rl.load, rl.models.from_pretrained):
        with pytest.raises(FileNotFoundError) as missing:
            function(tmp_path / "absent")
        assert missing.value.errno == errno.ENOENT
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.OutputFileError) as refused:
        rl.save({}, tmp_path / "file" / "inside")
    assert refused.value.errno in (errno.ENOTDIR, errno.EEXIST)
    with pytest.raises(errors.OutputFileError, match="folder"):
        rl.save({}, "/")


@pytest.mark.parametrize("way", ["deferred", "eager", "jit"])
def test_counts_and_labels_that_do_not_fit_are_refused(way: str) -> None:
    scores, lengths = rl.zeros(4, 2, 3).log_softmax(-1), rl.tensor([4, 4])

    def loss(labels: rl.Tensor, counts: rl.Tensor) -> rl.Tensor:
        return rl.nn.functional.ctc_loss(scores, labels, lengths, counts)

    call = rl.jit(loss) if way == "jit" else loss
    with rl.eager() if way == "eager" else nullcontext():
        for labels, counts in (([1, 2, 1], [1, 1]), ([1, 2, 1], [2, 2]), ([1, 2, 3], [2, 1])):
            with pytest.raises(rl.RidgelineError):
                call(rl.tensor(labels), rl.tensor(counts)).item()
        with pytest.raises(ValueError, match="minlength"):
            rl.bincount(rl.tensor([1]), minlength=-1)
        for name in ("cumsum", "cumprod"):
            with pytest.raises(NotImplementedError):
                getattr(rl.tensor([0.5]), name)(0, dtype=rl.bool)


@pytest.mark.parametrize("name", ["add", "add_", "sub", "sub_"])
def test_a_number_scales_what_comes_after_it(name: str) -> None:
    x, y = rl.tensor([1.0]), rl.tensor([3.0])
    with pytest.raises(TypeError):
        getattr(x, name)(y, -2)
    assert getattr(x, name)(-2, y).item() == (-5 if "add" in name else 7)
