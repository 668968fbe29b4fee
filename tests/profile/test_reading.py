"""Files as users have them: compressed, cut off, foreign, empty, of several ranks, hostile."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import threading

import pytest
from builder import H200, TraceText, busy_program
from conftest import TRACES, fired

from ridgeline.errors import RidgelineError
from ridgeline.profile import diagnose
from ridgeline.profile.analysis.focus import focused
from ridgeline.profile.trace.reader import read_trace


def code_of(path) -> str:
    with pytest.raises(RidgelineError) as caught:
        diagnose(path)
    return caught.value.code


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "RL0702"),
        (b"not json", "RL0702"),
        (b"PK\x03\x04rest", "RL0702"),
        (b"SQLite format 3\x00", "RL0702"),
        (b"\x80\x04pickle", "RL0702"),
        (b"<!DOCTYPE html>", "RL0702"),
        (b'{"a": 1}', "RL0703"),
        (b'{"traceEvents": []}', "RL0704"),
        (b'{"schemaVersion": 1, "traceEvents": []}', "RL0704"),
        (b'{"schemaVersion": 1, "deviceProp', "RL0704"),
        (b'{"traceEvents": null}', "RL0703"),
        (b"null", "RL0702"),
        (b"\x80\x05pickle", "RL0702"),
        (
            b'{"traceEvents": [{"ph": "X", "cat": "blink", "name": "x", "ts": 1, "dur": 1}]}',
            "RL0703",
        ),
        (b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "na', "RL0704"),
        (gzip.compress(b"plain text", mtime=0), "RL0702"),
    ],
)
def test_unusable_files_have_a_clear_error(tmp_path, content, code):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    assert code_of(path) == code


def test_missing_file_and_empty_directory(tmp_path):
    assert code_of(tmp_path / "nowhere.json") == "RL0701"
    assert code_of(tmp_path) == code_of([]) == "RL0701"


@pytest.mark.parametrize("part", [0.3, 0.7, 0.95])
def test_a_cut_file_gives_a_partial_result_that_says_so(tmp_path, part):
    whole = gzip.decompress((TRACES / "no_workers.cuda.planted.json.gz").read_bytes())
    path = tmp_path / "cut.json"
    path.write_bytes(whole[: int(len(whole) * part)])
    report = diagnose(path)
    assert report.partial and "cut off" in report.main.warnings[0]


def test_a_cut_gzip_gives_a_partial_result(tmp_path):
    packed = (TRACES / "tiny_kernels.cuda.planted.json.gz").read_bytes()
    path = tmp_path / "cut.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    assert diagnose(path).partial


def test_a_corrupt_gzip_does_not_crash(tmp_path):
    packed = bytearray((TRACES / "tiny_kernels.cuda.planted.json.gz").read_bytes())
    packed[len(packed) // 2] ^= 0xFF
    path = tmp_path / "bad.json.gz"
    path.write_bytes(packed)
    assert diagnose(path).partial


def test_ranks_of_a_directory_are_merged(tmp_path):
    for name in ("no_workers.cuda.planted", "no_workers.cuda.repaired"):
        shutil.copy(TRACES / f"{name}.json.gz", tmp_path)
    report = diagnose(tmp_path)
    assert [rank.rank for rank in report.ranks] == [0, 1]
    assert report.findings[0].rule == "D2" and report.findings[0].ranks[0][0] == 0
    assert report.main.rank == 0


def test_other_files_in_a_directory_are_skipped_with_a_word(tmp_path):
    busy_program().write(tmp_path / "rank0.json")
    (tmp_path / "settings.json").write_text('{"a": 1}')
    report = diagnose(tmp_path)
    assert len(report.ranks) == 1 and "settings.json skipped" in report.skipped[0]
    assert code_of([tmp_path / "rank0.json", tmp_path / "settings.json"]) == "RL0703"


def test_only_the_slowest_rank_keeps_its_trace(tmp_path):
    for rank, length in enumerate((900, 1100, 1000)):
        busy_program(length=length).write(tmp_path / f"rank{rank}.json")
    report = diagnose(tmp_path)
    assert [rank.facts is not None for rank in report.ranks] == [False, True, False]
    assert report.main.rank == 1


def test_rank_numbers_come_from_the_file(tmp_path):
    info = {"backend": "nccl", "rank": 5, "world_size": 8}
    trace = TraceText(H200, distributedInfo=info).steps(4, 100)
    trace.kernel("k", 10, 380, launch=1)
    assert diagnose(trace.write(tmp_path / "a.json")).main.rank == 5


def test_ranks_with_one_number_are_told_apart(tmp_path):
    for name in ("a.json", "b.json"):
        trace = busy_program()
        trace.header["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": 2}
        trace.write(tmp_path / name)
    report = diagnose(tmp_path)
    assert [rank.rank for rank in report.ranks] == [0, 1]
    assert "numbered in the order read" in report.ranks[0].warnings[0] and not report.partial


def test_without_shapes_and_stacks_rules_that_need_them_say_so(tmp_path):
    whole = json.loads(gzip.decompress((TRACES / "no_tf32.cuda.planted.json.gz").read_bytes()))
    whole["traceEvents"] = [
        {**event, "args": {k: v for k, v in event.get("args", {}).items() if "Input" not in k}}
        for event in whole["traceEvents"]
        if event.get("cat") != "python_function"
    ]
    path = tmp_path / "bare.json"
    path.write_text(json.dumps(whole))
    rank = diagnose(path).main
    reasons = {item.rule: item.reason for item in rank.unchecked}
    assert "record_shapes" in reasons["C2"] and not rank.warnings


def test_steps_are_inferred_where_they_are_not_marked(tmp_path):
    trace = TraceText(H200)
    for number in range(6):
        trace.annotation("Optimizer.step#SGD.step", number * 1000 + 900, 50)
        trace.kernel("k", number * 1000 + 8, 900, launch=number * 1000 + 2)
    verdict = diagnose(trace.write(tmp_path / "a.json")).main.verdict
    assert verdict.source == "optimizer steps"
    assert verdict.step == pytest.approx(1e-3, rel=0.1)


def test_one_step_is_diagnosed_with_a_warning(tmp_path):
    report = diagnose(busy_program(steps=1).write(tmp_path / "a.json"))
    assert "only 1 steady step" in report.main.warnings[0] and not report.partial


def test_warm_up_is_dropped(tmp_path):
    trace = TraceText(H200)
    for number, (start, length) in enumerate(
        [(0, 9000), (9000, 4000), (13000, 1000), (14000, 1000), (15000, 1000)]
    ):
        trace.annotation(f"ProfilerStep#{number}", start, length)
        trace.kernel("k", start + 5, length - 10, launch=start + 1)
    verdict = diagnose(trace.write(tmp_path / "a.json")).main.verdict
    assert verdict.dropped == 2 and verdict.step == pytest.approx(1e-3, rel=0.05)


def test_a_host_that_runs_ahead_is_measured_by_the_device(tmp_path):
    """Steps of 100 µs on the host launch kernels of 1000 µs each."""
    trace = TraceText(H200).steps(8, 100)
    for number in range(8):
        trace.kernel("k", 50 + number * 1000, 1000, launch=number * 100 + 5)
    verdict = diagnose(trace.write(tmp_path / "a.json")).main.verdict
    assert verdict.step == pytest.approx(1e-3, rel=0.01) and verdict.busy == pytest.approx(
        1, abs=0.01
    )


def test_events_beyond_the_limit_are_left_out_and_counted(tmp_path):
    trace = read_trace(busy_program(steps=50).write(tmp_path / "a.json"), most_events=60)
    assert trace.completeness.left_out_events > 0
    assert any("partial" in line for line in trace.completeness.warnings())


def test_a_long_recording_is_narrowed_to_its_first_steps(tmp_path):
    trace = read_trace(busy_program(steps=50).write(tmp_path / "a.json"))
    narrow, note = focused(trace, most=60)
    assert narrow.rows <= 60 and "of 50 steps" in note
    assert len(narrow.gpu) == len(narrow.calls) > 0
    assert focused(trace)[0] is trace


def test_kernels_alone_are_a_trace_too(tmp_path):
    """Recorded with ProfilerActivity.CUDA only, and no calls."""
    trace = busy_program()
    trace.events = [event for event in trace.events if event["cat"] == "kernel"]
    verdict = diagnose(trace.write(tmp_path / "a.json")).main.verdict
    assert verdict.busy > 0.9 and verdict.step == pytest.approx(5.98e-3, rel=0.01)


def test_an_unknown_gpu_gets_no_modelled_limit(tmp_path):
    whole = gzip.decompress((TRACES / "well_tuned.cuda.planted.json.gz").read_bytes())
    path = tmp_path / "a.json"
    path.write_bytes(whole.replace(b"NVIDIA H200", b"Card X"))
    rank = diagnose(path).main
    assert rank.verdict.limit == 0
    assert {item.rule for item in rank.unchecked} >= {"C1", "C2", "K1"}


HOSTILE = [
    {"ts": 10**400}, {"dur": 10**400}, {"name": "[memory]", "ts": 10**400},
    {"args": {"Input Dims": [[10**300] * 2] * 2, "Input type": ["float"] * 2}},
    {"name": "aten::convolution", "args": {
        "Input Dims": [[8, 3, 9, 9], [4, 3, 3, 3], [4]], "Input type": ["float"] * 3,
        "Concrete Inputs": ["[" + "9" * 5000 + "]"] * 6,
    }},
    {"ts": "soon"}, {"ts": None}, {"ts": float("inf")}, {"dur": -5}, {"dur": "long"}, {"name": 7},
    {"args": [1]}, {"args": {"Input Dims": 3, "Input type": {"a": 1}}}, {"cat": ["kernel"]},
    {"args": {"Input Dims": [[-1, 1 << 80]], "Input type": ["float"]}}, {"pid": [1], "tid": {}},
    {"args": {"correlation": "x", "grid": [1, "a"], "block": 5, "stream": 1 << 90}},
    {"args": {"Sequence number": 1.5e300, "External id": -(1 << 70)}},
]  # fmt: skip


@pytest.mark.parametrize(
    "category",
    ["cpu_op", "kernel", "cuda_runtime", "gpu_memcpy", "python_function", "cpu_instant_event"],
)
def test_hostile_fields_do_not_crash(tmp_path, category):
    trace = busy_program()
    plain = {
        "ph": "X",
        "cat": category,
        "name": "aten::mm",
        "pid": 1,
        "tid": 1,
        "ts": 1500,
        "dur": 3,
    }
    trace.events += [{**plain, **change} for change in HOSTILE]
    assert diagnose(trace.write(tmp_path / "a.json")).main.verdict.steps > 0


def test_control_characters_never_reach_the_terminal(tmp_path):
    trace = busy_program()
    trace.op("aten::\x1b[31mred\x07", 10, 5)
    read = read_trace(trace.write(tmp_path / "a.json"))
    assert all(name.isprintable() for name in read.names)


def test_empty_repaired_pair_has_no_rule_left_over(recorded):
    assert fired(recorded("no_tf32.cuda.repaired")) <= {"K1", "K3"}


ODD = [None, -1, 0, 1e300, -1e300, 1e18, 1 << 63, "x", [], {}, True, [[-5]], [[]], ["float"] * 3]


@pytest.mark.parametrize("seed", range(12))
def test_a_trace_with_random_damage_is_read_or_refused(tmp_path, seed):
    """Whatever is put in place of fields, the result is a report with a page or a clear error."""
    from ridgeline.profile.page.build import report_page

    rng = random.Random(seed)
    name = rng.choice(["stray_double.cuda.planted", "unfused_attention.cuda.repaired"])
    whole = json.loads(gzip.decompress((TRACES / f"{name}.json.gz").read_bytes()))
    for _ in range(150):
        event = rng.choice(whole["traceEvents"])
        field = rng.choice(["ts", "dur", "name", "cat", "pid", "tid", "args", "one argument"])
        if field == "one argument" and event.get("args"):
            event["args"][rng.choice(list(event["args"]))] = rng.choice(ODD)
        else:
            event[field] = rng.choice(ODD)
        if not isinstance(event.get("args"), dict):
            event["args"] = {}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(whole))
    try:
        assert report_page(diagnose(path)).endswith("</html>\n")
    except RidgelineError as error:
        assert error.code.startswith("RL07")


def test_kernels_without_length_do_not_crash(tmp_path):
    trace = busy_program()
    for event in trace.events:
        if event["cat"] == "kernel":
            event["dur"] = 0
    assert diagnose(trace.write(tmp_path / "a.json")).main.verdict.steps == 5


def test_a_recording_after_the_schedule_ended_says_how_to_export(tmp_path):
    """What export_chrome_trace writes after the loop: the profiler's own frames, and no op."""
    trace = TraceText(trace_id="1")
    trace.frame("train.py(3): main", 0, 50)
    with pytest.raises(RidgelineError) as caught:
        diagnose(trace.write(tmp_path / "a.json"))
    assert caught.value.code == "RL0704" and "on_trace_ready" in str(caught.value)


