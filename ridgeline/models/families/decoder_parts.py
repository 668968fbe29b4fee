"""What rows of language models are made of: names of tensors, and fields that are computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ridgeline.models.families.common import (
    HEADS,
    HIDDEN,
    bounded,
    head_size,
    late_windows,
    layers,
    rope_settings,
    rotary,
    windows,
)
from ridgeline.models.families.family import Family
from ridgeline.models.names import BY_HEADS, Table, inside, joint
from ridgeline.models.parts import Experts, Latent, Rotary
from ridgeline.models.settings import CheckedSettings, Field

ATTENTION = {
    "attention.query": "self_attn.q_proj", "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj", "attention.output": "self_attn.o_proj",
    "attention.query_norm": "self_attn.q_norm", "attention.key_norm": "self_attn.k_norm",
}  # fmt: skip
GATED = {f"feed_forward.{name}": f"mlp.{name}_proj" for name in ("gate", "up", "down")}
NORMS = {
    "attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm",
}  # fmt: skip
SANDWICH = {
    "attention_norm": "input_layernorm", "attention_after": "post_attention_layernorm",
    "feed_forward_norm": "pre_feedforward_layernorm",
    "feed_forward_after": "post_feedforward_layernorm",
}  # fmt: skip
INNER = {
    "attention_norm": "post_attention_layernorm", "feed_forward_norm": "post_feedforward_layernorm",
}  # fmt: skip
QKV = ("attention.query", "attention.key", "attention.value")
HEAD: Table = {"head": "lm_head", "classifier": "score"}


def names(
    block: Table, tokens: str = "embed_tokens", blocks: str = "layers.{}", norm: str = "norm",
    **more: str,
) -> dict[str, Any]:  # fmt: skip
    """The names of a stack's tensors."""
    return {"tokens": tokens, "norm": norm, **more, **inside("blocks.{}", blocks, block)}


def experts_names(
    where: str = "mlp",
    gate: str = "gate_proj",
    up: str = "up_proj",
    down: str = "down_proj",
    shared: str = "shared_experts",
) -> dict[str, Any]:
    """The names of a mixture of experts."""
    table: dict[str, Any] = {}
    for ours, theirs in (("gates", gate), ("ups", up), ("downs", down)):
        each = f"{where}.experts.{{}}.{theirs}.weight"
        table |= joint(each, f"feed_forward.{ours}", numbered=True)
    return table | {
        "feed_forward.router": f"{where}.gate",
        "feed_forward.router.correction": f"{where}.gate.e_score_correction_bias",
        "feed_forward.shared.gate": f"{where}.{shared}.gate_proj",
        "feed_forward.shared.up": f"{where}.{shared}.up_proj",
        "feed_forward.shared.down": f"{where}.{shared}.down_proj",
        "feed_forward.shared_gate": f"{where}.shared_expert_gate",
    }


LLAMA_BLOCK = {**ATTENTION, **GATED, **NORMS}
LLAMA: dict[str, Any] = {
    "vocabulary": Field("vocab_size"),
    "width": Field(HIDDEN),
    "layers": layers,
    "heads": Field(HEADS),
    "shared_heads": Field("num_key_value_heads", Field(HEADS)),
    "head_size": Field("head_dim", None),
    "inner": Field("intermediate_size"),
    "context": Field("max_position_embeddings", 2048),
    "eps": Field("rms_norm_eps", 1e-6),
    "activation": Field("hidden_act", "silu"),
    "query_bias": Field("attention_bias", False),
    "output_bias": Field("attention_bias", False),
    "up_bias": Field("mlp_bias", False),
    "rotaries": rotary(),
    "tied": Field("tie_word_embeddings", False),
    "attention_dropout": Field("attention_dropout", 0.0),
    "spread": Field("initializer_range", 0.02),
}
LAYER_NORMED = LLAMA | {"norm": "layer", "eps": Field("layer_norm_eps", 1e-5)}
PLAIN_MLP = {"gated": False, "up_bias": True}
GPT: dict[str, Any] = {  # learned positions, LayerNorm, biases everywhere
    "vocabulary": Field("vocab_size"),
    "width": Field(HIDDEN),
    "layers": layers,
    "heads": Field(HEADS),
    "inner": Field("n_inner intermediate_size", lambda c: 4 * c.count(HIDDEN)),
    "context": Field("n_positions max_position_embeddings"),
    "norm": "layer",
    "eps": Field("layer_norm_epsilon", 1e-5),
    "positions": "learned",
    "activation": Field("activation_function", "gelu_new"),
    "gated": False,
    "query_bias": True,
    "output_bias": True,
    "up_bias": True,
    "tied": Field("tie_word_embeddings", True),
    "dropout": Field("resid_pdrop resid_dropout", 0.0),
    "embedding_dropout": Field("embd_pdrop embed_dropout", 0.0),
    "attention_dropout": Field("attn_pdrop attention_dropout", 0.0),
    "spread": Field("initializer_range", 0.02),
}
GPT_BLOCK = {
    "attention.query": "attn.q_proj", "attention.key": "attn.k_proj",
    "attention.value": "attn.v_proj", "attention.output": "attn.out_proj",
    "attention_norm": "ln_1", "feed_forward_norm": "ln_2",
    "feed_forward.up": "mlp.c_fc", "feed_forward.down": "mlp.c_proj",
}  # fmt: skip
GPT_STACK = {"tokens": "wte", "blocks": "h.{}", "norm": "ln_f", "positions": "wpe"}


