"""Small random models of every family, as settings of Hugging Face's configurations."""

from __future__ import annotations

from typing import Any

WORDS = 50
_NOTHING: Any = object()


def _llama(**settings: Any) -> dict[str, Any]:
    plain = {
        "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
        "initializer_range": 0.3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    return {k: v for k, v in {**plain, **settings}.items() if v is not _NOTHING}


def _gpt(**settings: Any) -> dict[str, Any]:
    return {
        "vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
        "initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": 1, **settings,
    }  # fmt: skip


def _falcon(**settings: Any) -> dict[str, Any]:
    return {
        "vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "initializer_range": 0.3, **settings,
    }  # fmt: skip


def _opt(**settings: Any) -> dict[str, Any]:
    return {
        "vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "ffn_dim": 48,
        "num_attention_heads": 4, "max_position_embeddings": 64, "init_std": 0.3,
        "word_embed_proj_dim": 32, **settings,
    }  # fmt: skip


def _rope(kind: str, **settings: Any) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": 1e4, **settings}


_MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 20}
_LATENT = {
    "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 12, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 8, "first_k_dense_replace": 1,
    "n_group": 4, "topk_group": 2, **_MOE,
}  # fmt: skip
_LONG = {"short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [2.0, 3.0, 4.0, 5.0]}
_STRETCHED = _rope("yarn", factor=4.0, original_max_position_embeddings=16)
_DEEP = _rope(
    "yarn", factor=40.0, mscale=1.0, mscale_all_dim=1.0, original_max_position_embeddings=16
)

# a name, the type of the model, its settings
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2": ("qwen2", _llama()),
    "qwen3": ("qwen3", _llama(head_dim=16)),
    "mistral": ("mistral", _llama(sliding_window=4)),
    "gemma": ("gemma", _llama(head_dim=16)),
    "gemma2": ("gemma2", _llama(head_dim=16, sliding_window=4, query_pre_attn_scalar=20)),
    "gemma3": (
        "gemma3_text",
        _llama(head_dim=16, sliding_window=4, query_pre_attn_scalar=20, num_hidden_layers=7),
    ),
    "phi": ("phi", _llama()),
    "phi3": ("phi3", _llama(sliding_window=5)),
    "olmo": ("olmo", _llama(clip_qkv=1.0)),
    "olmo2": ("olmo2", _llama()),
    "mixtral": ("mixtral", _llama(num_local_experts=4, num_experts_per_tok=2)),
    "gpt_neox": ("gpt_neox", _llama(num_key_value_heads=_NOTHING)),
    "falcon": ("falcon", _falcon()),
    "deepseek_v3": ("deepseek_v3", _llama(**_LATENT)),
    "mamba": (
        "mamba",
        {
            "vocab_size": WORDS,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "state_size": 4,
            "initializer_range": 0.3,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
}
MORE_DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama yarn": ("llama", _llama(rope_parameters=_STRETCHED)),
    "llama linear": ("llama", _llama(rope_parameters=_rope("linear", factor=4.0))),
    "llama dynamic": ("llama", _llama(rope_parameters=_rope("dynamic", factor=4.0))),
    "qwen2 windows": (
        "qwen2", _llama(use_sliding_window=True, sliding_window=4, max_window_layers=1)
    ),
    "phi with norms": ("phi", _llama(qk_layernorm=True)),
    "phi3 long": (
        "phi3",
        _llama(original_max_position_embeddings=8, rope_parameters=_rope("longrope", **_LONG)),
    ),
    "phi3 short": (
        "phi3",
        _llama(original_max_position_embeddings=32, rope_parameters=_rope("longrope", **_LONG)),
    ),
    "olmo3": ("olmo3", _llama(sliding_window=4, num_hidden_layers=4)),
    "olmoe": ("olmoe", _llama(num_experts=8, num_experts_per_tok=2)),
    "gpt_neox in order": (
        "gpt_neox", _llama(num_key_value_heads=_NOTHING, use_parallel_residual=False)
    ),
    "falcon new": (
        "falcon", _falcon(num_kv_heads=2, new_decoder_architecture=True, bias=True)
    ),
    "falcon old": (
        "falcon", _falcon(multi_query=False, alibi=True, parallel_attn=False, bias=True)
    ),
    "ministral": ("ministral", _llama(sliding_window=4, head_dim=8)),
    "ministral in part": (
        "ministral",
        _llama(sliding_window=4, head_dim=8, layer_types=["full_attention", "sliding_attention"]),
    ),
    "biogpt": ("biogpt", _llama(num_key_value_heads=_NOTHING)),
    "persimmon": ("persimmon", _llama(num_key_value_heads=_NOTHING)),
    "persimmon without norms": (
        "persimmon", _llama(num_key_value_heads=_NOTHING, qk_layernorm=False)
    ),
    "glm4_moe": (
        "glm4_moe", _llama(n_routed_experts=6, n_group=2, topk_group=1, use_qk_norm=True, **_MOE)
    ),
    "glm4_moe with biases": (
        "glm4_moe", _llama(n_routed_experts=6, attention_bias=True, head_dim=8, **_MOE)
    ),
    "dots1": (
        "dots1",
        _llama(n_routed_experts=6, n_shared_experts=2, first_k_dense_replace=1, **_MOE,
               sliding_window=4, max_window_layers=1),
    ),
    "starcoder2": ("starcoder2", _llama(sliding_window=4)),
    "stablelm": ("stablelm", _llama()),
    "stablelm with norms": (
        "stablelm", _llama(qk_layernorm=True, use_parallel_residual=True, use_qkv_bias=True)
    ),
    "gptj": ("gptj", _gpt(rotary_dim=4)),
    "gpt_neo": (
        "gpt_neo",
        {"vocab_size": WORDS, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
         "attention_types": [[["global", "local"], 1]], "window_size": 4, "bos_token_id": 0,
         "max_position_embeddings": 64, "initializer_range": 0.3, "eos_token_id": 1},
    ),
    "gpt_bigcode": ("gpt_bigcode", _gpt()),
    "gpt_bigcode heads": ("gpt_bigcode", _gpt(multi_query=False)),
    "codegen": ("codegen", _gpt(rotary_dim=4)),
    "opt": ("opt", _opt()),
    "opt post": ("opt", _opt(word_embed_proj_dim=16, do_layer_norm_before=False)),
    "bloom": (
        "bloom",
        {"vocab_size": WORDS, "hidden_size": 36, "n_layer": 2, "n_head": 6,
         "initializer_range": 0.3},
    ),
    "granite": (
        "granite",
        _llama(embedding_multiplier=2.0, logits_scaling=3.0, residual_multiplier=0.5,
               attention_multiplier=0.3),
    ),
    "cohere": ("cohere", _llama()),
    "cohere with norms": ("cohere", _llama(use_qk_norm=True)),
    "cohere2": ("cohere2", _llama(sliding_window=4, num_hidden_layers=4)),
    "nemotron": ("nemotron", _llama()),
    "arcee": ("arcee", _llama()),
    "smollm3": ("smollm3", _llama(num_hidden_layers=4)),
    "seed_oss": ("seed_oss", _llama(head_dim=8)),
    "ernie4_5": ("ernie4_5", _llama(head_dim=8)),
    "helium": ("helium", _llama(head_dim=8)),
    "hunyuan": ("hunyuan_v1_dense", _llama(head_dim=8)),
    "glm": ("glm", _llama(head_dim=8)),
    "glm4": ("glm4", _llama(head_dim=8)),
    "exaone4": ("exaone4", _llama(sliding_window=4, num_hidden_layers=4)),
    "qwen2_moe": (
        "qwen2_moe",
        _llama(num_experts=6, shared_expert_intermediate_size=24, decoder_sparse_step=2, **_MOE),
    ),
    "qwen3_moe": (
        "qwen3_moe",
        _llama(num_experts=6, norm_topk_prob=True, head_dim=16, mlp_only_layers=[1], **_MOE),
    ),
    "deepseek_v2": ("deepseek_v2", _llama(**_LATENT, topk_method="group_limited_greedy")),
    "deepseek_v2 lite": ("deepseek_v2", _llama(**{**_LATENT, "q_lora_rank": None})),
    "deepseek_v3 yarn": ("deepseek_v3", _llama(**_LATENT, rope_parameters=_DEEP)),
}  # fmt: skip


def _bert(**settings: Any) -> dict[str, Any]:
    return {
        "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 32, "initializer_range": 0.3,
        **settings,
    }  # fmt: skip


# the type of the model, its settings, and the forms that it is tried in
_FORMS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification",
          "ForQuestionAnswering")  # fmt: skip
