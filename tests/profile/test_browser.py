"""The page in a real browser: no console errors, keys work, 50,000 events are drawn."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
from builder import H200, TraceText

from ridgeline.profile import diagnose
from ridgeline.profile.page.build import report_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--enable-logging=stderr",
    "--window-size=1100,900",
    "--dump-dom",
]

# Zooms, moves, selects, switches the theme, opens help; leaves what it saw in the title. Frames
# are drawn at once, because a browser without a screen has no frame clock to wait for.
PROBE = """
<script>
const seen = {errors: [], ms: []};
addEventListener("error", (event) => seen.errors.push(event.message));
window.requestAnimationFrame = (draw) => {
  const start = performance.now(); draw(); seen.ms.push(performance.now() - start);
};
addEventListener("load", () => {
  const canvas = document.getElementById("timeline");
  const acts = ["j", "j", "k", "t", "+", "+", "+", "ArrowRight", "-", "0", "t", "?"];
  for (let round = 0; round < 40; round++) {
    const box = canvas.getBoundingClientRect();
    if (round < acts.length)
      document.dispatchEvent(new KeyboardEvent("keydown", {key: acts[round]}));
    else canvas.dispatchEvent(new WheelEvent("wheel", {deltaY: round % 3 ? -100 : 100,
      clientX: box.left + 300, clientY: box.top + 30, cancelable: true}));
    canvas.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + 40 + round,
      clientY: box.top + 50}));
  }
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  seen.inked = pixels.some((value, i) => i % 4 === 3 && value > 0);
  seen.selected = document.querySelectorAll(".finding.selected").length;
  seen.dialogs = document.querySelectorAll("dialog").length;
  document.title = "PROBE " + JSON.stringify(seen);
});
</script>
"""


def browse(tmp_path, page: str) -> tuple[dict, str]:
    path = tmp_path / "page.html"
    path.write_text(page.replace("<main>", PROBE + "<main>", 1))
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    title = re.search(r"<title>PROBE (.*?)</title>", done.stdout, re.DOTALL)
    assert title, done.stderr[-2000:]
    return json.loads(title[1].replace("&amp;", "&").replace("&lt;", "<")), done.stderr


@pytest.mark.parametrize("name", ["item_per_step.cuda.planted", "no_workers.cpu.planted"])
def test_page_works(tmp_path, recorded, name):
    seen, log = browse(tmp_path, report_page(recorded(name)))
    assert seen["errors"] == [] and "CONSOLE" not in log
    assert seen["inked"] and seen["selected"] == 1 and seen["dialogs"] == 1


def test_fifty_thousand_events_are_drawn(tmp_path):
    trace = TraceText(H200).steps(100, 3500)
    for number in range(100):
        for piece in range(250):
            start = number * 3500 + piece * 14
            trace.op("aten::add", start, 6)
            trace.kernel("k", start + 5, 8, launch=start + 2)
    report = diagnose(trace.write(tmp_path / "a.json"))
    seen, log = browse(tmp_path, report_page(report))
    assert seen["errors"] == [] and "CONSOLE" not in log
    assert seen["inked"] and len(seen["ms"]) >= 30
    times = sorted(seen["ms"])
    print(f"milliseconds a frame: median {times[len(times) // 2]:.1f}, worst {times[-1]:.1f}")
