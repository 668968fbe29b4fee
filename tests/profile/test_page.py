"""The HTML page: self-contained, escaped, small, and the same facts as the terminal."""

from __future__ import annotations

import json
import re

import pytest
from builder import H200, TraceText, busy_program
from conftest import TRACES

from ridgeline.cli.main import main
from ridgeline.profile import compare, diagnose
from ridgeline.profile.page.build import embedded_json, report_page
from ridgeline.profile.page.timeline import MOST_EVENTS, timeline

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


@pytest.mark.parametrize(
    "name", ["item_per_step.cuda.planted", "no_workers.cpu.planted", "well_tuned.cuda.planted"]
)
def test_page_is_self_contained(recorded, name):
    page = report_page(recorded(name))
    assert page.startswith("<!doctype html>") and page.rstrip().endswith("</html>")
    assert not re.search(r"(src|href)\s*=|@import|url\(|fetch\(|XMLHttpRequest|https?://", page)
    assert "Content-Security-Policy" in page and len(page) < 3_000_000
    for finding in recorded(name).findings:
        assert f'id="{finding.rule}"' in page


def test_everything_from_a_trace_is_escaped(tmp_path):
    trace = TraceText({**H200, "name": "NVIDIA H200 " + EVIL}).steps(5, 1000)
    for number in range(5):
        start = number * 1000
        trace.frame(f"train.py(3): {EVIL}", start + 1, 900)
        trace.op(f"enumerate(DataLoader)#{EVIL}", start + 2, 700)
        trace.op(f"aten::{EVIL}", start + 705, 50)
        trace.kernel(f"kernel {EVIL}", start + 720, 200, launch=start + 710)
    path = trace.write(tmp_path / "<b>.json")
    report = diagnose(path)
    page = report_page(report, before=report, comparison=compare(report, report))
    assert "D1" in {f.rule for f in report.findings}
    assert "<script>alert" not in page and "<img" not in page and "onerror=alert(2)>" not in page
    assert page.count("<script") == 2 and page.count("</script>") == 2
    assert "<b>.json" not in page


def test_embedded_json_cannot_close_its_element():
    text = embedded_json({"a": EVIL + "<!--"})
    assert "<" not in text and ">" not in text and json.loads(text) == {"a": EVIL + "<!--"}


def test_timeline_is_limited(tmp_path):
    trace = TraceText(H200).steps(400, 1000)
    for number in range(400):
        for piece in range(70):
            start = number * 1000 + piece * 14
            trace.op("aten::add", start, 6)
            trace.kernel("k", start + 5, 8, launch=start + 2)
    data = timeline(diagnose(trace.write(tmp_path / "a.json")).main)
    assert 1000 < sum(len(lane["start"]) for lane in data["lanes"]) <= MOST_EVENTS
    assert data["steps"][0] == 0 and data["length"] > 0


def test_timeline_times_lie_inside(recorded):
    data = timeline(recorded("no_workers.cuda.planted").main)
    for lane in data["lanes"]:
        assert min(lane["length"]) >= 0 and max(lane["start"]) <= data["length"]
        assert lane["start"] == sorted(lane["start"])
        assert max((*lane["name"], *lane["place"])) < len(data["names"])


def test_html_option_writes_one_file(tmp_path, capsys):
    page = tmp_path / "report.html"
    assert (
        main(["diagnose", str(TRACES / "no_tf32.cuda.planted.json.gz"), "--html", str(page)]) == 0
    )
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    before, after = (
        str(TRACES / f"no_tf32.cuda.{form}.json.gz") for form in ("planted", "repaired")
    )
    assert main(["diagnose", "--before", before, "--after", after, "--html", str(page)]) == 0
    assert "Before and after" in page.read_text()
    assert "report:" in capsys.readouterr().out


def test_page_of_a_program_without_findings(tmp_path):
    report = diagnose(busy_program(busy=0.99).write(tmp_path / "a.json"))
    assert "No finding above" in report_page(report) or report.findings