ENCODERS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "bert": ("Bert", _bert(), _FORMS),
    "roberta": ("Roberta", _bert(pad_token_id=1), _FORMS),
    "xlm-roberta": ("XLMRoberta", _bert(), _FORMS),
    "camembert": ("Camembert", _bert(), _FORMS),
    "ernie": ("Ernie", _bert(), _FORMS),
    "data2vec-text": ("Data2VecText", _bert(pad_token_id=1), _FORMS),
    "distilbert": (
        "DistilBert",
        {"vocab_size": WORDS, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4,
         "max_position_embeddings": 32, "initializer_range": 0.3},
        _FORMS,
    ),
    "electra": ("Electra", _bert(embedding_size=16), (*_FORMS, "ForPreTraining")),
    "albert": ("Albert", _bert(embedding_size=16), _FORMS),
    "mpnet": ("MPNet", _bert(), _FORMS),
}  # fmt: skip


def _image(**settings: Any) -> dict[str, Any]:
    return {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "image_size": 16, "patch_size": 4, "initializer_range": 0.3,
        **settings,
    }  # fmt: skip


_TEXT = _bert(max_position_embeddings=16, eos_token_id=2)
_TOWERS = {"text_config": _TEXT, "vision_config": _image(), "projection_dim": 8}
# the type of the model, its class, its settings, and what it is given
IMAGES: list[tuple[str, str, dict[str, Any], str]] = [
    ("deit", "DeiTModel", _image(), "images"),
    ("deit", "DeiTForImageClassification", _image(), "images"),
    ("deit", "DeiTForImageClassificationWithTeacher", _image(num_labels=3), "images"),
    ("dinov2", "Dinov2Model", _image(mlp_ratio=2), "images"),
    ("dinov2", "Dinov2ForImageClassification", _image(mlp_ratio=2), "images"),
    ("clip_vision_model", "CLIPVisionModel", _image(), "images"),
    ("clip_vision_model", "CLIPVisionModelWithProjection", _image(projection_dim=8), "images"),
    ("clip_text_model", "CLIPTextModel", _TEXT, "text"),
    ("clip_text_model", "CLIPTextModelWithProjection", _TEXT | {"projection_dim": 8}, "text"),
    ("clip", "CLIPModel", _TOWERS, "both"),
    ("siglip_vision_model", "SiglipVisionModel", _image(), "images"),
    ("siglip_text_model", "SiglipTextModel", _TEXT, "text"),
    ("siglip", "SiglipModel", _TOWERS, "both"),
]