def test_a_short_gzip_that_is_cut_off_is_not_called_empty(tmp_path):
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(busy_program().text().encode())[:40])
    with pytest.raises(RidgelineError, match="compressed data"):
        diagnose(path)


def test_a_pipe_is_read_like_a_file(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    text = busy_program().text()
    writer = threading.Thread(target=path.write_text, args=(text,))
    writer.start()
    assert diagnose(path).main.verdict.steps == 5
    writer.join()


def test_a_file_named_twice_is_one_rank(tmp_path):
    path = busy_program().write(tmp_path / "a.json")
    assert len(diagnose([tmp_path, path]).ranks) == 1


def test_halves_of_a_trace_that_lie_years_apart(tmp_path):
    """The middle between two clusters belongs to neither of them."""
    trace = busy_program()
    for event in trace.events[: len(trace.events) // 2]:
        event["ts"] += 9e15
    assert diagnose(trace.write(tmp_path / "a.json")).main.verdict.step > 0


def test_frames_far_from_all_work_do_not_decide_what_is_near(tmp_path):
    trace = busy_program(steps=2)
    for _ in range(50):
        trace.frame("train.py(3): main", 9e15, 50)
    assert len(diagnose(trace.write(tmp_path / "a.json")).main.facts.trace.ops) == 4


def test_a_window_of_no_length_at_a_late_time(tmp_path):
    trace = busy_program()
    trace.op("aten::early", -9e11, 1)
    trace.kernel("beside it", 400, 2000, launch=600)
    for event in trace.events:
        if event["name"].startswith("ProfilerStep"):
            event.update(ts=1500, dur=0)
    assert diagnose(trace.write(tmp_path / "a.json")).main.verdict.steps == 1


def test_an_event_days_away_is_damage(tmp_path):
    trace = busy_program()
    trace.op("aten::lost", 9e15, 5)
    verdict = diagnose(trace.write(tmp_path / "a.json")).main.verdict
    assert verdict.step == pytest.approx(1e-3, rel=0.05)
