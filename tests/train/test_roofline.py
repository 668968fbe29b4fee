"""The closing table: shares, ceilings and units."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ridgeline import nn
from ridgeline.compiler.kernel_profile import duration
from ridgeline.train.profile import layers_of
from ridgeline.train.roofline import SHOWN, StepKernel, quantity, time_table

ROWS = [
    StepKernel("matmul", 2e-3, 200_000_000, 4_000_000, 1e-3, "fc Linear"),
    StepKernel("relu", 1e-3, 1_000, 8_000_000, 0.9e-3),
]


def text(rows: list[StepKernel], wall: float, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(time_table(rows, wall, "one step"))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_rows_are_ordered_and_summed() -> None:
    lines = [" ".join(line.split()) for line in text(ROWS[::-1], 4e-3).splitlines()]
    assert lines[2:] == [
        "matmul fc Linear 2 ms 50% 200 M 4 M 50%",
        "relu 1 ms 25% 1 k 8 M 90%",
        "outside kernels 1 ms 25%",
        "step 4 ms 100% 200 M 12 M 48%",
    ]


def test_numbers_are_whole_on_narrow_terminals() -> None:
    row = StepKernel(
        "contract_add_le_select_sub", 95.8e-6, 24_900_000, 1_530_000, 9e-5, "0 Conv2d, 12 AvgPool2d"
    )
    shown = text([row], 1.12e-3, width=80)
    assert all(n in shown for n in ("95.8 µs", "24.9 M", "1.53 M", "1.12 ms", "of limit"))
    assert max(map(len, shown.splitlines())) <= 80


def test_what_is_above_the_limit_is_shown_so_and_an_unknown_limit_not_at_all() -> None:
    above = text([StepKernel("in_cache", 1e-3, 1, 1, 1.25e-3)], 1e-3)
    assert "125%" in above
    unknown = text([StepKernel("k", 1e-3, 1, 1, None)], 1e-3)
    assert unknown.count("%") == 2  # shares of the step alone


def test_many_kernels_share_a_row() -> None:
    many = [StepKernel(f"k{n}", 1e-6 * (n + 1), 1, 1, 1e-7) for n in range(SHOWN + 3)]
    assert "3 more" in text(many, 1.0)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(5e-7, "0.5 µs"), (1.234e-4, "123 µs"), (0.0525, "52.5 ms"), (2.5, "2.5 s"), (250.0, "250 s")],
)
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_quantities() -> None:
    assert [quantity(n) for n in (12, 3_400, 5.6e7, 7e10)] == ["12", "3.4 k", "56 M", "70 G"]


def test_layers_are_read_from_origins() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    lines = ("train.py:3 in 0", "train.py:3 in 1.0", "train.py:9", "train.py:4 in 0")
    assert layers_of(lines, model) == "0 Linear, 1.0 ReLU"
