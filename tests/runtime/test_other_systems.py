"""Other systems than Linux: code for them compiles, and the form they run is run here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = {
    "PyBool_FromLong", "PyErr_CheckSignals", "PyErr_Occurred", "PyErr_SetString",
    "PyEval_RestoreThread", "PyEval_SaveThread", "PyExc_TypeError", "PyGILState_Ensure",
    "PyGILState_Release", "PyLong_AsUnsignedLongLong", "Py_IncRef", "_Py_NoneStruct",
}  # fmt: skip
LIBRARY = {"memcpy", "memset", "pow", "powf", "fmod", "fmodf"}
POSIX = {"clock_gettime", "pthread_create", "pthread_detach", "pthread_sigmask", "sched_yield"}
CONDITIONS = {
    "pthread_cond_broadcast", "pthread_cond_timedwait", "pthread_cond_wait", "pthread_mutex_lock",
    "pthread_mutex_unlock",
}  # fmt: skip
WINDOWS = {
    "AcquireSRWLockExclusive", "CloseHandle", "CreateThread", "QueryPerformanceCounter",
    "QueryPerformanceFrequency", "ReleaseSRWLockExclusive", "SleepConditionVariableSRW",
    "SwitchToThread", "WakeAllConditionVariable", "__chkstk", "_fltused",
}  # fmt: skip
SYSTEMS = {
    "macos": POSIX | CONDITIONS,
    "windows": WINDOWS,
    "linux-arm64": POSIX | {"syscall"},
}
TRAINING = """
import hashlib
import numpy as np
import ridgeline as rl
from ridgeline.runtime.cpu import executor

rl.config.background = False
rl.manual_seed(0)
data = rl.data.TensorDataset(rl.randn(64, 1, 32, 32), rl.arange(64) % 10)
model = rl.models.lenet5()
optimizer = rl.optim.Adam(model.parameters())

@rl.jit
def step(x, y):
    optimizer.zero_grad()
    loss = rl.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss

if __name__ == "__main__":
    for x, y in rl.data.DataLoader(data, batch_size=16, num_workers=1):
        loss = step(x, y)
    total = float((rl.ones(3000, 3000) * 2).sum())
    assert total == 18e6 and executor.workers() == 1, (total, executor.workers())
    values = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print(rl.config.portable, hashlib.sha256(values).hexdigest())
"""


@pytest.mark.parametrize("system", SYSTEMS)
def test_code_for_another_system_wants_only_what_is_there(system: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name("cross_compile.py")), system]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout.splitlines()[-1])
    names = set(found["names"])
    assert found["objects"] > 10
    assert names >= PYTHON
    assert SYSTEMS[system] - {"memset"} <= names
    assert names <= PYTHON | LIBRARY | SYSTEMS[system]


def test_the_portable_form_trains_to_the_same_numbers(tmp_path: Path) -> None:
    """Threads, sleeping and waking, loading of code and worker processes, without Linux's calls."""
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    found = []
    for portable in ("0", "1"):
        settings = {
            "RIDGELINE_PORTABLE": portable, "RIDGELINE_THREADS": "2",
            "RIDGELINE_DETERMINISTIC": "1", "PYTHONPATH": str(ROOT),
            "RIDGELINE_CACHE_DIR": str(tmp_path / "cache"),
        }  # fmt: skip
        result = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=600,
            env=os.environ | settings, check=False,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr[-3000:]
        found.append(result.stdout.split())
    assert found[0][0] == "False" and found[1][0] == "True"
    assert found[0][1] == found[1][1]


@pytest.mark.slow
def test_the_runtime_passes_its_tests_in_the_portable_form() -> None:
    folders = ["tests/runtime", "tests/data"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *folders]
    settings = os.environ | {"RIDGELINE_PORTABLE": "1"}
    result = subprocess.run(
        command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-4000:]
