"""The commands as a user types them: output, options, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest
from builder import busy_program
from conftest import TRACES
from synthetic import memory_at

from ridgeline.cli.explain import error_codes
from ridgeline.cli.main import main
from ridgeline.profile.rules.table import RULES

PLANTED = str(TRACES / "item_per_step.cuda.planted.json.gz")
REPAIRED = str(TRACES / "item_per_step.cuda.repaired.json.gz")


def test_report_fits_eighty_columns(capsys):
    assert main(["diagnose", PLANTED]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert not any(line != line.rstrip() for line in out.splitlines() if line.startswith("   "))
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


def test_fail_on_counts_cases_of_a_rule_and_notes(capsys, tmp_path):
    """No workers is a case of waiting for data; M1 promises no time and is only a note."""
    loader = str(TRACES / "no_workers.cpu.planted.json.gz")
    assert main(["diagnose", loader, "--fail-on", "D1:0.05"]) == 1
    assert "fail-on: D2" in capsys.readouterr().err
    full = memory_at(0.95).write(tmp_path / "full.json")
    assert main(["diagnose", str(full), "--fail-on", "M1"]) == 1
    assert main(["diagnose", str(full), "--fail-on", "any"]) == 0


def test_fail_on_says_when_a_rule_was_not_checked(capsys, tmp_path):
    path = busy_program().write(tmp_path / "a.json")
    assert main(["diagnose", str(path), "--fail-on", "M3"]) == 0
    assert "fail-on: M3 was not checked: record with profile_memory" in capsys.readouterr().err


def test_a_page_never_replaces_a_device(tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    trace = busy_program().write(tmp_path / "a.json")
    assert main(["diagnose", str(trace), "--html", str(pipe)]) == 0
    reader.join()
    assert pipe.is_fifo() and received[0].endswith("</html>\n")


def test_other_files_of_a_directory_are_skipped(capsys, tmp_path):
    busy_program().write(tmp_path / "rank0.json")
    (tmp_path / "settings.json").write_text('{"a": 1}')
    assert main(["diagnose", str(tmp_path)]) == 0
    assert "settings.json skipped" in capsys.readouterr().out


def test_a_single_step_has_no_spread(capsys, tmp_path):
    assert main(["diagnose", str(busy_program(steps=1).write(tmp_path / "a.json"))]) == 0
    assert "±" not in capsys.readouterr().out


def test_diffs_are_not_wrapped():
    """Eight columns of the report are its margin."""
    diffs = [(rule.id, fix.diff) for rule in RULES for fix in rule.fixes.values()]
    assert [(rule, line) for rule, d in diffs for line in d.splitlines() if len(line) > 72] == []


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
        [PLANTED, "--html", "."],
        [PLANTED, "--html", "/"],
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


def test_names_and_terminals_that_cannot_be_encoded(tmp_path):
    path = busy_program().write(tmp_path / "a\x1b[31m\udcff.json")
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "ridgeline", "diagnose", path, "--html", tmp_path / "a.html"]
    done = subprocess.run(command, env=env, capture_output=True, check=True)
    assert b"unexplained" in done.stdout and b"\x1b" not in done.stdout
    command = [sys.executable, "-m", "ridgeline", "explain", "L4"]
    assert b"50 ?s" in subprocess.run(command, env=env, capture_output=True, check=True).stdout


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("verb", ["diagnose", "explain", "train"])
def test_a_full_disk_is_an_error_of_one_line(tmp_path, verb):
    rest = {
        "diagnose": [busy_program().write(tmp_path / "a.json")],
        "explain": ["RL0101"],
        "train": ["lenet", "--epochs", "1", "--quiet", "--out", tmp_path / "run"],
    }
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "ridgeline", verb, *rest[verb]]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"error RL0302: cannot use standard output: No space left")


def test_a_reader_that_has_seen_enough_ends_the_command_quietly():
    command = f"{sys.executable} -m ridgeline explain | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n0\n") and not done.stderr


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
        ("amdahl --share 1 --speedup 2", "inf"),
        ("list", "Jetson Nano"),
    ],
)
def test_gpu_verbs(capsys, arguments, expected):
    assert main(["gpu", *arguments.split()]) == 0
    out = capsys.readouterr().out
    assert expected in out and max(map(len, out.splitlines())) <= 80
    assert main(["gpu", *arguments.split(), "--json"]) == 0
    assert "Infinity" not in json.dumps(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    "arguments",
    [
        "occupancy --threads 64 --registers 32",
        "peak --gpu Voodoo",
        "occupancy --sm 90 --gpu H200 --threads 64 --registers 32",
        "occupancy --sm 90 --threads 64 --registers 32 --grid 500",
        "occupancy --gpu H200 --threads 64 --registers 32 --grid -1",
        "littles-law --sms 1",
        "littles-law --gpu H200 --bandwidth 0",
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