def decoder(
    stem: str,
    parts: dict[str, Any] = LLAMA,
    block: Table | Callable[[CheckedSettings], Table] = LLAMA_BLOCK,
    stack: dict[str, str] | None = None,
    head: Table = HEAD,
    prefix: str = "model.",
    fixed: dict[str, tuple[Any, ...]] | None = None,
) -> Family:
    """A family of language models."""
    where, stack = block, stack or {}
    table = (lambda c: names(where(c), **stack)) if callable(where) else names(where, **stack)
    return Family("language", stem, parts, table, head, prefix, fixed or {})


def by_parity(c: CheckedSettings) -> Callable[[int], bool]:
    """Windows in every other layer, beginning with the first."""
    return lambda layer: layer % 2 == 0


def gpt_neo_windows(c: CheckedSettings) -> tuple[int | None, ...]:
    size, listed = c.count("window_size", 256), c.values.get("attention_layers")
    if listed is None:  # a row of kinds, repeated
        kinds = c.values.get("attention_types", [[["global", "local"], 1]])
        try:
            row = list(kinds[0][0])
            listed = [row[n % len(row)] for n in range(layers(c))]
        except (TypeError, LookupError, ArithmeticError) as error:
            raise c.refused("attention_types", kinds, ["global", "local"]) from error
    if not isinstance(listed, list) or any(kind not in ("global", "local") for kind in listed):
        raise c.refused("attention_layers", listed, ["global", "local"])
    return tuple(size if kind == "local" else None for kind in listed)


def opt_norm(c: CheckedSettings) -> bool:
    before: bool = c.flag("do_layer_norm_before", True)
    return before and not c.flag("_remove_final_layer_norm", False)


def falcon_two_norms(c: CheckedSettings) -> bool:
    new = c.flag("new_decoder_architecture", False)
    return bool(new and c.count("num_ln_in_parallel_attn", 2) == 2)


def falcon_residual(c: CheckedSettings) -> str:
    if falcon_two_norms(c):
        return "parallel two"
    parallel = c.flag("new_decoder_architecture", False) or c.flag("parallel_attn", True)
    return "parallel" if parallel else "pre"


def falcon_shared(c: CheckedSettings) -> int:
    if c.flag("new_decoder_architecture", False):
        return int(c.count("num_kv_heads n_head_kv", c.count(HEADS)))
    return 1 if c.flag("multi_query", True) else int(c.count(HEADS))


def falcon_block(c: CheckedSettings) -> Table:
    first, second = (
        ("ln_attn", "ln_mlp") if falcon_two_norms(c)
        else ("input_layernorm", "post_attention_layernorm")
    )  # fmt: skip
    return {
        **joint("self_attention.query_key_value", *QKV, groups=BY_HEADS),
        "attention.output": "self_attention.dense", "attention_norm": first,
        "feed_forward_norm": second, "feed_forward.up": "mlp.dense_h_to_4h",
        "feed_forward.down": "mlp.dense_4h_to_h",
    }  # fmt: skip


def smollm3_rotary(c: CheckedSettings) -> tuple[Rotary | None, ...]:
    (turned,) = rotary(2_000_000.0)(c)
    period = c.count("no_rope_layer_interval", 4)
    listed = c.get("no_rope_layers", "Sequence[float]", None)
    flags = listed or [(n + 1) % period != 0 for n in range(layers(c))]
    return tuple(turned if flag else None for flag in flags)


def mixture(c: CheckedSettings, inner: str, counts: str, **more: Any) -> tuple[Experts | None, ...]:
    count, chosen = bounded(c, counts), bounded(c, "num_experts_per_tok")
    return (Experts(count, chosen, c.count(inner), **more),)


def sparse_steps(c: CheckedSettings, experts: Experts) -> tuple[Experts | None, ...]:
    """Experts in each so-manieth layer, but for some."""
    step, dense = c.count("decoder_sparse_step", 1), c.values.get("mlp_only_layers") or []
    return tuple(
        experts if n not in dense and (n + 1) % step == 0 else None for n in range(layers(c))
    )


def qwen2_moe(c: CheckedSettings) -> tuple[Experts | None, ...]:
    (experts,) = mixture(
        c, "moe_intermediate_size", "num_experts", normalised=c.flag("norm_topk_prob", False),
        shared_inner=c.count("shared_expert_intermediate_size"), shared_gate=True,
    )  # fmt: skip
    assert experts is not None
    return sparse_steps(c, experts)


def qwen3_moe(c: CheckedSettings) -> tuple[Experts | None, ...]:
    (experts,) = mixture(
        c, "moe_intermediate_size", "num_experts num_local_experts",
        normalised=c.flag("norm_topk_prob", False),
    )  # fmt: skip
    assert experts is not None
    return sparse_steps(c, experts)


