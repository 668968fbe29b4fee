"""Llama 3: RMSNorm, rotary positions, SwiGLU, and query heads that share keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from ridgeline import nn
from ridgeline.errors import BadValueError, InputFileError
from ridgeline.models.language import LanguageModel
from ridgeline.models.pretrained import ModelConfig

# How Llama 3.1 stretches its positions to 128k: slow turns are slowed down by the factor.
LLAMA_31_SCALING = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


@dataclass(frozen=True)
class LlamaConfig(ModelConfig):
    """Settings, with the defaults of Llama 3 8B."""

    model_type: ClassVar[str] = "llama"
    prefixes: ClassVar = {"LlamaForCausalLM": "model."}
    fixed: ClassVar = {"pretraining_tp": 1}

    vocab_size: int = 128_256
    hidden_size: int = 4096
    intermediate_size: int = 14_336
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    head_dim: int | None = None
    max_position_embeddings: int = 8192
    rope_theta: float = 500_000.0
    rope_scaling: Mapping[str, Any] | None = None
    rms_norm_eps: float = 1e-5
    hidden_act: str = "silu"
    attention_bias: bool = False
    attention_dropout: float = 0.0
    mlp_bias: bool = False
    tie_word_embeddings: bool = False
    initializer_range: float = 0.02

    @classmethod
    def read(cls, values: Mapping[str, Any], where: str) -> Self:
        """The settings in a file, whose rotation may be described in either of two forms."""
        values = dict(values)
        joint = values.pop("rope_parameters", None)
        if joint is not None:
            if not isinstance(joint, dict):
                raise InputFileError(
                    f"{where}: rope_parameters is {joint!r:.60}, expected settings"
                )
            scaled = joint.get("rope_type", "default") != "default"
            rest = {key: value for key, value in joint.items() if key != "rope_theta"}
            values |= {
                "rope_theta": joint.get("rope_theta", values.get("rope_theta", 10_000.0)),
                "rope_scaling": rest if scaled else None,
            }
        values.setdefault("rope_theta", 10_000.0)  # what files of the first Llama leave out
        values.setdefault("num_key_value_heads", values.get("num_attention_heads"))
        return super().read(values, where)

    def parameter_count(self) -> int:
        """The number of elements of all parameters; nothing is allocated."""
        with nn.deferred():
            return Llama(self).parameter_count()


_LLAMA_3 = LlamaConfig()
_LLAMA_31 = LlamaConfig(max_position_embeddings=131_072, rope_scaling=LLAMA_31_SCALING)
_70B = {
    "hidden_size": 8192, "intermediate_size": 28_672, "num_hidden_layers": 80,
    "num_attention_heads": 64,
}  # fmt: skip
_405B = {
    "hidden_size": 16_384, "intermediate_size": 53_248, "num_hidden_layers": 126,
    "num_attention_heads": 128,
}  # fmt: skip
CONFIGURATIONS = {
    "tiny": LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=176, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
    ),
    "small": LlamaConfig(
        vocab_size=4096, hidden_size=288, intermediate_size=768, num_hidden_layers=6,
        num_attention_heads=6, num_key_value_heads=3, max_position_embeddings=1024,
        tie_word_embeddings=True,
    ),
    "3-8B": _LLAMA_3,
    "3-70B": replace(_LLAMA_3, **_70B),  # type: ignore[arg-type]
    "8B": _LLAMA_31,
    "70B": replace(_LLAMA_31, **_70B),  # type: ignore[arg-type]
    "405B": replace(_LLAMA_31, **_405B),  # type: ignore[arg-type]
}  # fmt: skip


class Llama(LanguageModel):
    """Llama 3 and 3.1, or a model like them of any size."""

    config_type = LlamaConfig
    config: LlamaConfig

    def __init__(self, config: LlamaConfig | None = None, **settings: object) -> None:
        config = replace(config or LlamaConfig(), **settings)  # type: ignore[arg-type]
        super().__init__(config)

    @staticmethod
    def configuration(name: str) -> LlamaConfig:
        """The settings of a published model, such as "8B", or of a small one to train."""
        if name not in CONFIGURATIONS:
            raise BadValueError(
                f"there is no Llama {name!r}", help=f"there are: {', '.join(CONFIGURATIONS)}"
            )
        return CONFIGURATIONS[name]
