"""The contract of jit: a compiled call gives what the plain one gives, or raises, or re-traces."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.record.captures import CaptureError, LeakError
from ridgeline.runtime.limits import BusyMachineError, Limits
from ridgeline.tracing import profiles
from tests.functions.comparing import close


def test_traced_once_and_replayed_without_python():
    @rl.jit
    def f(x, y):
        return (x * y + 1.5).relu().sum(0), x - y

    for seed in range(3):
        rl.manual_seed(seed)
        x, y = rl.randn(3, 4), rl.randn(3, 4)
        total, difference = f(x, y)
        close(total, (x * y + 1.5).relu().sum(0))
        close(difference, x - y)
    assert f.traces == 1


def test_results_are_fresh():
    f = rl.jit(lambda x: x + 1)
    x = rl.zeros(3)
    first, second = f(x), f(x)
    first.add_(5)
    assert second.tolist() == [1, 1, 1] and f(x).tolist() == [1, 1, 1]
    same = rl.jit(lambda x: x.clone())
    copy = same(x)
    copy.add_(1)
    assert x.tolist() == [0, 0, 0]


def test_batch_size_dtype_and_static_values():
    @rl.jit
    def f(x, power, *, flip=False):
        return x.flip(0) if flip else x**power

    assert f(rl.ones(2), 2).shape == (2,)
    assert f(rl.ones(3), 2).shape == (3,)
    assert f(rl.ones(3, dtype=rl.float64), 2).dtype is rl.float64
    assert f(rl.tensor([1.0, 2.0]), 3).tolist() == [1, 8]
    assert f(rl.tensor([1.0, 2.0]), 3, flip=True).tolist() == [2, 1]
    assert f.traces == 5
    assert f(rl.tensor([3.0, 4.0]), 3, flip=True).tolist() == [4, 3]
    assert f.traces == 5
    assert "first call" in f.history[0] and "argument 1 was float32[2]" in f.history[1]


class Point(NamedTuple):
    x: rl.Tensor
    y: rl.Tensor


def test_nested_structures():
    @rl.jit
    def f(tree):
        point = tree["points"][0]
        return {"sum": point.x + point.y, "rest": [tree["k"] * point.x, 7, "text"]}

    one, two = rl.ones(2), rl.full((2,), 2.0)
    for _ in range(2):
        result = f({"points": [Point(one, two)], "k": 3})
        assert result["sum"].tolist() == [3, 3] and result["rest"][1:] == [7, "text"]
        assert result["rest"][0].tolist() == [3, 3]
    assert f.traces == 1


def test_in_place_on_an_argument_and_on_a_view():
    @rl.jit
    def f(x):
        x[0].add_(10)
        x.mul_(2)
        return x.sum()

    x = rl.ones(2, 2)
    seen = x.t()
    assert f(x).item() == 48 and x.tolist() == [[22, 22], [2, 2]]
    assert f(x).item() == 136 and seen.tolist() == [[64, 4], [64, 4]]
    base = rl.zeros(3, 2, 2)
    f(base[1])
    assert base.sum().item() == 40 and base[0].sum().item() == 0


def test_aliasing_arguments():
    @rl.jit
    def f(x, y):
        x.add_(1)
        return y * 2

    x, y = rl.zeros(2), rl.zeros(2)
    assert f(x, y).tolist() == [0, 0]
    assert f(x, x).tolist() == [4, 4] and x.tolist() == [2, 2]
    assert f(x, x[:]).tolist() == [6, 6]
    assert f.traces == 2
    assert f(y, x).tolist() == [6, 6] and f.traces == 2


def test_returning_an_argument_or_a_view_of_one():
    @rl.jit
    def f(x):
        x.add_(1)
        return x, x[0], x.detach()

    x = rl.zeros(2)
    for expected in (1, 2):
        same, view, plain = f(x)
        assert same is x
        view.add_(10)
        assert x.tolist() == [expected + 10, expected] and plain.tolist() == x.tolist()
        x[0] = expected


@pytest.mark.parametrize(
    "branch",
    [
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x * x.max().item(),
        lambda x: x * float(x[0]),
        lambda x: x.tolist(),
        lambda x: x.detach().numpy(),
    ],
)
def test_values_cannot_be_read_while_tracing(branch):
    with pytest.raises(CaptureError, match="RL0401") as caught:
        rl.jit(branch)(rl.ones(2))
    assert "test_jit.py" in str(caught.value) and "help" in str(caught.value)


def test_values_that_do_not_depend_on_inputs_can_be_read():
    @rl.jit
    def f(x):
        table = rl.tensor([1.0, 2.0])
        return x * table.sum().item()

    assert f(rl.ones(1)).item() == 3


def test_an_exception_leaves_everything_as_it_was():
    w = rl.ones(2, requires_grad=True)
    state = rl.zeros(2)
    rl.manual_seed(5)
    before = rl.default_generator.get_state()

    @rl.jit
    def broken(x):
        state.add_(1)
        x.mul_(3)
        (w * x).sum().backward()
        rl.rand(3)
        raise ValueError("on purpose")

    x = rl.ones(2)
    with pytest.raises(ValueError, match="on purpose"):
        broken(x)
    assert state.tolist() == [0, 0] and x.tolist() == [1, 1] and w.grad is None
    assert rl.default_generator.get_state() == before
    assert (x + 1).tolist() == [2, 2] and broken.traces == 0


def test_tensors_that_leave_the_trace():
    kept = []

    @rl.jit
    def f(x):
        kept.append(x * 2)
        return x + 1

    assert f(rl.ones(2)).tolist() == [2, 2]
    assert kept[0].tolist() == [2, 2], "what is kept gets its value"
    f(rl.full((2,), 3.0))
    assert [t.tolist() for t in kept] == [[2, 2], [6, 6]], "a changed list is traced again"

    escaped = []

    @rl.jit
    def fails(x):
        escaped.append(x * 2)
        raise KeyError

    with pytest.raises(KeyError):
        fails(rl.ones(2))
    with pytest.raises(LeakError):
        escaped[0] + 1


def test_nested_jit_and_eager():
    inner = rl.jit(lambda x: x * 2)
    outer = rl.jit(lambda x: inner(x) + inner(x + 1))
    assert outer(rl.ones(1)).item() == 6
    with rl.eager():
        assert outer(rl.ones(1)).item() == 6
    assert outer.traces == 1


def test_two_threads():
    rl.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    f = rl.jit(lambda x: model(x))
    inputs = [rl.randn(size, 4) for size in (2, 3, 2, 3)]
    expected = [model(x).detach().numpy().copy() for x in inputs]
    failures = []

    def work(place):
        try:
            for _ in range(20):
                np.testing.assert_allclose(
                    f(inputs[place]).detach().numpy(), expected[place], rtol=1e-5, atol=1e-6
                )
                np.testing.assert_allclose(
                    model(inputs[place]).detach().numpy(), expected[place], rtol=1e-5, atol=1e-6
                )
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and f.traces == 2


def test_traces_are_bounded():
    f = rl.jit(lambda x: x + 1)
    for size in range(40):
        f(rl.ones(size % 36))
    assert len(f._traces) <= 32


def test_shared_memory():
    array = np.zeros(3)
    x = rl.from_numpy(array)

    @rl.jit
    def f(x):
        x.add_(1)
        return x * 2

    assert f(x).tolist() == [2, 2, 2] and array.tolist() == [1, 1, 1]
    array[:] = 5
    assert f(x).tolist() == [12, 12, 12] and array.tolist() == [6, 6, 6]


def test_an_argument_that_is_also_read_directly():
    w = rl.tensor([1.0, 2.0])

    @rl.jit
    def f(x):
        return x * w

    other = rl.tensor([5.0, 5.0])
    assert f(w).tolist() == [1, 4]
    assert f(other).tolist() == [5, 10]
    assert f(w).tolist() == [1, 4]


def test_explain_shows_signatures_graph_and_program(capsys):
    f = rl.jit(lambda x: (x * 2).sum())
    f.explain()
    assert "not called yet" in capsys.readouterr().out
    with rl.config.override(tier="interpreter"):
        f(rl.ones(3))
        f.explain()
    text = capsys.readouterr().out
    assert "1 trace\n" in text and "reduce" in text and "float32[3]" in text


def test_explain_before_a_call_and_down_to_the_code(capsys):
    layer = nn.Linear(3, 2)
    optimizer = optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)

    @rl.jit
    def step(x):
        optimizer.zero_grad()
        loss = layer(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    before = layer.weight.detach().clone()
    step.explain(rl.ones(4, 3), detail="code")
    text = capsys.readouterr().out
    assert "contract" in text and "for " in text and "define " in text
    assert rl.equal(layer.weight, before) and layer.weight.grad is None
    step(rl.ones(4, 3))
    step.explain(detail="kernels")
    text = capsys.readouterr().out
    assert "1 trace\n" in text and "FLOP" in text and "schedule:" not in text
    with pytest.raises(CaptureError, match="summary, kernels, loops, code"):
        step.explain(detail="assembly")


def test_explain_begins_with_a_summary_and_has_times_once_they_were_measured(capsys):
    f = rl.jit(lambda x: ((x @ x).relu() * 2).sum())
    x = rl.ones(64, 64)
    f.explain(x)
    text = capsys.readouterr().out
    assert "kernels in one native call; " in text and "time not measured" in text
    assert "schedule:" not in text and "\ngraph\n" not in text and "more: explain(detail=" in text
    assert len(text.splitlines()) < 20
    profile = f.profile(x, rounds=1)
    assert profile.total.seconds == pytest.approx(sum(kernel.seconds for kernel in profile))
    f.explain(detail="loops")
    text = capsys.readouterr().out
    assert "time not measured" not in text and text.index("share") < text.index("schedule:")
    assert text.index("schedule:") < text.index("\ngraph\n")


def test_a_profile_is_a_table_with_total_share_and_share_of_the_limit(monkeypatch):
    quiet = Limits(1e9, 1e9, "1 GB/s copied, 1 GFLOP/s, measured")
    asked = []

    def limits(place, *, again=False):
        asked.append(again)
        return quiet

    monkeypatch.setattr(profiles, "limits", limits)
    monkeypatch.setattr(profiles, "_measured_again", set())
    f = rl.jit(lambda x: (x @ x).relu())
    profile = f.profile(rl.ones(128, 128), rounds=3)
    head, *rows, total, limit = str(profile).splitlines()
    assert head.split() == ["kernel", "time", "share", "FLOPs", "bytes", "of", "limit", "from"]
    assert len(rows) == len(profile) and total.split()[0] == "total" and " 100% " in total
    assert asked == [False, True]  # far above such a limit, which was therefore measured again
    assert profile[0].of_limit > 1 and f"{profile[0].of_limit:.0%}" in rows[0]
    assert limit.startswith("limit: 1 GB/s copied") and "above 100%" in limit
    assert "<th>of limit</th>" in profile._repr_html_()
    f.profile(rl.ones(128, 128), rounds=1)
    assert asked == [False, True, False]  # once is enough


def test_a_profile_on_a_busy_machine_says_that_there_is_no_limit(monkeypatch):
    def busy(place, *, again=False):
        raise BusyMachineError("it was busy when they were measured")

    monkeypatch.setattr(profiles, "limits", busy)
    profile = rl.jit(lambda x: x + 1).profile(rl.ones(8), rounds=1)
    assert profile[0].of_limit is None and str(profile).endswith(
        "it was busy when they were measured"
    )


def test_a_view_of_a_whole_argument_follows_the_argument() -> None:
    function = rl.jit(lambda a: (a[0:2], a[:], a.expand(2)))
    for start in (1.0, 5.0, 9.0):
        given = rl.tensor([start, start + 1])
        for result in function(given):
            assert result.tolist() == given.tolist()
            result.add_(1)
            assert given.tolist() == result.tolist()


def test_notebooks_show_tables() -> None:
    f = rl.jit(lambda x: (x * 2).sum())
    assert "not called yet" in f._repr_html_()
    f(rl.ones(2))
    f(rl.ones(3))
    page = f.explanation("kernels")._repr_html_()
    assert page.count("<tr>") >= 4 and "argument 1 was float32[2] and is float32[3]" in page
    assert "<th>why it was traced</th>" in page and "<details><summary>graph" in page
    assert "&lt;lambda&gt;" in page and "<lambda>" not in page
    assert f.explanation("kernels").startswith(f.function.__qualname__)