def latent(c: CheckedSettings) -> Latent:
    return Latent(
        c.count("kv_lora_rank"), c.count("q_lora_rank", None), c.count("qk_nope_head_dim"),
        c.count("qk_rope_head_dim"), c.count("v_head_dim"),
    )  # fmt: skip


def latent_scale(c: CheckedSettings) -> float:
    """One over the root of a key's size, and more where the rotation was stretched."""
    size = c.count("qk_nope_head_dim") + c.count("qk_rope_head_dim")
    rope = rope_settings(c)
    factor, of_all = rope.real("factor", 1.0), rope.real("mscale_all_dim", 0.0)
    more: float = (0.1 * of_all * math.log(factor) + 1.0) ** 2 if factor > 1 else 1.0
    return more / math.sqrt(size)


def deepseek(corrected: bool) -> Callable[[CheckedSettings], tuple[Experts | None, ...]]:
    def read(c: CheckedSettings) -> tuple[Experts | None, ...]:
        inner, shared = c.count("moe_intermediate_size"), c.count("n_shared_experts", 0)
        grouped = corrected or c.text("topk_method", "greedy") == "group_limited_greedy"
        experts = Experts(
            bounded(c, "n_routed_experts"), bounded(c, "num_experts_per_tok"), inner,
            "sigmoid" if corrected else "softmax", corrected and c.flag("norm_topk_prob", True),
            c.real("routed_scaling_factor", 1.0),
            c.count("n_group", 1) if grouped else 1, c.count("topk_group", 1) if grouped else 1,
            corrected, inner * shared,
        )  # fmt: skip
        first = c.get("first_k_dense_replace", "float", 0)
        return tuple(experts if n >= first else None for n in range(layers(c)))

    return read


def rotary_dim(c: CheckedSettings) -> int:
    return int(c.count("rotary_dim", head_size(c)))


def turned_size(c: CheckedSettings) -> int:
    return int(c.count("qk_rope_head_dim"))


LATENT_BLOCK = {
    "attention.query": "self_attn.q_proj", "attention.query_down": "self_attn.q_a_proj",
    "attention.query_norm": "self_attn.q_a_layernorm",
    "attention.down": "self_attn.kv_a_proj_with_mqa", "attention.up": "self_attn.kv_b_proj",
    "attention.down_norm": "self_attn.kv_a_layernorm", "attention.output": "self_attn.o_proj",
    **GATED, **NORMS, **experts_names(),
}  # fmt: skip


def latent_block(c: CheckedSettings) -> Table:
    low = c.count("q_lora_rank", None) is not None
    return LATENT_BLOCK | ({"attention.query": "self_attn.q_b_proj"} if low else {})


GEMMA = LLAMA | {
    "norm": "rms+1", "activation": Field("hidden_activation hidden_act", "gelu_pytorch_tanh"),
    "head_size": Field("head_dim", 256), "tied": Field("tie_word_embeddings", True),
    "embedding_scale": lambda c: float(c.count(HIDDEN)) ** 0.5,
}  # fmt: skip
GEMMA2 = GEMMA | {
    "residual": "sandwich", "softcap": Field("attn_logit_softcapping", None),
    "score_cap": Field("final_logit_softcapping", None), "windows": windows(by_parity),
    "scale": lambda c: 1 / math.sqrt(c.real("query_pre_attn_scalar", 256)),
}  # fmt: skip
OLMO2 = LLAMA | {"residual": "inner", "query_norm": "all", "eps": Field("rms_norm_eps", 1e-5)}
QWEN3 = LLAMA | {
    "head_size": Field("head_dim", 128), "query_norm": "head", "windows": late_windows,
}  # fmt: skip
GRANITE = LLAMA | {
    "embedding_scale": Field("embedding_multiplier", 1.0),
    "scale": Field("attention_multiplier", 1.0),
    "residual_scale": Field("residual_multiplier", 1.0),
    "score_scale": lambda c: 1.0 / c.real("logits_scaling", 1.0),
}  # fmt: skip
COHERE = LLAMA | {
    "norm": "layer", "eps": Field("layer_norm_eps", 1e-5), "norm_bias": False,
    "residual": "parallel", "rotaries": rotary(interleaved=True),
    "tied": Field("tie_word_embeddings", True), "score_scale": Field("logit_scale", 0.0625),
    "query_norm": lambda c: "each head" if c.flag("use_qk_norm", False) else "",
}  # fmt: skip
NEOX = LAYER_NORMED | PLAIN_MLP | {
    "residual": lambda c: "parallel two" if c.flag("use_parallel_residual", True) else "pre",
    "rotaries": rotary(share=0.25), "query_bias": Field("attention_bias", True),
    "output_bias": Field("attention_bias", True), "activation": Field("hidden_act", "gelu"),
    "dropout": Field("hidden_dropout", 0.0),
}  # fmt: skip
PARTIAL_MOE = {**LLAMA_BLOCK, **experts_names()}
