"""Language models that read from left to right.

Each row is what makes a family differ from the one it is written after: Llama for most.
"""

from __future__ import annotations

from ridgeline.models.families.common import (
    HEADS,
    HIDDEN,
    every,
    head_size,
    late_windows,
    rotary,
    rotary_by_layer,
    windows,
)
from ridgeline.models.families.decoder_parts import (
    ATTENTION,
    COHERE,
    GATED,
    GEMMA,
    GEMMA2,
    GPT,
    GPT_BLOCK,
    GPT_STACK,
    GRANITE,
    INNER,
    LAYER_NORMED,
    LLAMA,
    LLAMA_BLOCK,
    NEOX,
    NORMS,
    OLMO2,
    PARTIAL_MOE,
    PLAIN_MLP,
    QKV,
    QWEN3,
    SANDWICH,
    decoder,
    deepseek,
    experts_names,
    falcon_block,
    falcon_residual,
    falcon_shared,
    gpt_neo_windows,
    latent,
    latent_block,
    latent_scale,
    mixture,
    opt_norm,
    qwen2_moe,
    qwen3_moe,
    rotary_dim,
    smollm3_rotary,
    turned_size,
)
from ridgeline.models.families.family import Family
from ridgeline.models.names import BY_HEADS, joint
from ridgeline.models.settings import Field

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
                 "windows": late_windows, "experts": qwen2_moe},
        {**LLAMA_BLOCK, **experts_names(shared="shared_expert")},
    ),
    "qwen3_moe": decoder(
        "Qwen3Moe",
        QWEN3 | {"experts": qwen3_moe, "head_size": Field("head_dim", None),
                 "windows": lambda c: windows()(c) if c.flag("use_sliding_window", False) else ()},
        PARTIAL_MOE,
    ),
    "mistral": decoder("Mistral", LLAMA | {"windows": windows()}),
    "mixtral": decoder(
        "Mixtral",
        LLAMA | {
            "windows": windows(), "eps": Field("rms_norm_eps", 1e-5), "rotaries": rotary(1e6),
            "experts": lambda c: mixture(
                c, "intermediate_size", "num_local_experts", normalised=True
            ),
        },
        {**ATTENTION, **NORMS, **experts_names("block_sparse_moe", "w1", "w3", "w2")},
    ),
    "ministral": decoder("Ministral", LLAMA | {"windows": windows(lambda c: lambda layer: True)}),
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
            "experts": lambda c: mixture(
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
            "activation": Field("activation", "gelu"), "residual": falcon_residual,
            "shared_heads": falcon_shared, "query_bias": Field("bias", False),
            "output_bias": Field("bias", False), "up_bias": Field("bias", False),
            "inner": Field("ffn_hidden_size", lambda c: 4 * c.count(HIDDEN)),
            "positions": lambda c: "alibi" if c.flag("alibi", False) else "",
            "alibi_scale": lambda c: head_size(c) ** -0.5,
            "rotaries": lambda c: () if c.flag("alibi", False) else rotary()(c),
            "tied": Field("tie_word_embeddings", True), "dropout": Field("hidden_dropout", 0.0),
        },
        falcon_block, {"tokens": "word_embeddings", "blocks": "h.{}", "norm": "ln_f"},
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
            "rotaries": rotary(interleaved=True, size=rotary_dim),
            "head_bias": True, "tied": Field("tie_word_embeddings", False),
        },
        GPT_BLOCK | {"feed_forward.up": "mlp.fc_in", "feed_forward.down": "mlp.fc_out"},
        GPT_STACK, prefix="transformer.",
    ),
    "gpt_neo": decoder(
        "GPTNeo", GPT | {"query_bias": False, "scale": 1.0, "windows": gpt_neo_windows},
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
            "rotaries": rotary(interleaved=True, size=rotary_dim),
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
            "activation": Field("activation_function", "relu"), "final_norm": opt_norm,
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
    "biogpt": decoder(
        "BioGpt",
        GPT | {
            "inner": Field("intermediate_size"), "eps": 1e-5, "position_offset": 2,
            "activation": Field("hidden_act", "gelu"), "dropout": Field("hidden_dropout_prob", 0.1),
            "attention_dropout": Field("attention_probs_dropout_prob", 0.1),
            "embedding_scale": lambda c: float(c.count(HIDDEN)) ** 0.5
            if c.flag("scale_embedding", True) else 1.0,
        },
        {**ATTENTION, "attention.output": "self_attn.out_proj", "feed_forward.up": "fc1",
         "feed_forward.down": "fc2", "attention_norm": "self_attn_layer_norm",
         "feed_forward_norm": "final_layer_norm"},
        {"norm": "layer_norm", "positions": "embed_positions"},
        {"head": "output_projection", "classifier": "score"}, "biogpt.",
    ),
    "persimmon": decoder(
        "Persimmon",
        LAYER_NORMED | PLAIN_MLP | {
            "rotaries": rotary(share=0.5), "query_bias": True, "output_bias": True,
            "activation": Field("hidden_act", "relu2"), "dropout": Field("hidden_dropout", 0.0),
            "query_norm": lambda c: "head" if c.flag("qk_layernorm", True) else "",
            "query_norm_bias": True,
        },
        {**NORMS, **joint("self_attn.query_key_value", *QKV, groups=BY_HEADS),
         "attention.output": "self_attn.dense", "feed_forward.up": "mlp.dense_h_to_4h",
         "feed_forward.down": "mlp.dense_4h_to_h",
         "attention.query_norm": "self_attn.q_layernorm",
         "attention.key_norm": "self_attn.k_layernorm"},
        {"norm": "final_layernorm"},
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
        "rotaries": smollm3_rotary, "tied": Field("tie_word_embeddings", True),
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
    "glm4_moe": decoder(
        "Glm4Moe",
        LLAMA | {
            "output_bias": False, "rotaries": rotary(share=0.5), "experts": deepseek(True),
            "eps": Field("rms_norm_eps", 1e-5),
            "query_norm": lambda c: "head" if c.flag("use_qk_norm", False) else "",
        },
        PARTIAL_MOE,
    ),
    "dots1": decoder(
        "Dots1",
        QWEN3 | {
            "head_size": Field("head_dim", None), "experts": deepseek(True),
            "windows": windows(lambda c: lambda layer: layer >= c.count("max_window_layers", 62)),
        },
        PARTIAL_MOE,
    ),
    "deepseek_v2": decoder(
        "DeepseekV2",
        LLAMA | {
            "shared_heads": None, "head_size": None, "latent": latent, "experts": deepseek(False),
            "rotaries": rotary(interleaved=True, size=turned_size), "scale": latent_scale,
        },
        latent_block,
    ),
    "deepseek_v3": decoder(
        "DeepseekV3",
        LLAMA | {
            "shared_heads": None, "head_size": None, "latent": latent, "experts": deepseek(True),
            "rotaries": lambda c: rotary(
                interleaved=c.flag("rope_interleave", True), size=turned_size
            )(c), "scale": latent_scale,
        },
        latent_block,
    ),
}  # fmt: skip
