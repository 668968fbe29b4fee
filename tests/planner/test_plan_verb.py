"""`ridgeline plan` as it is typed: answers, files, and requests that are impossible."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist, models, optim
from ridgeline.cli.main import main
from ridgeline.distributed import Plan
from ridgeline.nn import functional as F
from ridgeline.planner.cluster_files import bus_bandwidth, read_cluster
from ridgeline.planner.layout_words import check_layout, layout_of
from ridgeline.planner.layouts import Job
from ridgeline.planner.named_models import shape_named
from ridgeline.planner.page_charts import LayoutPoint, ticks, unbeaten

SMALL = ["plan", "llama3-8b", "--gpus", "16", "--gpu", "h100", "--batch", "64"]


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    found = capsys.readouterr()
    return code, found.out, found.err


def test_layouts_with_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, *SMALL, "--tokens", "1T")
    assert code == 0
    for words in ("tokens/s/GPU", "slower:", "(exact)", "(modelled)", "causal attention",
                  "layouts considered", "GPU-hours", "best to save every"):  # fmt: skip
        assert words in out


def test_json_is_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, *SMALL, "--json", "--top", "2")
    found = json.loads(out)
    assert code == 0
    mesh, plan = found["mesh"], found["plan"]
    assert mesh["dp"] * mesh["pp"] * mesh["cp"] * mesh["tp"] == 16
    assert set(plan) == {"zero", "sequence", "recompute", "schedule", "microbatches", "chunks",
                         "stages"}  # fmt: skip
    assert Plan.from_json(out).microbatches == plan["microbatches"]  # what parallelize takes
    assert found["prediction"]["tag"] == "modelled" and found["model"]["tag"] == "exact"
    assert len(found["alternatives"]) == 1
    assert found["memory"]["worst_bytes"] <= found["memory"]["capacity_bytes"]


def test_sweep_is_csv(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, *SMALL, "--sweep")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0 and len(rows) > 10
    for row in rows:
        ranks = [int(row[axis]) for axis in ("tensor", "context", "pipeline", "data")]
        assert ranks[0] * ranks[1] * ranks[2] * ranks[3] == 16


def test_page_is_one_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.html"
    code, _, _ = said(
        capsys, "plan", "llama3-70b", "--gpus", "64", "--gpu", "h100", "--batch", "128",
        "--page", str(path),
    )  # fmt: skip
    text = path.read_text()
    assert code == 0 and text.count("<svg") == text.count("</svg>") >= 4
    assert "http" not in text.replace("http-equiv", "")
    assert "<script" not in text
    for words in ("GB of the fullest rank", "none beats", "idle, by stage", "of it exposed"):
        assert words in text


def test_ticks_are_round_and_a_frontier_is_what_none_beats() -> None:
    assert ticks(85) == [0, 20, 40, 60, 80] and ticks(0) == [0]
    assert ticks(0.046) == pytest.approx([0, 0.01, 0.02, 0.03, 0.04])
    points = [LayoutPoint(held, speed, "", True) for held, speed in
              ((3, 5), (1, 2), (2, 1), (1, 3), (4, 5), (5, 9))]  # fmt: skip
    assert [(one.held, one.speed) for one in unbeaten(points)] == [(1, 3), (3, 5), (5, 9)]


def test_will_it_fit(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "gpt2-xl", "--gpu", "a100-40", "--will-it-fit"]
    assert said(capsys, *words, "--gpus", "8")[0] == 0
    code, out, _ = said(
        capsys,
        "plan",
        "llama3-70b",
        "--gpu",
        "h100",
        "--will-it-fit",
        "--gpus",
        "8",
        "--batch",
        "8",
    )
    assert code == 1 and "the fewest on which it fits are" in out
    assert said(capsys, *words)[0] == 0


def test_how_many_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(
        capsys, "plan", "llama3-8b", "--gpu", "h100", "--days", "30", "--tokens", "1T", "--batch",
        "512",
    )  # fmt: skip
    assert code == 0 and "are the fewest tried" in out
    code, out, _ = said(
        capsys, "plan", "llama3-8b", "--gpu", "v100", "--days", "0.01", "--tokens", "15T",
        "--batch", "16", "--precision", "fp16",
    )  # fmt: skip
    assert code == 1 and "a larger batch" in out and "the nearest: " in out


def test_one_layout_explained(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, *SMALL, "--explain", "tp2 pp4 mb1 v2 full", "--jitter", "0.05")
    assert code == 0 and "useful FLOPs at peak" in out and "DP2" in out
    assert "against it: " in out and " takes " in out
    code, out, _ = said(capsys, *SMALL, "--explain", "tp2 pp4 mb1 v2 full", "--json")
    found = json.loads(out)
    assert code == 0 and found["mesh"] == {"dp": 2, "pp": 4, "cp": 1, "tp": 2}
    assert found["plan"]["recompute"] == "full" and found["plan"]["chunks"] == 2


def test_the_published_layout_of_llama_3_is_explained() -> None:
    """128 parts of 126 layers: the embedding and the head count as a layer each."""
    job = Job(shape_named("llama3-405b"), 8192, 2048)
    check_layout(job, layout_of("tp8 pp16 v8 mb1 zero2", 16_384))


def test_laws(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "plan", "--laws")
    assert code == 0
    for law in ("Amdahl", "Gustafson", "ring", "tree", "one server", "strong", "weak", "bubble"):
        assert law in out


OWN = """
from ridgeline import models

