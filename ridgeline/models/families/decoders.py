"""Language models that read from left to right.

Each row is what makes a family differ from the one it is written after: Llama for most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ridgeline.models.families.common import (
    HEADS,
    HIDDEN,
    bounded,
    every,
    head_size,
    late_windows,
    layers,
    rope_settings,
    rotary,
    rotary_by_layer,
    windows,
)
from ridgeline.models.families.family import Family
from ridgeline.models.names import BY_HEADS, Table, inside, joint
from ridgeline.models.parts import Experts, Latent, Rotary
from ridgeline.models.settings import Field, Settings

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
    block: Table | Callable[[Settings], Table] = LLAMA_BLOCK,
    stack: dict[str, str] | None = None,
    head: Table = HEAD,
    prefix: str = "model.",
    fixed: dict[str, tuple[Any, ...]] | None = None,
) -> Family:
    """A family of language models."""
    where, stack = block, stack or {}
    table = (lambda c: names(where(c), **stack)) if callable(where) else names(where, **stack)
    return Family("language", stem, parts, table, head, prefix, fixed or {})


def _by_parity(c: Settings) -> Callable[[int], bool]:
    """Windows in every other layer, beginning with the first."""
    return lambda layer: layer % 2 == 0


def _gpt_neo_windows(c: Settings) -> tuple[int | None, ...]:
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


def _opt_norm(c: Settings) -> bool:
    before: bool = c.flag("do_layer_norm_before", True)
    return before and not c.flag("_remove_final_layer_norm", False)


def _falcon_two_norms(c: Settings) -> bool:
    new = c.flag("new_decoder_architecture", False)
    return bool(new and c.count("num_ln_in_parallel_attn", 2) == 2)


def _falcon_residual(c: Settings) -> str:
    if _falcon_two_norms(c):
        return "parallel two"
    parallel = c.flag("new_decoder_architecture", False) or c.flag("parallel_attn", True)
    return "parallel" if parallel else "pre"


def _falcon_shared(c: Settings) -> int:
    if c.flag("new_decoder_architecture", False):
        return int(c.count("num_kv_heads n_head_kv", c.count(HEADS)))
    return 1 if c.flag("multi_query", True) else int(c.count(HEADS))


def _falcon_block(c: Settings) -> Table:
    first, second = (
        ("ln_attn", "ln_mlp") if _falcon_two_norms(c)
        else ("input_layernorm", "post_attention_layernorm")
    )  # fmt: skip
    return {
        **joint("self_attention.query_key_value", *QKV, groups=BY_HEADS),
        "attention.output": "self_attention.dense", "attention_norm": first,
        "feed_forward_norm": second, "feed_forward.up": "mlp.dense_h_to_4h",
        "feed_forward.down": "mlp.dense_4h_to_h",
    }  # fmt: skip


def _smollm3_rotary(c: Settings) -> tuple[Rotary | None, ...]:
    (turned,) = rotary(2_000_000.0)(c)
    period = c.count("no_rope_layer_interval", 4)
    listed = c.get("no_rope_layers", "Sequence[float]", None)
    flags = listed or [(n + 1) % period != 0 for n in range(layers(c))]
    return tuple(turned if flag else None for flag in flags)


def _mixture(c: Settings, inner: str, counts: str, **more: Any) -> tuple[Experts | None, ...]:
    count, chosen = bounded(c, counts), bounded(c, "num_experts_per_tok")
    return (Experts(count, chosen, c.count(inner), **more),)


def _sparse_steps(c: Settings, experts: Experts) -> tuple[Experts | None, ...]:
    """Experts in each so-manieth layer, but for some."""
    step, dense = c.count("decoder_sparse_step", 1), c.values.get("mlp_only_layers") or []
    return tuple(
        experts if n not in dense and (n + 1) % step == 0 else None for n in range(layers(c))
    )


def _qwen2_moe(c: Settings) -> tuple[Experts | None, ...]:
    (experts,) = _mixture(
        c, "moe_intermediate_size", "num_experts", normalised=c.flag("norm_topk_prob", False),
        shared_inner=c.count("shared_expert_intermediate_size"), shared_gate=True,
    )  # fmt: skip
    assert experts is not None
    return _sparse_steps(c, experts)


def _qwen3_moe(c: Settings) -> tuple[Experts | None, ...]:
    (experts,) = _mixture(
        c, "moe_intermediate_size", "num_experts num_local_experts",
        normalised=c.flag("norm_topk_prob", False),
    )  # fmt: skip
    assert experts is not None
    return _sparse_steps(c, experts)


def _latent(c: Settings) -> Latent:
    return Latent(
        c.count("kv_lora_rank"), c.count("q_lora_rank", None), c.count("qk_nope_head_dim"),
        c.count("qk_rope_head_dim"), c.count("v_head_dim"),
    )  # fmt: skip


def _latent_scale(c: Settings) -> float:
    """One over the root of a key's size, and more where the rotation was stretched."""
    size = c.count("qk_nope_head_dim") + c.count("qk_rope_head_dim")
    rope = rope_settings(c)
    factor, of_all = rope.real("factor", 1.0), rope.real("mscale_all_dim", 0.0)
    more: float = (0.1 * of_all * math.log(factor) + 1.0) ** 2 if factor > 1 else 1.0
    return more / math.sqrt(size)


