"""The commands as a user types them: output, options, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from builder import busy_program
from conftest import TRACES

from ridgeline.cli.explain import error_codes
from ridgeline.cli.main import main

PLANTED = str(TRACES / "item_per_step.cuda.planted.json.gz")
REPAIRED = str(TRACES / "item_per_step.cuda.repaired.json.gz")


def test_report_fits_eighty_columns(capsys):
    assert main(["diagnose", PLANTED]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "S1" in out and "unexplained" in out and "launch_programs.py" in out
    assert "\x1b[" not in out


@pytest.mark.parametrize(
    "name", sorted(path.name for path in TRACES.glob("*.planted.json.gz"))[::4]
)
def test_every_report_names_the_unexplained_rest(capsys, name):
    assert main(["diagnose", str(TRACES / name), "--top", "0"]) == 0
    out = capsys.readouterr().out
    assert "unexplained" in out and max(map(len, out.splitlines())) <= 80


def test_json_is_for_programs(capsys):
    assert main(["diagnose", PLANTED, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["schema"] == 1 and content["findings"][0]["rule"] == "S1"
    verdict = content["ranks"][0]["verdict"]
    assert verdict["step"] > 0 and "unexplained" in verdict


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (["S1:0.05"], 1),
        (["s1"], 1),
        (["any:0.3"], 1),
        (["S1:0.99"], 0),
        (["D1:0.05"], 0),
        (["D1", "S1:0.1"], 1),
    ],
)
def test_fail_on_sets_the_exit_code(capsys, limits, code):
    options = [part for limit in limits for part in ("--fail-on", limit)]
    assert main(["diagnose", PLANTED, *options]) == code
    assert ("fail-on: S1" in capsys.readouterr().err) == bool(code)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--before", PLANTED],
        ["--before", PLANTED, "--after", REPAIRED, PLANTED],
        [PLANTED, "--fail-on", "Z9"],
        [PLANTED, "--fail-on", "D1:2"],
        [PLANTED, "--fail-on", "D1:x"],
        [PLANTED, "--html", "/nowhere/at/all.html"],
        ["no-such-file.json"],
    ],
)
def test_wrong_usage_is_an_error_with_a_code(capsys, arguments):
    assert main(["diagnose", *arguments]) == 2
    assert "error RL07" in capsys.readouterr().err


def test_before_and_after(capsys):
    assert main(["diagnose", "--before", PLANTED, "--after", REPAIRED]) == 0
    out = capsys.readouterr().out
    assert "faster" in out and "gone" in out and "came true" in out
    assert max(map(len, out.splitlines())) <= 80
    assert main(["diagnose", "--before", REPAIRED, "--after", PLANTED, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["verdict"] == "slower" and content["saved"] < 0


def test_no_colour_when_asked_not_to(tmp_path):
    path = busy_program().write(tmp_path / "a.json")
    env = {**os.environ, "NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "ridgeline", "diagnose", str(path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert "\x1b[3" not in done.stdout and not done.stderr


def test_explain_rule_and_code(capsys):
    assert main(["explain", "d1"]) == 0
    assert "```diff" in capsys.readouterr().out
    for code in error_codes():
        assert main(["explain", code]) == 0
        assert capsys.readouterr().out.startswith(f"# {code}")
    assert main(["explain"]) == 0
    assert "RL0702" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["D99", "RL9999", "../../etc/passwd", ""])
def test_explain_refuses_other_names(capsys, name):
    assert main(["explain", name]) == 2
    assert "RL0712" in capsys.readouterr().err


def test_every_error_of_this_part_has_a_page():
    from ridgeline.cli import diagnose, explain
    from ridgeline.profile import occupancy
    from ridgeline.profile.trace import errors

    found = {
        kind.code
        for module in (diagnose, explain, occupancy, errors)
        for kind in vars(module).values()
        if isinstance(kind, type) and getattr(kind, "code", "").startswith("RL07")
    }
    assert found <= set(error_codes()) and len(found) == 7


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("occupancy --sm 90 --threads 384 --registers 168 --shared 213188", "0.1875"),
        ("occupancy --gpu A100 --threads 256 --registers 64 --grid 1000", "waves"),
        ("littles-law --gpu H200 --bandwidth 4200", "37.28"),
        ("amdahl --share 0.5 --speedup 2", "1.333"),
        ("peak --gpu H200", "989.4"),
        ("peak --sms 132 --fma 128 --clock 1.98", "66.9"),
        ("intensity --flops 1e12 --bytes 1e9 --gpu H100", "arithmetic"),
        ("list", "Jetson Nano"),
    ],
)
def test_gpu_verbs(capsys, arguments, expected):
    assert main(["gpu", *arguments.split()]) == 0
    assert expected in capsys.readouterr().out
    assert main(["gpu", *arguments.split(), "--json"]) == 0
    json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "arguments",
    [
        "occupancy --threads 64 --registers 32",
        "peak --gpu Voodoo",
        "littles-law --sms 1",
        "amdahl --share 2 --speedup 2",
        "intensity --flops 1 --bytes 1 --gpu H200 --dtype int3",
    ],
)
def test_gpu_verbs_refuse_nonsense(capsys, arguments):
    assert main(["gpu", *arguments.split()]) == 2
    assert "RL0711" in capsys.readouterr().err


def test_profile_package_imports_neither_torch_nor_the_compiler():
    code = (
        "import sys; before = set(sys.modules); import ridgeline; base = set(sys.modules);"
        "import ridgeline.profile.diagnosis, ridgeline.profile.page.build;"
        "new = set(sys.modules) - base;"
        "print([m for m in new if m.startswith('torch') or (m.startswith('ridgeline.') and "
        "not m.startswith('ridgeline.profile'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