def model():
    return models.Llama(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=4,
                        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32)

size = 64
"""


def own_losses(plan: dict[str, Any] | str | None, mesh: dict[str, Any]) -> list[float]:
    """Of two steps of the model in `OWN`."""
    rl.manual_seed(0)
    model = models.Llama(
        vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    if plan is not None:
        model = dist.parallelize(model, dist.Mesh(**mesh), plan)
    tokens = rl.tensor(np.random.default_rng(0).integers(0, 96, (8, 32)))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen


@pytest.mark.parametrize("wish", ["dp2 tp2 mb1 zero3", "pp2 dp2 v2 mb2"])
def test_what_was_planned_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, wish: str
) -> None:
    """By the file that was written, and by what JSON reads of it."""
    own, path = tmp_path / "own.py", tmp_path / "plan.json"
    own.write_text(OWN)
    words = ["plan", f"{own}:model", "--gpus", "4", "--gpu", "a100", "--batch", "8", "--json"]
    code, out, _ = said(capsys, *words, "--explain", wish)
    found = json.loads(out)
    path.write_text(out)
    expected = own_losses(None, {})
    by_file = dist.run(partial(own_losses, str(path), found["mesh"]), ranks=4)[0]
    by_settings = dist.run(partial(own_losses, found, found["mesh"]), ranks=4)[0]
    assert code == 0
    assert by_file == by_settings == pytest.approx(expected, rel=1e-5)


def test_a_model_of_ones_own_has_the_length_that_it_takes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN)
    words = ["plan", f"{own}:model", "--gpus", "4", "--gpu", "a100"]
    assert "sequences of 32 tokens" in said(capsys, *words)[1]
    code, _, error = said(capsys, *words, "--seq", "64")
    assert code == 2 and "no sequences of 64 tokens" in error and "--seq 32" in error
    code, _, error = said(capsys, "plan", f"{own}:size", "--gpus", "4", "--gpu", "a100")
    assert code == 2 and "is of type int" in error
    code, _, error = said(capsys, "plan", f"{own}:mode", "--gpus", "4", "--gpu", "a100")
    assert code == 2 and f"{own}:model" in error


@pytest.mark.parametrize("gpus", [7, 13, 24])
def test_a_usual_batch_is_shared_by_any_number_of_gpus(
    capsys: pytest.CaptureFixture[str], gpus: int
) -> None:
    words = ["plan", "llama3.2-1b", "--gpu", "h100", "--gpus", str(gpus), "--json"]
    found = json.loads(said(capsys, *words)[1])
    assert f"DP{gpus}" in found["layout"]


@pytest.mark.parametrize(
    ("words", "why", "nearest"),
    [
        (["llama3-9b", "--gpu", "h100", "--gpus", "8"], "no model 'llama3-9b'", "'llama3-"),
        (["llama3-8b", "--gpu", "h101", "--gpus", "8"], "no GPU 'h101'", "'h100'"),
        (["llama3-8b", "--gpu", "h100"], "how many GPUs", "--gpus 64"),
        (["llama3-8b", "--gpu", "h100", "--gpus", "0"], "0 GPUs", "at least 1"),
        (["llama3-8b", "--gpus", "8"], "either --gpu or --cluster", "h100"),
        (["llama3-8b", "--gpu", "a100", "--gpus", "8", "--precision", "fp8"], "no float8", "bf16"),
        (
            ["llama3-8b", "--gpu", "h100", "--gpus", "8", "--batch-tokens", "10000"],
            "no whole number of sequences", "--batch-tokens 8192",
        ),
        (
            ["llama3-8b", "--gpu", "h100", "--gpus", "8", "--batch-tokens", "lots"],
            "no number of tokens", "16M",
        ),
        (
            ["llama3-8b", "--gpu", "h100", "--gpus", "7919", "--batch", "64"],
            "cannot share 64 sequences", "--batch",
        ),
        (
            ["llama3-405b", "--gpu", "h100", "--gpus", "8", "--batch", "8"],
            "does not fit on 8", "the fewest on which it fits are",
        ),
        (["llama3-8b", "--gpu", "v100", "--gpus", "8"], "no bfloat16", "fp16"),
        (
            ["llama3-8b", "--gpu", "h100", "--gpus", "12", "--explain", "tp12"],
            "do not divide 32 heads", "tp8",
        ),
        (
            ["llama3-8b", "--gpu", "h100", "--gpus", "16", "--explain", "tp8 dp3"],
            "24 ranks are not 16", "dp2",
        ),
        (["nowhere.py:model", "--gpu", "h100", "--gpus", "8"], "no file nowhere.py", "file.py"),
        (["llama3-8b", "--gpu", "h100", "--gpus", "8", "--seq", "0"], "0 tokens", "--seq 1"),
        (
            ["gpt2", "--gpu", "h100", "--gpus", "8", "--seq", "4096"],
            "no sequences of 4096", "--seq 1024",
        ),
        (
            ["llama3-8b", "--gpu", "h100", "--gpus", "8", "--precision", "mxfp8"],
            "no products with scales", "fp8",
        ),
        (
            ["llama3-8b", "--gpu", "h100", "--gpus", "1000003"],
            "cannot share", "--batch 1000003",
        ),
        (
            ["llama3-8b", "--gpu", "h100", "--gpus", "8", "--sweep", "--json"],
            "ask for two answers", "one",
        ),
        (["llama3-8b", "--gpu", "h100", "--gpus", "8", "--top", "0"], "the 0 best", "--top 1"),
        (
            ["llama3-8b", "--gpu", "h100", "--gpus", "16", "--explain", "pp8 dp2 v9"],
            "72 parts of 32 layers", "v4",
        ),
        (
            ["llama3-8b", "--gpu", "h100", "--gpus", "16", "--explain", "pp8 v2 1f1b"],
            "one chunk a stage", "interleaved",
        ),
        (
            ["llama3-8b", "--gpu", "h100", "--gpus", "8", "--software", "apex"],
            "no software profile", "megatron-core",
        ),
        (
            ["llama3-8b", "--gpu", "h100", "--gpus", "99999999999999999999"],
            "99,999,999,999,999,999,999 GPUs", "10,000,000",
        ),
        (
            ["llama3-8b", "--gpu", "h100", "--gpus", "8", "--explain", "tp2 tp4"],
            "tp is there twice", "once",
        ),
        (
            ["llama3-8b", "--gpu", "h100", "--tokens", "2T", "--days", "nan"],
            "--days nan", "more than 0",
        ),
        (["llama3-8b", "--gpu", "h100", "--gpus", "8", "--days", "3"], "needs --tokens", "2T"),
        (["llama3-8b", "--gpu", "h100", "--gpus", "8", "--page", "."], "is a folder", "plan.html"),
        (["llama3-8b", "--gpu", "h100", "--gpus", "8", "--input", "3"], "whose input", "--seq"),
        (["llama3-8b", "--gpu", "tpu-v5p", "--gpus", "8"], "other accelerators", "gpu list"),
        (
            ["llama3-70b", "--gpu", "h200", "--gpus", "1", "--optimizer", "lora"],
            "does not fit on 1", "with --optimizer qlora it fits here",
        ),
        (
            ["llama3-8b", "--gpu", "h100", "--gpus", "8", "--document", "9000"],
            "samples of 9000", "--document 8192",
        ),
        (
            ["llama3-8b", "--gpu", "h100", "--gpus", "8", "--software", "fsdp-eager reduce_byte=2"],
            "no setting", "reduce_bytes=4",
        ),
        (
            ["llama3-8b", "--gpu", "h100", "--gpus", "8", "--software", "fsdp-eager launch=soon"],
            "expected a number", "launch=",
        ),
    ],
)  # fmt: skip
def test_impossible_requests_name_the_nearest(
    capsys: pytest.CaptureFixture[str], words: list[str], why: str, nearest: str
) -> None:
    code, _, error = said(capsys, "plan", *words)
    assert code == 2 and why in error and nearest in error


def test_a_model_of_ones_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from ridgeline import nn\nfrom ridgeline.models import Llama\n"
        "model = Llama(Llama.configuration('8B'), num_hidden_layers=3)\n"
        "other = nn.Linear(2, 2)\n"
        "def broken():\n    raise RuntimeError('no weights')\n"
    )
    code, out, _ = said(
        capsys, "plan", f"{path}:model", "--gpus", "8", "--gpu", "h100", "--batch", "16"
    )
    assert code == 0 and "3 layers of 4096" in out
    code, _, error = said(capsys, "plan", f"{path}:other", "--gpus", "8", "--gpu", "h100")
    assert code == 2 and "no 'example'" in error and "--input 3x224x224" in error
    code, _, error = said(capsys, "plan", f"{path}:modle", "--gpus", "8", "--gpu", "h100")
    assert code == 2 and ":model" in error
    code, _, error = said(capsys, "plan", f"{path}:broken", "--gpus", "8", "--gpu", "h100")
    assert code == 2 and "RuntimeError: no weights" in error and "in line 6" in error


def test_a_cluster_of_ones_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "net.txt").write_text(
        "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
        "     8388608       2097152     float     sum      -1    211.3   39.70  77.00      0\n"
        "  8589934592    2147483648     float     sum      -1    44000  195.00 380.00      0\n"
    )
    path = tmp_path / "cluster.toml"
    path.write_text(
        'gpu = "h100"\ngpus = 16\nprice = 2.0\n[node]\ngpus = 8\n[network]\nbandwidth = 25\n'
        'pod = 8\noversubscription = 4\n[measured]\nproduct_share = 0.6\nnccl_network = "net.txt"\n'
    )
    cluster, gpus = read_cluster(path)
    assert gpus == 16 and cluster.network == 25 and cluster.oversubscription == 4
    assert bus_bandwidth(tmp_path / "net.txt") == 380
    assert cluster.network_measured == 380 / 8
    assert said(capsys, "plan", "llama3-8b", "--cluster", str(path), "--batch", "32")[0] == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gpu = h100", "is not TOML"),
        ("gpus = 8", "does not say which GPU"),
        ('gpu = "h100"\nspeed = 3', "no setting 'speed'"),
        ('gpu = "h100"\n[fabric]\nx = 1', "no table 'fabric'"),
        ('gpu = "h100"\ngpus = "many"', "expected a whole number"),
        ('gpu = "h100"\n[network]\nbandwidth = -1', "more than 0"),
        ('gpu = "h100"\nprice = nan', "more than 0"),
        ('gpu = "h100"\n[network]\nbandwidth = inf', "more than 0"),
        ('gpu = "h100"\n[network]\noversubscription = 0.5', "how many times narrower"),
        ('gpu = "h100"\n[measured]\nproduct_share = 68', "such as 0.68"),
        ('gpu = "h100"\n[measured]\nnccl_node = "absent.txt"', "cannot be read"),
        ('gpu = "h100"\n[measured]\nnccl_node = "."', "it is no file"),
        ('gpu = "h100"\ngpus = 99999999999999999999999', "expected 1 to 1e+07"),
        ('gpu = "h100"\n[network]\nbandwidth = 1e300', "expected 0.001 to 1e+06"),
        ('gpu = "h100"\n[measured]\nproduct_share = 1e-300', "expected at least 0.001"),
        ('gpu = "h100"\n[measured]\nmemory = 1e30', "expected 0.1 to 100000"),
        ('gpu = "h100"\n[node]\ngpus = 0', "node.gpus is 0"),
        ('gpu = "h100"\ngpus = "64"', "such as gpus = 8"),
        ("gpu = " + "[" * 5000 + "]" * 5000, "is not TOML"),
    ],
)
def test_malformed_clusters(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, why: str
) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    code, _, error = said(capsys, "plan", "llama3-8b", "--cluster", str(path), "--gpus", "8")
    assert code == 2 and why in error


def test_a_gpu_without_published_runs_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "llama3-8b", "--gpus", "16", "--gpu", "l40s", "--batch", "64"]
    assert "never validated" in said(capsys, *words)[1]
    out = said(capsys, *SMALL)[1]
    assert "never validated" not in out
    assert "published runs on H100 SXM compared with, half of them within 8%" in out


def test_a_405b_model_is_planned_in_little_memory() -> None:
    program = (
        "import sys\n"
        "from ridgeline.cli.main import main\n"
        "code = main('plan llama3-405b --gpus 512 --gpu h200 --batch 64'.split())\n"
        "peak = next(w for w in open('/proc/self/status') if w.startswith('VmHWM'))\n"
        "assert int(peak.split()[1]) < 1e6  # kB, of this program and not of who started it\n"
        "sys.exit(code)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_other_runs_are_judged(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own = resources.files("ridgeline.planner").joinpath("data/training_runs.csv").read_text()
    lines = own.splitlines()
    other = "X001," + lines[14].partition(",")[2]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([lines[0], other]) + "\n")
    code, out, _ = said(capsys, "plan", "--validate", "--runs", str(path))
    row = next(line for line in out.splitlines() if line.startswith("X001"))
    assert code == 0 and row.endswith("=")
    path.write_text("id,gpus\nR1,8\n")
    code, _, error = said(capsys, "plan", "--validate", "--runs", str(path))
    assert code == 2 and "no training run" in error


def test_settings_of_a_profile_change_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    wide, narrow = (
        json.loads(said(capsys, *SMALL, "--explain", "dp16", "--json", "--software", words)[1])
        for words in ("fsdp-eager", "fsdp-eager reduce_bytes=2 score_bytes=4")
    )
    sums = [
        next(row["bytes"] for row in one["traffic"] if row["collective"] == "reduce_scatter")
        for one in (wide, narrow)
    ]
    assert sums[0] == 2 * sums[1]
    held = [one["memory"]["stages"][0]["scores"] for one in (wide, narrow)]
    assert held[0] == 3 * held[1]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3-8b"), ("Llama-2-70b-hf", "llama2-70b"),
        ("TinyLlama-1.1B", "tinyllama-1.1b"), ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("llama-3.3-70b", "llama3-70b"), ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
    ],
)  # fmt: skip
def test_models_by_the_names_that_others_write(written: str, meant: str) -> None:
    assert shape_named(written) == shape_named(meant)


def test_adapters_count_no_gradients_of_weights(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SMALL, "--explain", "dp16", "--json", "--software", "megatron-core"]
    whole, lora = (
        json.loads(said(capsys, *words, "--optimizer", name)[1])["prediction"]
        for name in ("adamw", "lora")
    )
    each = [one["tflops_per_gpu"]["full attention"] / one["tokens_per_second_per_gpu"]
            for one in (whole, lora)]  # fmt: skip
    assert 0.65 < each[1] / each[0] < 0.75


def test_optimizers_hold_less_than_adamw(capsys: pytest.CaptureFixture[str]) -> None:
    held = {}
    for name in ("adamw", "adamw-bf16", "adamw-8bit", "offload", "lora"):
        code, out, _ = said(
            capsys, "plan", "llama3-8b", "--gpus", "8", "--gpu", "h100", "--batch", "8",
            "--software", "megatron-core", "--optimizer", name, "--json",
        )  # fmt: skip
        stage = json.loads(out)["memory"]["stages"][0]
        assert code == 0
        held[name] = stage["optimizer"] / stage["weights"]
    assert held["adamw"] > held["adamw-bf16"] > held["adamw-8bit"] > held["offload"] == 0
    assert 0 < held["lora"] < 0.05 * held["adamw"]