def _deepseek(corrected: bool) -> Callable[[Settings], tuple[Experts | None, ...]]:
    def read(c: Settings) -> tuple[Experts | None, ...]:
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


def _rotary_dim(c: Settings) -> int:
    return int(c.count("rotary_dim", head_size(c)))


def _turned_size(c: Settings) -> int:
    return int(c.count("qk_rope_head_dim"))


LATENT_BLOCK = {
    "attention.query": "self_attn.q_proj", "attention.query_down": "self_attn.q_a_proj",
    "attention.query_norm": "self_attn.q_a_layernorm",
    "attention.down": "self_attn.kv_a_proj_with_mqa", "attention.up": "self_attn.kv_b_proj",
    "attention.down_norm": "self_attn.kv_a_layernorm", "attention.output": "self_attn.o_proj",
    **GATED, **NORMS, **experts_names(),
}  # fmt: skip


def _latent_block(c: Settings) -> Table:
    low = c.count("q_lora_rank", None) is not None
    return LATENT_BLOCK | ({"attention.query": "self_attn.q_b_proj"} if low else {})


GEMMA = LLAMA | {
    "norm": "rms+1", "activation": Field("hidden_activation hidden_act", "gelu_pytorch_tanh"),
    "head_size": Field("head_dim", 256), "tied": Field("tie_word_embeddings", True),
    "embedding_scale": lambda c: float(c.count(HIDDEN)) ** 0.5,
}  # fmt: skip
GEMMA2 = GEMMA | {
    "residual": "sandwich", "softcap": Field("attn_logit_softcapping", None),
    "score_cap": Field("final_logit_softcapping", None), "windows": windows(_by_parity),
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

DECODERS: dict[str, Family] = {
    "gpt2": decoder(
        "GPT2", GPT,
        {**joint("attn.c_attn", *QKV, transposed=True), "attention_norm": "ln_1",
         "feed_forward_norm": "ln_2",
         **joint("attn.c_proj", "attention.output", transposed=True),
         **joint("mlp.c_fc", "feed_forward.up", transposed=True),
         **joint("mlp.c_proj", "feed_forward.down", transposed=True)},
        GPT_STACK, prefix="transformer.",
        fixed={"add_cross_attention": (False,), "reorder_and_upcast_attn": (False, True),
               "scale_attn_by_inverse_layer_idx": (False,), "scale_attn_weights": (True,)},
    ),
    "llama": decoder("Llama", fixed={"pretraining_tp": (1,)}),
    "qwen2": decoder("Qwen2", LLAMA | {
        "query_bias": True, "output_bias": False, "windows": late_windows,
        "context": Field("max_position_embeddings", 32768),
    }),
    "qwen3": decoder("Qwen3", QWEN3),
    "qwen2_moe": decoder(
        "Qwen2Moe",
        LLAMA | {"query_bias": Field("qkv_bias", True), "output_bias": False,
                 "windows": late_windows, "experts": _qwen2_moe},
        {**LLAMA_BLOCK, **experts_names(shared="shared_expert")},
    ),
    "qwen3_moe": decoder(
        "Qwen3Moe",
        QWEN3 | {"experts": _qwen3_moe, "head_size": Field("head_dim", None),
                 "windows": lambda c: windows()(c) if c.flag("use_sliding_window", False) else ()},
        PARTIAL_MOE,
    ),
    "mistral": decoder("Mistral", LLAMA | {"windows": windows()}),
    "mixtral": decoder(
        "Mixtral",
        LLAMA | {
            "windows": windows(), "eps": Field("rms_norm_eps", 1e-5), "rotaries": rotary(1e6),
            "experts": lambda c: _mixture(
                c, "intermediate_size", "num_local_experts", normalised=True
            ),
        },
        {**ATTENTION, **NORMS, **experts_names("block_sparse_moe", "w1", "w3", "w2")},
    ),
    "gemma": decoder("Gemma", GEMMA, fixed={"use_bidirectional_attention": (None, False)}),
    "gemma2": decoder(
        "Gemma2", GEMMA2, {**ATTENTION, **GATED, **SANDWICH},
        fixed={"use_bidirectional_attention": (None, False)},
    ),
    "gemma3_text": decoder(
        "Gemma3",
        GEMMA2 | {
            "windows": windows(every("sliding_window_pattern", 6)), "query_norm": "head",
            "rotaries": rotary_by_layer(every("sliding_window_pattern", 6), 1e6, 1e4),
        },
        {**ATTENTION, **GATED, **SANDWICH}, fixed={"use_bidirectional_attention": (None, False)},
    ),
    "phi": decoder(
        "Phi",
        LAYER_NORMED | PLAIN_MLP | {
            "residual": "parallel", "rotaries": rotary(share=0.5), "query_bias": True,
            "output_bias": True, "activation": Field("hidden_act", "gelu_new"), "head_bias": True,
            "query_norm": lambda c: "head" if c.flag("qk_layernorm", False) else "",
            "query_norm_bias": True, "dropout": Field("resid_pdrop", 0.0),
        },
        {**ATTENTION, **NORMS, "attention.output": "self_attn.dense", "feed_forward.up": "mlp.fc1",
         "feed_forward.down": "mlp.fc2", "attention.query_norm": "self_attn.q_layernorm",
         "attention.key_norm": "self_attn.k_layernorm"},
        {"norm": "final_layernorm"},
    ),
    "phi3": decoder(
        "Phi3",
        LLAMA | {"windows": windows(), "eps": Field("rms_norm_eps", 1e-5),
                 "dropout": Field("resid_pdrop", 0.0)},
        {**LLAMA_BLOCK, **joint("self_attn.qkv_proj", *QKV),
         **joint("mlp.gate_up_proj", "feed_forward.gate", "feed_forward.up")},
    ),
    "olmo": decoder("Olmo", LLAMA | {
        "norm": "layer", "eps": 1e-5, "norm_weight": False, "norm_bias": False,
        "clip": Field("clip_qkv", None),
    }),
    "olmo2": decoder("Olmo2", OLMO2, {**ATTENTION, **GATED, **INNER}),
    "olmo3": decoder(
        "Olmo3",
        OLMO2 | {"windows": windows(every("sliding_window_pattern", 4)),
                 "rotaries": rotary_by_layer(every("sliding_window_pattern", 4), 5e5)},
        {**ATTENTION, **GATED, **INNER},
    ),
    "olmoe": decoder(
        "Olmoe",
        LLAMA | {
            "query_norm": "all", "clip": Field("clip_qkv", None),
            "eps": Field("rms_norm_eps", 1e-5),
            "experts": lambda c: _mixture(
                c, "intermediate_size", "num_experts", normalised=c.flag("norm_topk_prob", False)
            ),
        },
        PARTIAL_MOE,
    ),
    "gpt_neox": decoder(
        "GPTNeoX", NEOX,
        {**NORMS, **joint("attention.query_key_value", *QKV, groups=BY_HEADS),
         "attention.output": "attention.dense", "feed_forward.up": "mlp.dense_h_to_4h",
         "feed_forward.down": "mlp.dense_4h_to_h"},
        {"tokens": "embed_in", "norm": "final_layer_norm"},
        {"head": "embed_out", "classifier": "score"}, "gpt_neox.",
    ),
    "falcon": decoder(
        "Falcon",
        LAYER_NORMED | {
            "eps": Field("layer_norm_epsilon", 1e-5), "gated": False,
            "activation": Field("activation", "gelu"), "residual": _falcon_residual,
            "shared_heads": _falcon_shared, "query_bias": Field("bias", False),
            "output_bias": Field("bias", False), "up_bias": Field("bias", False),
            "inner": Field("ffn_hidden_size", lambda c: 4 * c.count(HIDDEN)),
            "positions": lambda c: "alibi" if c.flag("alibi", False) else "",
            "alibi_scale": lambda c: head_size(c) ** -0.5,
            "rotaries": lambda c: () if c.flag("alibi", False) else rotary()(c),
            "tied": Field("tie_word_embeddings", True), "dropout": Field("hidden_dropout", 0.0),
        },
        _falcon_block, {"tokens": "word_embeddings", "blocks": "h.{}", "norm": "ln_f"},
        prefix="transformer.",
    ),
    "starcoder2": decoder(
        "Starcoder2",
        LAYER_NORMED | {
            "eps": Field("norm_epsilon", 1e-5), "gated": False, "windows": windows(),
            "query_bias": Field("use_bias", True), "output_bias": Field("use_bias", True),
            "up_bias": Field("use_bias", True), "tied": Field("tie_word_embeddings", True),
            "activation": Field("hidden_act", "gelu_pytorch_tanh"),
            "dropout": Field("residual_dropout", 0.0),
        },
        {**ATTENTION, **NORMS, "feed_forward.up": "mlp.c_fc", "feed_forward.down": "mlp.c_proj"},
    ),
    "stablelm": decoder(
        "StableLm",
        LAYER_NORMED | {
            "query_bias": Field("use_qkv_bias", False), "output_bias": False,
            "rotaries": rotary(share=0.25), "dropout": Field("hidden_dropout", 0.0),
            "residual": lambda c: "parallel" if c.flag("use_parallel_residual", False) else "pre",
            "query_norm": lambda c: "each head" if c.flag("qk_layernorm", False) else "",
        },
        {**LLAMA_BLOCK, **{
            f"attention.{ours}_norm.weight": joint(
                f"self_attn.{theirs}_layernorm.norms.{{}}.weight", ours, numbered=True
            )[ours] for ours, theirs in (("query", "q"), ("key", "k"))
        }},
    ),
    "gptj": decoder(
        "GPTJ",
        GPT | {
            "positions": "", "residual": "parallel", "query_bias": False, "output_bias": False,
            "rotaries": rotary(interleaved=True, size=_rotary_dim),
            "head_bias": True, "tied": Field("tie_word_embeddings", False),
        },
        GPT_BLOCK | {"feed_forward.up": "mlp.fc_in", "feed_forward.down": "mlp.fc_out"},
        GPT_STACK, prefix="transformer.",
    ),
    "gpt_neo": decoder(
        "GPTNeo", GPT | {"query_bias": False, "scale": 1.0, "windows": _gpt_neo_windows},
        GPT_BLOCK | {
            f"attention.{ours}": f"attn.attention.{theirs}_proj"
            for ours, theirs in zip(("query", "key", "value", "output"), ("q", "k", "v", "out"))
        },
        GPT_STACK, prefix="transformer.",
    ),
    "gpt_bigcode": decoder(
        "GPTBigCode",
        GPT | {
            "shared_heads": lambda c: 1 if c.flag("multi_query", True) else c.count(HEADS),
            "activation": Field("activation_function", "gelu_pytorch_tanh"),
        },
        GPT_BLOCK | joint("attn.c_attn", *QKV, groups=BY_HEADS)
        | {"attention.output": "attn.c_proj"},
        GPT_STACK, prefix="transformer.",
        fixed={"add_cross_attention": (False,), "scale_attn_weights": (True,)},
    ),
    "codegen": decoder(
        "CodeGen",
        GPT | {
            "positions": "", "residual": "parallel", "query_bias": False, "output_bias": False,
            "rotaries": rotary(interleaved=True, size=_rotary_dim),
            "head_bias": True, "tied": Field("tie_word_embeddings", False),
        },
        GPT_BLOCK | joint("attn.qkv_proj", QKV[0], QKV[2], QKV[1], groups=4)
        | {"feed_forward.up": "mlp.fc_in", "feed_forward.down": "mlp.fc_out"},
        GPT_STACK, prefix="transformer.",
    ),
    "opt": decoder(
        "OPT",
        GPT | {
            "inner": Field("ffn_dim"), "eps": 1e-5, "position_offset": 2, "counted": True,
            "activation": Field("activation_function", "relu"), "final_norm": _opt_norm,
            "residual": lambda c: "pre" if c.flag("do_layer_norm_before", True) else "post",
            "norm_weight": Field("layer_norm_elementwise_affine", True),
            "embedding_width": Field("word_embed_proj_dim", None),
            "query_bias": Field("enable_bias", True), "output_bias": Field("enable_bias", True),
            "up_bias": Field("enable_bias", True), "dropout": Field("dropout", 0.1),
            "spread": Field("init_std", 0.02),
        },
        {**ATTENTION, "attention.output": "self_attn.out_proj", "feed_forward.up": "fc1",
         "feed_forward.down": "fc2", "attention_norm": "self_attn_layer_norm",
         "feed_forward_norm": "final_layer_norm"},
        {"tokens": "decoder.embed_tokens", "blocks": "decoder.layers.{}",
         "norm": "decoder.final_layer_norm", "positions": "decoder.embed_positions",
         "project_in": "decoder.project_in", "project_out": "decoder.project_out"},
    ),
    "bloom": decoder(
        "Bloom",
        GPT | {
            "positions": "alibi", "embedding_norm": True, "inner": lambda c: 4 * c.count(HIDDEN),
            "activation": "gelu_new", "context": 1 << 30, "dropout": Field("hidden_dropout", 0.0),
        },
        {**NORMS, **joint("self_attention.query_key_value", *QKV, groups=BY_HEADS),
         "attention.output": "self_attention.dense", "feed_forward.up": "mlp.dense_h_to_4h",
         "feed_forward.down": "mlp.dense_4h_to_h"},
        {"tokens": "word_embeddings", "blocks": "h.{}", "norm": "ln_f",
         "embedding_norm": "word_embeddings_layernorm"},
        prefix="transformer.", fixed={"apply_residual_connection_post_layernorm": (False,)},
    ),
    "granite": decoder("Granite", GRANITE),
    "cohere": decoder("Cohere", COHERE),
    "cohere2": decoder("Cohere2", COHERE | {
        "query_norm": "", "windows": windows(every("sliding_window_pattern", 4)),
        "rotaries": rotary_by_layer(
            every("sliding_window_pattern", 4), 1e4, bare=True, interleaved=True
        ),
    }),
    "nemotron": decoder(
        "Nemotron",
        LLAMA | {"norm": "layer+1", "eps": Field("norm_eps", 1e-5), "gated": False,
                 "activation": Field("hidden_act", "relu2"), "rotaries": rotary(share=0.5)},
    ),
    "arcee": decoder("Arcee", LLAMA | {
        "gated": False, "activation": Field("hidden_act", "relu2"),
        "eps": Field("rms_norm_eps", 1e-5),
    }),
    "smollm3": decoder("SmolLM3", LLAMA | {
        "rotaries": _smollm3_rotary, "tied": Field("tie_word_embeddings", True),
        "windows": lambda c: windows(lambda c: lambda n: False)(c)
        if c.flag("use_sliding_window", False) else (),
    }),
    "seed_oss": decoder("SeedOss", LLAMA | {
        "query_bias": Field("attention_bias", True), "dropout": Field("residual_dropout", 0.1),
        "output_bias": Field("attention_out_bias", False),
    }),
    "ernie4_5": decoder("Ernie4_5", LLAMA | {
        "query_bias": Field("use_bias", False), "output_bias": Field("use_bias", False),
        "up_bias": Field("use_bias", False), "eps": Field("rms_norm_eps", 1e-5),
        "rotaries": rotary(500_000.0, interleaved=True), "tied": Field("tie_word_embeddings", True),
    }),
    "helium": decoder("Helium", LLAMA | {
        "eps": Field("rms_norm_eps", 1e-8), "rotaries": rotary(100_000.0, interleaved=True),
        "output_bias": False,
    }),
    "hunyuan_v1_dense": decoder(
        "HunYuanDenseV1",
        LLAMA | {"query_norm": "head", "norm_turned": True, "eps": Field("rms_norm_eps", 1e-5)},
        {**LLAMA_BLOCK, "attention.query_norm": "self_attn.query_layernorm",
         "attention.key_norm": "self_attn.key_layernorm"},
    ),
    "glm": decoder(
        "Glm",
        LLAMA | {
            "query_bias": Field("attention_bias", True), "output_bias": False,
            "rotaries": rotary(share=0.5, interleaved=True),
            "eps": Field("rms_norm_eps", 1.5625e-07),
        },
        {**LLAMA_BLOCK, **joint("mlp.gate_up_proj", "feed_forward.gate", "feed_forward.up")},
    ),
    "glm4": decoder(
        "Glm4",
        LLAMA | {
            "query_bias": Field("attention_bias", True), "output_bias": False,
            "rotaries": rotary(share=0.5, interleaved=True), "residual": "sandwich",
            "eps": Field("rms_norm_eps", 1.5625e-07),
        },
        {**LLAMA_BLOCK, **joint("mlp.gate_up_proj", "feed_forward.gate", "feed_forward.up"),
         "attention_after": "post_self_attn_layernorm", "feed_forward_after": "post_mlp_layernorm"},
    ),
    "exaone4": decoder(
        "Exaone4",
        LLAMA | {
            "residual": "inner", "query_norm": "head", "eps": Field("rms_norm_eps", 1e-5),
            "windows": windows(every("sliding_window_pattern", 4)),
            "rotaries": rotary_by_layer(every("sliding_window_pattern", 4), 1e4, bare=True),
        },
        {**ATTENTION, **GATED, **INNER},
    ),
    "deepseek_v2": decoder(
        "DeepseekV2",
        LLAMA | {
            "shared_heads": None, "head_size": None, "latent": _latent, "experts": _deepseek(False),
            "rotaries": rotary(interleaved=True, size=_turned_size), "scale": _latent_scale,
        },
        _latent_block,
    ),
    "deepseek_v3": decoder(
        "DeepseekV3",
        LLAMA | {
            "shared_heads": None, "head_size": None, "latent": _latent, "experts": _deepseek(True),
            "rotaries": lambda c: rotary(
                interleaved=c.flag("rope_interleave", True), size=_turned_size
            )(c), "scale": _latent_scale,
        },
        _latent_block,
    ),
}  # fmt: skip
