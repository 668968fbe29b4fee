"""Models of the transformers package in small configurations: a forward pass and steps of AdamW."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.torch_backend.modules import assert_close

STEPS = 3
_TEXT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 32, "vocab_size": 40, "max_position_embeddings": 32}  # fmt: skip
_LLAMA = {**_TEXT, "num_key_value_heads": 1}
_IMAGE = {key: _TEXT[key] for key in (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")}  # fmt: skip
_IMAGE |= {"image_size": 16, "patch_size": 8, "num_channels": 3}
_DROPPED = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout",
            "resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout_rate")  # fmt: skip

# the class of a model, the class of its configuration, and what is small in it
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {
        "n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 40, "n_positions": 32}),
    "bert": ("BertForMaskedLM", "BertConfig", _TEXT),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", _TEXT),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertConfig", {
        "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "vocab_size": 40}),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", {**_TEXT, "embedding_size": 16}),
    "albert": ("AlbertForMaskedLM", "AlbertConfig", {**_TEXT, "embedding_size": 8}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _LLAMA),
    "mistral": ("MistralForCausalLM", "MistralConfig", _LLAMA),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _LLAMA),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**_LLAMA, "head_dim": 8}),
    "phi": ("PhiForCausalLM", "PhiConfig", _TEXT),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", _TEXT),
    "opt": ("OPTForCausalLM", "OPTConfig", {
        **_TEXT, "ffn_dim": 32, "word_embed_proj_dim": 16}),
    "t5": ("T5ForConditionalGeneration", "T5Config", {
        "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 40,
        "decoder_start_token_id": 0}),
    "vit": ("ViTForImageClassification", "ViTConfig", _IMAGE),
}  # fmt: skip


def built(name: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """A model without dropout in double precision, and what it is given."""
    import transformers

    model_class, config_class, small = FAMILIES[name]
    dropped = dict.fromkeys(_DROPPED, 0.0)
    torch.manual_seed(0)
    configuration = getattr(transformers, config_class)(**small, **dropped, use_cache=False)
    model = getattr(transformers, model_class)(configuration).double()
    if name == "vit":
        return model, {"pixel_values": torch.randn(2, 3, 16, 16).double()}
    text = torch.randint(3, 40, (2, 7))
    return model, {"input_ids": text, "labels": text} if name == "t5" else {"input_ids": text}


def check(name: str, backend: str) -> dict[str, Any]:
    """Three steps of AdamW, compiled and not, end at the same weights."""
    model, given = built(name)
    plain = copy.deepcopy(model)
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        assert_close(compiled.eval()(**given).logits, plain.eval()(**given).logits)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3) for m in (model, plain)]
    for _ in range(STEPS):
        for function, module, optimizer in zip((compiled, plain), (model, plain), optimizers):
            module.train()
            optimizer.zero_grad()
            function(**given).logits.square().mean().backward()
            optimizer.step()
    for one, other in zip(model.parameters(), plain.parameters()):
        assert_close(one, other)
    return {}


def checks(backend: str) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """The checks of all families, by name."""
    for name in FAMILIES:
        yield name, lambda name=name: check(name, backend)
