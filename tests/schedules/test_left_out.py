"""Steps that would save time but do not apply are shown by `explain`, with the reason."""

import pytest

import ridgeline as rl
from ridgeline.loops.schedule import (
    LeftOut,
    ScheduleError,
    SetKind,
    Split,
    attempt,
    leave_out,
    noted,
)


def test_explain_shows_steps_that_were_left_out(capsys):
    f = rl.jit(lambda x: x.mT + 1)
    f(rl.ones(3, 40, 50))
    f.explain(detail="loops")
    text = capsys.readouterr().out
    assert "left out: fuse(i1, i2): b0 is not walked in order by the loops to fuse" in text
    assert "RL0501" not in text


def test_a_chain_without_a_mask_says_that_nothing_is_skipped(capsys):
    f = rl.jit(rl.nn.functional.scaled_dot_product_attention)
    q = rl.ones(1, 2, 72, 64)
    f(q, q, q)
    f.explain(detail="loops")
    lines = [line for line in capsys.readouterr().out.splitlines() if "left out: skip" in line]
    assert len(lines) == 1 and "stores no masked values" in lines[0]


def test_a_refused_step_is_noted_once_and_leaves_the_kernel():
    kernel = rl.loops(lambda x: x + 1, rl.ones(8)).kernel
    outer: dict[LeftOut, None] = {}
    inner: dict[LeftOut, None] = {}
    with noted(outer):
        assert attempt(kernel, SetKind("nowhere", "vector")) is None
        assert attempt(kernel, SetKind("nowhere", "vector")) is None
        with noted(inner):
            leave_out("tiles", ScheduleError("too small"))
        made = attempt(kernel, Split("i0", 4))
    assert made is not None and made != kernel
    assert list(outer) == [LeftOut("kind(nowhere, vector)", "there is no loop 'nowhere'")]
    assert list(inner) == [LeftOut("tiles", "too small")]


def test_outside_of_noting_a_refusal_is_only_a_refusal():
    leave_out("tiles", ScheduleError("too small"))
    notes: dict[LeftOut, None] = {}
    with pytest.raises(AttributeError), noted(notes):
        attempt(None, Split("i0", 4))  # an error that is no refusal is not swallowed
    assert not notes
