"""Collectives: the choice of algorithm and its limits, laws, failures, kernels on an H200."""

from __future__ import annotations

import csv
import math
import statistics
from importlib import resources

import pytest

from ridgeline.planner import laws
from ridgeline.planner.collectives import NetworkTimes, Ranks, groups_of
from ridgeline.planner.constants import DEFAULT
from ridgeline.planner.failures import PUBLISHED_HOURS, best_interval, interrupted
from ridgeline.planner.kernels import Timer
from ridgeline.planner.layouts import ParallelLayout
from ridgeline.planner.machines import gpu_named, usual_cluster

A100 = NetworkTimes(usual_cluster(gpu_named("a100")), DEFAULT)


def test_large_collectives_reach_the_bandwidth_and_small_ones_the_latency() -> None:
    for group in (Ranks(8, 8, 8), Ranks(64, 8, 64), Ranks(64, 1, 64)):
        cut = A100.link if group.nodes == 1 else min(A100.link, group.in_node * A100.network)
        share = (group.size - 1) / group.size
        size = 64e9
        assert A100.seconds("all_gather", size, group) == pytest.approx(
            share * size / cut, rel=0.02
        )
        both = A100.seconds("all_reduce", size, group)
        assert both == pytest.approx(2 * share * size / cut, rel=0.02)
        assert A100.seconds("all_reduce", 8, group) < 400e-6


def test_trees_win_where_messages_are_small_and_nodes_many() -> None:
    group = Ranks(512, 8, 512)
    assert A100.collective("all_reduce", 64e3, group).algorithm == "tree"
    assert A100.collective("all_reduce", 64e9, group).algorithm == "ring"
    assert A100.collective("all_reduce", 1e3, Ranks(8, 8, 8)).protocol == "LL"
    assert A100.collective("all_reduce", 4e9, Ranks(8, 8, 8)).protocol == "Simple"
    hopper = NetworkTimes(usual_cluster(gpu_named("h100")), DEFAULT)
    assert hopper.collective("all_reduce", 4e9, Ranks(8, 8, 8)).algorithm == "in-switch"


def test_no_collective_is_faster_with_more_bytes_or_ranks() -> None:
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        before = 0.0
        for size in (1e3, 1e5, 1e7, 1e9):
            now = A100.seconds(kind, size, Ranks(64, 8, 64))
            assert now > before
            before = now
        times = [A100.seconds(kind, 1e8, Ranks(8 * n, 8, 8 * n)) for n in (2, 8, 64)]
        assert times == sorted(times)


def test_groups_lie_where_ranks_are_numbered() -> None:
    groups = groups_of(ParallelLayout(4, 2, 8, 16), A100)
    assert (groups.tensor.in_node, groups.context.in_node) == (4, 2)
    assert (groups.data.size, groups.data.in_node) == (32, 2)
    assert groups.pipeline_stride == 4 * 2 * 16
    outer = groups_of(ParallelLayout(4, 2, 8, 16, data_outermost=True), A100)
    assert outer.pipeline_stride == 8


def test_laws_of_the_textbooks() -> None:
    assert laws.amdahl(0.1, 1 << 30) == pytest.approx(10)
    assert laws.gustafson(0.1, 100) == pytest.approx(90.1)
    assert laws.pipeline_bubble(4, 12, 2) == 3 / 24
    for ranks in (2, 8, 64):
        ring = laws.ring_all_reduce(1e9, ranks, 0, 1e9)
        assert ring == pytest.approx(2 * (ranks - 1) / ranks)
        assert laws.halving_doubling(1e9, ranks, 0, 1e9) == pytest.approx(ring)
        assert laws.parameter_server(1e9, ranks, 0, 1e9, ranks) == pytest.approx(2)
    assert laws.tree_all_reduce(0, 1024, 1e-6, 1e9) == pytest.approx(20e-6)
    serial = lambda n: 0.1 + 0.9 / n  # noqa: E731
    assert laws.strong_scaling(serial, [1, 10])[1] == pytest.approx(1 / 1.9)
    assert laws.weak_scaling(lambda n: 1 + 0.1 * math.log2(n), [1, 4]) == pytest.approx(
        [1, 1 / 1.2]
    )


def test_checkpoints_come_as_often_as_loses_least() -> None:
    between, save = 3 * 3600.0, 30.0

    def lost(interval: float) -> float:
        return save / interval + interval / 2 / between

    best = best_interval(save, between)
    assert all(lost(best) <= lost(best * factor) * 1.001 for factor in (0.5, 0.8, 1.25, 2))
    # Llama 3: 54 days on 16,384 GPUs, 419 interruptions, more than 90 % effective
    run = interrupted(54 * 86400 * 0.93, 16_384, PUBLISHED_HOURS)
    assert run.effective > 0.90 and run.failures == pytest.approx(419, rel=0.06)


def test_kernels_take_as_long_as_on_an_h200() -> None:
    text = resources.files("ridgeline.planner").joinpath("data/kernels_h200.csv").read_text()
    timer = Timer(usual_cluster(gpu_named("h200")), DEFAULT)
    errors: dict[str, list[float]] = {"product_bf16": [], "product_fp8": []}
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    for row in csv.DictReader(rows):
        measured = float(row["microseconds"]) * 1e-6
        if row["kind"] in errors and measured > 30e-6:  # below that, the host is timed
            sizes = [int(size) for size in row["sizes"].split("x")]
            found = timer.product(sizes[0], sizes[1], sizes[2], row["kind"].endswith("8"))
            errors[row["kind"]].append(abs(math.log(found / measured)))
    for kind, found_errors in errors.items():
        assert len(found_errors) > 80
        assert statistics.mean(found_errors) < 0.06, kind
        assert max(found_errors) < 0.25, kind
