"""Pipeline schedules: tables are complete, in order, free of deadlock, and idle as published."""

from __future__ import annotations

import pytest

from ridgeline.distributed.schedules import (
    SCHEDULES,
    UNITS,
    PipelineAction,
    PipelineSchedule,
    bubble,
    check_schedule,
    pipeline_schedule,
    timeline,
)
from ridgeline.errors import RidgelineError

TABLES = [(name, 1) for name in SCHEDULES] + [("interleaved", v) for v in (2, 3, 4)]


def units(stage: int, action: PipelineAction) -> float:
    return UNITS[action.kind]


def length(schedule: PipelineSchedule) -> float:
    return max(row[-1].end for row in timeline(schedule, units))


def replay(schedule: PipelineSchedule) -> int:
    """Another way to run a table: in rounds, each stage one action if its inputs are there."""
    passed: set[tuple[str, int, int]] = set()
    position = [0] * schedule.stages
    rounds, total = 0, sum(len(row) for row in schedule.table)
    while sum(position) < total:
        rounds += 1
        ready = []
        for stage, row in enumerate(schedule.table):
            if position[stage] == len(row):
                continue
            kind, i, chunk = row[position[stage]]
            part = chunk * schedule.stages + stage
            if kind == "F":
                free = part == 0 or ("F", i, part - 1) in passed
            elif kind == "W":
                free = ("I", i, part) in passed
            else:
                last = part == schedule.parts - 1
                free = ("F", i, part) in passed and (last or (kind, i, part + 1) in passed)
            if free:
                ready.append((stage, (kind, i, part)))
        assert ready, f"deadlock at {position}"
        for stage, done in ready:
            position[stage] += 1
            passed.add(done)
    return rounds


@pytest.mark.parametrize("stages", range(1, 9))
@pytest.mark.parametrize(("name", "chunks"), TABLES)
def test_every_table_runs(name: str, chunks: int, stages: int) -> None:
    for microbatches in range(1, 33):
        schedule = pipeline_schedule(name, stages, microbatches, chunks)
        check_schedule(schedule)
        spans = timeline(schedule, lambda stage, action: 1.0)
        assert max(row[-1].end for row in spans) == replay(schedule)


@pytest.mark.parametrize("stages", range(1, 9))
def test_idle_time_is_the_published_one(stages: int) -> None:
    """GPipe and 1F1B (p-1)(F+B); interleaved that over v; ZB-H1 (p-1)(F+I-W); ZB-H2 none."""
    behind = stages - 1
    for microbatches in (2 * stages, 2 * stages + 3, 32):
        for name in ("gpipe", "1f1b"):
            assert length(pipeline_schedule(name, stages, microbatches)) == 3 * (
                microbatches + behind
            )
        for chunks in (2, 3, 4):
            found = length(pipeline_schedule("interleaved", stages, microbatches, chunks))
            assert found == 3 * (microbatches * chunks + behind)
        assert length(pipeline_schedule("zero-bubble", stages, microbatches)) == (
            3 * microbatches + behind
        )
        free = pipeline_schedule("zero-bubble", stages, microbatches, held=2 * stages)
        # what is left is the way of the first microbatch to the last stage, which starts late
        ends = [(row[0].start, row[-1].end) for row in timeline(free, units)]
        assert all(end - start == 3 * microbatches for start, end in ends)


@pytest.mark.parametrize("stages", range(1, 9))
@pytest.mark.parametrize("microbatches", (1, 3, 8, 29, 32))
def test_activations_held(stages: int, microbatches: int) -> None:
    held = {
        name: pipeline_schedule(name, stages, microbatches).peak_activations() for name in SCHEDULES
    }
    assert held["gpipe"] == (microbatches,) * stages
    assert held["1f1b"] == tuple(min(stages - s, microbatches) for s in range(stages))
    assert max(held["zero-bubble"]) <= min(stages, microbatches)
    for chunks in (2, 3, 4):
        found = pipeline_schedule("interleaved", stages, microbatches, chunks).peak_activations()
        if microbatches % stages == 0 and microbatches > stages:
            assert found[0] == chunks * stages + stages - 1  # p(1 + (p-1)/(pv)) chunks of 1/v
        assert found[0] <= chunks * microbatches


def test_a_sent_tensor_is_the_one_that_is_waited_for() -> None:
    for name, chunks in TABLES:
        schedule = pipeline_schedule(name, 4, 6, chunks)
        sent = [
            schedule.transfer(stage, action)
            for stage, row in enumerate(schedule.table)
            for action in row
        ]
        moves = [move for move in sent if move is not None]
        assert len(moves) == len(set(moves)) == 2 * 6 * (4 * chunks - 1)


def test_slow_links_and_stages_are_waited_for() -> None:
    schedule = pipeline_schedule("1f1b", 2, 1)
    spans = timeline(schedule, lambda stage, action: 3.0 if stage else 1.0, lambda stage, sent: 0.5)
    assert [tuple(span) for span in spans[0]] == [(0, 1), (8, 9)]
    assert [tuple(span) for span in spans[1]] == [(1.5, 4.5), (4.5, 7.5)]
    assert bubble(schedule, spans) == (1 - 2 / 9, 1 - 6 / 9)


def test_tables_that_do_not_work_are_refused() -> None:
    good = pipeline_schedule("1f1b", 2, 2)
    first, second = good.table
    in_turn = (first[0], first[2], first[1], first[3])
    circle = (in_turn, (second[2], *second[:2], second[3]))
    missing = (first[:-1], second)
    backwards = ((first[-1], *first[:-1]), second)
    for table, words in (
        (circle, "wait for one another"),
        (missing, "stage 0 misses, repeats or adds B1"),
        (backwards, "out of the order F, B"),
    ):
        with pytest.raises(RidgelineError, match=words):
            check_schedule(PipelineSchedule("mine", 2, 2, 1, table))


def test_chunks_of_one_stage_keep_their_order() -> None:
    row = pipeline_schedule("interleaved", 1, 1, 2).table[0]
    check_schedule(PipelineSchedule("mine", 1, 1, 2, (row,)))
    with pytest.raises(RidgelineError, match="which it needs"):
        check_schedule(PipelineSchedule("mine", 1, 1, 2, ((row[1], row[0], row[2], row[3]),)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("zb", 2, 2), "no pipeline schedule 'zb'"),
        (("1f1b", 0, 2), "0 stages"),
        (("1f1b", 2, 2, 2), "one chunk a stage"),
    ],
)
def test_wrong_requests(arguments: tuple[str, int, int], words: str) -> None:
    with pytest.raises(RidgelineError, match=words):
        pipeline_schedule(*arguments)


def test_drawn() -> None:
    assert str(pipeline_schedule("1f1b", 2, 3)).splitlines() == [
        "  0 │ 0  1 ······ [0]   2  [1]  ··· [2]  ",
        "  1 │··· 0  [0]   1  [1]   2  [2]  ",
    ]
    assert str(pipeline_schedule("zero-bubble", 2, 2)).splitlines() == [
        "  0 │ 0  1 ···<0>{0}<1>{1}",
        "  1 │··· 0 <0> 1 <1>{0}{1}",
    ]
