"""Models of the transformers package in small configurations: a forward pass and steps of AdamW."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tests.models.family_cases import (
    DECODERS,
    ENCODERS,
    IMAGES,
    MORE_DECODERS,
    OTHERS,
    SEQUENCES,
    WORDS,
)
from tests.torch_backend.modules import assert_close

STEPS = 3
# parts of some models are in float32, where a gradient that is zero is 1e-9: no step is to be of it
EPS = 1e-5
_LLAMA = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "vocab_size": WORDS, "max_position_embeddings": 32, "num_key_value_heads": 1,
}  # fmt: skip
_VIT = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "image_size": 16, "patch_size": 8,
}  # fmt: skip
_GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": WORDS, "n_positions": 32}


@dataclass(frozen=True, slots=True)
class Family:
    """A model of the package: its type, its class (None: the language model), settings, inputs."""

    model_type: str
    model_class: str | None
    settings: dict[str, Any]
    given: str = "text"


def _families() -> dict[str, Family]:
    found = {
        "gpt2": Family("gpt2", None, _GPT2),
        "llama": Family("llama", None, _LLAMA),
        "vit": Family("vit", "ViTForImageClassification", _VIT, "images"),
    }
    for name, (kind, settings) in {**DECODERS, **MORE_DECODERS}.items():
        found[name] = Family(kind, None, settings)
    for name, (stem, settings, _) in ENCODERS.items():
        found[name] = Family(name, f"{stem}ForMaskedLM", settings)
    for kind, model_class, settings in SEQUENCES:
        given = "encoded" if model_class.endswith("EncoderModel") else "pair"
        found.setdefault(
            model_class if kind in found else kind,
            Family(kind, model_class, settings, "speech" if kind == "whisper" else given),
        )
    for kind, model_class, settings, given in (*IMAGES, *OTHERS):
        found[model_class if kind in found else kind] = Family(kind, model_class, settings, given)
    return found


FAMILIES = _families()


def built(name: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """A model without dropout in double precision, and what it is given."""
    import transformers

    family = FAMILIES[name]
    torch.manual_seed(0)
    configuration = transformers.AutoConfig.for_model(family.model_type, **family.settings)
    _leave_out_nothing(configuration)
    if family.model_class is None:
        model = transformers.AutoModelForCausalLM.from_config(configuration)
    else:
        model = getattr(transformers, family.model_class)(configuration)
    return model.double(), inputs(family.given)


def _leave_out_nothing(configuration: Any) -> None:
    """Without dropout, and without what training draws besides."""
    for key, value in configuration.to_dict().items():
        if isinstance(value, float) and ("drop" in key or key.startswith("mask_")):
            setattr(configuration, key, 0.0)
        elif key.endswith("_config") and hasattr(getattr(configuration, key), "to_dict"):
            _leave_out_nothing(getattr(configuration, key))
    for key in ("use_cache", "apply_spec_augment"):
        if hasattr(configuration, key):
            setattr(configuration, key, False)


def inputs(given: str) -> dict[str, torch.Tensor]:
    """What a model is given."""
    text, answer = torch.randint(3, WORDS, (2, 9)), torch.randint(3, WORDS, (2, 5))
    images = torch.randn(2, 3, 16, 16).double()
    sound, heard = torch.randn(2, 100).double(), torch.ones(2, 100, dtype=torch.long)
    heard[1, 60:] = 0
    return {
        "text": {"input_ids": text},
        "encoded": {"input_ids": text},
        "pair": {"input_ids": text, "decoder_input_ids": answer},
        "speech": {
            "input_features": torch.randn(2, 8, 20).double(), "decoder_input_ids": answer,
        },
        "images": {"pixel_values": images},
        "both": {"input_ids": text, "pixel_values": images},
        "sound": {"input_values": sound},
        "masked sound": {"input_values": sound, "attention_mask": heard},
    }[given]  # fmt: skip


def outputs(found: Any) -> list[torch.Tensor]:
    """The values that a model gives, also inside of others."""
    if isinstance(found, torch.Tensor):
        return [found] if found.is_floating_point() else []
    parts = found.values() if hasattr(found, "values") else found
    if not isinstance(found, tuple | list) and not hasattr(found, "values"):
        return []
    return [tensor for part in parts for tensor in outputs(part)]


def check(name: str, backend: str) -> dict[str, Any]:
    """Three steps of AdamW, compiled and not, end at the same weights."""
    model, given = built(name)
    plain = copy.deepcopy(model)
    if hasattr(plain, "set_experts_implementation"):  # torch groups no products in double precision
        plain.set_experts_implementation("batched_mm")
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        found, wanted = outputs(compiled.eval()(**given)), outputs(plain.eval()(**given))
        assert wanted
        for one, other in zip(found, wanted, strict=True):
            assert_close(one, other)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3, eps=EPS) for m in (model, plain)]
    for _ in range(STEPS):
        for function, module, optimizer in zip((compiled, plain), (model, plain), optimizers):
            module.train()
            optimizer.zero_grad()
            loss = sum(value.square().mean() for value in outputs(function(**given)))
            assert isinstance(loss, torch.Tensor)
            loss.backward()
            optimizer.step()
    for one, other in zip(model.parameters(), plain.parameters()):
        assert_close(one, other)
    return {}


def checks(backend: str) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """The checks of all families, by name."""
    for name in FAMILIES:
        yield name, lambda name=name: check(name, backend)
