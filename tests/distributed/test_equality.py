"""Training over meshes comes to what one process comes to: in float64 to 1e-9, every way to run."""

from __future__ import annotations

import pytest

from ridgeline import distributed as dist
from tests.distributed.training import check

SEQUENCE = dist.Plan(sequence=True)


@pytest.mark.parametrize("mode", ["plain", "eager", "jit"])
def test_data_parallelism(mode: str) -> None:
    check("gpt2 with dropout", {"dp": 2}, mode=mode)


@pytest.mark.parametrize("rule", ["AdamW", "SGD"])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_zero(zero: int, rule: str) -> None:
    check("llama", {"dp": 4}, dist.Plan(zero=zero), "jit" if rule == "SGD" else "plain", rule)


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputed_blocks(recompute: str) -> None:
    plan = dist.Plan(sequence=True, zero=2, recompute=recompute)
    check("gpt2 with dropout", {"dp": 2, "tp": 2}, plan, "jit" if recompute == "full" else "plain")


def test_zero_within_replicas() -> None:
    check("gpt2", {"replica": 2, "dp": 2}, dist.Plan(zero=2), "jit")


def test_batch_norm_is_that_of_the_whole_batch() -> None:
    check("resnet", {"dp": 2}, rule="SGD")
    check("resnet", {"dp": 4}, dist.Plan(zero=3), "jit", "SGD")


@pytest.mark.parametrize("plan", [dist.Plan(), SEQUENCE], ids=["tp", "sp"])
@pytest.mark.parametrize("kind", ["gpt2 with dropout", "llama"])
def test_tensor_parallelism(kind: str, plan: dist.Plan) -> None:
    check(kind, {"tp": 2}, plan, "jit")


def test_more_ranks_than_heads_of_keys() -> None:
    check("llama", {"tp": 4}, SEQUENCE)


def test_uneven_shards() -> None:
    check("gpt2", {"tp": 3}, SEQUENCE)
    check("gpt2", {"dp": 3}, dist.Plan(zero=3), "jit")


@pytest.mark.parametrize("kind", ["gpt2 with dropout", "llama"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_context_parallelism(kind: str, ranks: int) -> None:
    check(kind, {"cp": ranks}, mode="plain" if ranks == 2 else "jit")


@pytest.mark.parametrize("mode", ["plain", "eager", "jit"])
def test_stages_of_a_pipeline(mode: str) -> None:
    """The embedding of GPT-2 is tied: its first and its last stage have it."""
    check("gpt2 of 4" if mode != "eager" else "gpt2", {"pp": 2}, mode=mode)


def test_uneven_stages() -> None:
    check("llama of 4", {"pp": 2}, dist.Plan(stages=(3, 1)))
    check("gpt2 of 4", {"pp": 3}, mode="jit")


@pytest.mark.parametrize(
    "axes",
    [
        {"dp": 2, "tp": 2},
        {"dp": 2, "cp": 2},
        {"cp": 2, "tp": 2},
        {"dp": 2, "pp": 2},
        {"cp": 2, "pp": 2},
        {"tp": 2, "pp": 2},
        {"dp": 2, "tp": 2, "pp": 2},
        {"cp": 2, "tp": 2, "pp": 2},
    ],
    ids=str,
)
def test_axes_together(axes: dict[str, int]) -> None:
    check("llama", axes, dist.Plan(zero=2, sequence=True), "jit")


@pytest.mark.parametrize("axes", [{"ep": 2}, {"ep": 4}, {"dp": 2, "ep": 2}], ids=str)
def test_expert_parallelism(axes: dict[str, int]) -> None:
    check("mixture", axes, mode="jit" if len(axes) > 1 else "plain")


def test_eager_over_two_axes() -> None:
    check("gpt2", {"dp": 2, "tp": 2}, dist.Plan(zero=1), "eager")


def test_compiled_code() -> None:
    check("llama", {"dp": 2, "tp": 2}, SEQUENCE, "jit", tier="compiled")