def _bart(**settings: Any) -> dict[str, Any]:
    return {
        "vocab_size": WORDS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48, "max_position_embeddings": 32, "init_std": 0.3, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3,
        "forced_eos_token_id": None, **settings,
    }  # fmt: skip


_T5 = {
    "vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0, "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 10,
}  # fmt: skip
_WHISPER = {"num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 16}
# the type of the model, its class, its settings
SEQUENCES: list[tuple[str, str, dict[str, Any]]] = [
    ("t5", "T5ForConditionalGeneration", _T5),
    ("t5", "T5ForConditionalGeneration", _T5 | {"feed_forward_proj": "gated-gelu"}),
    ("t5", "T5EncoderModel", _T5),
    ("t5", "T5Model", _T5),
    ("mt5", "MT5ForConditionalGeneration", _T5 | {"feed_forward_proj": "gated-gelu"}),
    ("mt5", "MT5EncoderModel", _T5 | {"feed_forward_proj": "relu"}),
    ("bart", "BartForConditionalGeneration", _bart(scale_embedding=True)),
    ("mbart", "MBartForConditionalGeneration", _bart()),
    ("marian", "MarianMTModel", _bart(scale_embedding=True)),
    ("pegasus", "PegasusForConditionalGeneration", _bart()),
    ("whisper", "WhisperForConditionalGeneration", _bart(**_WHISPER)),
]


_SPEECH = {
    "vocab_size": 20, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "conv_dim": [8, 8], "conv_stride": [5, 2], "conv_kernel": [10, 3],
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 2,
    "initializer_range": 0.3, "pad_token_id": 0,
}  # fmt: skip
_STABLE = _SPEECH | {
    "do_stable_layer_norm": True, "feat_extract_norm": "layer", "conv_bias": True,
}  # fmt: skip
_SWIN = {
    "image_size": 16, "patch_size": 1, "embed_dim": 8, "depths": [2, 2, 1], "num_heads": [2, 4, 4],
    "window_size": 4, "initializer_range": 0.3,
}  # fmt: skip
_CONVNEXT = {
    "hidden_sizes": [8, 12], "depths": [1, 2], "num_stages": 2, "layer_scale_init_value": 0.5,
    "initializer_range": 0.3, "patch_size": 2,
}  # fmt: skip
# the type of the model, its class, its settings, and what it is given
OTHERS: list[tuple[str, str, dict[str, Any], str]] = [
    ("convnext", "ConvNextForImageClassification", _CONVNEXT, "images"),
    ("convnext", "ConvNextModel", _CONVNEXT, "images"),
    ("convnextv2", "ConvNextV2ForImageClassification", _CONVNEXT, "images"),
    ("swin", "SwinForImageClassification", _SWIN, "images"),
    ("swin", "SwinModel", _SWIN, "images"),
    ("wav2vec2", "Wav2Vec2ForCTC", _SPEECH, "sound"),
    ("wav2vec2", "Wav2Vec2ForCTC", _STABLE, "masked sound"),
    ("wav2vec2", "Wav2Vec2Model", _STABLE, "masked sound"),
    ("wav2vec2", "Wav2Vec2ForSequenceClassification", _STABLE, "masked sound"),
    ("hubert", "HubertForCTC", _SPEECH, "sound"),
]
