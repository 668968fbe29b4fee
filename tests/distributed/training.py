"""The same training on one process and on a mesh of simulated ranks, and what both come to."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import distributed as dist, models, nn, optim
from ridgeline.models.described import Description
from ridgeline.models.language import LanguageModel
from ridgeline.nn import functional as F

VOCABULARY, BATCH, LENGTH, STEPS = 24, 4, 16, 3
_random = np.random.default_rng(0)
TOKENS = _random.integers(0, VOCABULARY, (BATCH, LENGTH))
LABELS = _random.integers(0, VOCABULARY, (BATCH, LENGTH))
IMAGES = _random.standard_normal((BATCH, 3, 16, 16))
CLASSES = _random.integers(0, 10, BATCH)

Found = dict[str, np.ndarray]


def gpt2(dropout: float = 0.0, layers: int = 2) -> nn.Module:
    rates = dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), dropout)
    return models.GPT2(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=16, n_layer=layers, n_head=4, **rates
    )


def llama(layers: int = 2) -> nn.Module:
    return models.Llama(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=LENGTH,
    )  # fmt: skip


def mixture() -> nn.Module:
    """A decoder with four experts, of which two count for a token."""
    settings = {
        "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": VOCABULARY,
        "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": LENGTH,
        "num_local_experts": 4, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5,
        "hidden_act": "silu", "tie_word_embeddings": False, "sliding_window": None,
    }  # fmt: skip
    return LanguageModel(Description.read(settings))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "gpt2": gpt2,
    "gpt2 with dropout": lambda: gpt2(0.1),
    "gpt2 of 4": lambda: gpt2(0.0, 4),
    "llama": llama,
    "llama of 4": lambda: llama(4),
    "mixture": mixture,
    "resnet": lambda: models.ResNet(
        embedding_size=4,
        hidden_sizes=(4, 8),
        depths=(1, 1),
        layer_type="basic",
        id2label={str(n): str(n) for n in range(10)},
    ),
}


def _batch(kind: str) -> tuple[rl.Tensor, rl.Tensor]:
    if kind == "resnet":
        return rl.tensor(IMAGES), rl.tensor(CLASSES)
    return rl.tensor(TOKENS), rl.tensor(LABELS)


def _loss(model: nn.Module, x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
    scores = model(x)
    return F.cross_entropy(scores.flatten(0, 1), y.flatten()) if y.dim() == 2 else (
        F.cross_entropy(scores, y)
    )  # fmt: skip


def train(
    kind: str, axes: dict[str, int], plan: dist.Plan, mode: str, rule: str, dtype: str = "float64"
) -> Found:
    """Losses, norms, gradients and parameters of some steps, on the calling rank."""
    rl.manual_seed(0)
    model = MODELS[kind]().to(getattr(rl, dtype))
    if axes:
        model = dist.parallelize(model, dist.Mesh(**axes), plan)
    settings: dict[str, Any] = {"lr": 1e-2} if rule == "AdamW" else {"lr": 0.1, "momentum": 0.9}
    optimizer = getattr(optim, rule)(model.parameters(), **settings)

    def step(x: rl.Tensor, y: rl.Tensor) -> tuple[rl.Tensor, rl.Tensor]:
        optimizer.zero_grad()
        loss = _loss(model, x, y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss, norm

    rl.manual_seed(1)
    run = rl.jit(step) if mode == "jit" else step
    found: Found = {}
    with rl.eager() if mode == "eager" else nullcontext():
        for number in range(STEPS):
            loss, norm = run(*_batch(kind))
            found[f"loss {number}"] = np.array(loss.item())
            found[f"norm {number}"] = np.array(norm.item())
        for path, parameter in model.named_parameters():
            assert parameter.grad is not None
            found[path] = dist.full_tensor(parameter).detach().numpy().copy()
            found[f"gradient of {path}"] = dist.full_tensor(parameter.grad).numpy().copy()
    return found


@lru_cache
def alone(kind: str, rule: str, tier: str) -> Found:
    """What one process comes to."""
    with rl.config.override(tier=tier):
        return train(kind, {}, dist.Plan(), "plain", rule)


def check(
    kind: str, axes: dict[str, int], plan: dist.Plan | None = None, mode: str = "plain",
    rule: str = "AdamW", tier: str = "interpreter",
) -> None:  # fmt: skip
    """Every rank comes to what one process does, to 1e-9 of each tensor's largest value."""
    expected, plan = alone(kind, rule, tier), plan or dist.Plan()
    with rl.config.override(tier=tier):
        ranks = dist.run(train, kind, axes, plan, mode, rule, ranks=math.prod(axes.values()))
    for found in ranks:
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            if "key.bias" in name:  # shifts every score alike: its gradient is rounding alone
                assert np.abs(found[name] - value).max() < 1e-9
                continue
            error = np.abs(found[name] - value).max() / np.abs(value).max()
            assert error < 1e-9, f"{name} is off by {error}"
