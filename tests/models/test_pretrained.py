"""Hugging Face's tiny random models, saved on the spot and read by us: the same numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import models, nn
from ridgeline.config import config
from ridgeline.data.dataset import as_array
from ridgeline.dtypes import float64
from ridgeline.errors import InputFileError
from ridgeline.interop.safetensors import read_tensors, write_tensors
from ridgeline.models.generation import generate
from ridgeline.nn.state import StateDictError
from ridgeline.tensors.tensor import tensor

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers")
hf.utils.logging.disable_progress_bar()
hf.utils.logging.set_verbosity_error()

WORDS = 50
LLAMA = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "initializer_range": 0.4,
}  # fmt: skip
SCALING = {
    "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip
BERT = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 32, "initializer_range": 0.3,
}  # fmt: skip
VIT = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "image_size": 16, "patch_size": 4, "num_labels": 5, "initializer_range": 0.3,
}  # fmt: skip
RESNET = {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 2], "num_labels": 5}


def gpt2() -> Any:
    return hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=WORDS, n_positions=64, n_embd=32, n_layer=2, n_head=4, initializer_range=0.4,
            bos_token_id=0, eos_token_id=1,
        )
    )  # fmt: skip


def llama(**settings: Any) -> Any:
    return hf.LlamaForCausalLM(hf.LlamaConfig(**{**LLAMA, **settings}))


TEXT: dict[str, Callable[[], Any]] = {
    "gpt2": gpt2,
    "llama": lambda: llama(rope_parameters={"rope_type": "default", "rope_theta": 500_000.0}),
    "llama 3.1": lambda: llama(rope_parameters=SCALING),
    "llama tied": lambda: llama(tie_word_embeddings=True, head_dim=16, attention_bias=True),
    "bert": lambda: hf.BertModel(hf.BertConfig(**BERT)),
    "bert masked": lambda: hf.BertForMaskedLM(hf.BertConfig(**BERT)),
    "bert classes": lambda: hf.BertForSequenceClassification(
        hf.BertConfig(**{**BERT, "num_labels": 3})
    ),
}
IMAGES: dict[str, Callable[[], Any]] = {
    "vit": lambda: hf.ViTForImageClassification(hf.ViTConfig(**VIT)),
    "vit hidden": lambda: hf.ViTModel(hf.ViTConfig(**{**VIT, "qkv_bias": False})),
    "resnet": lambda: hf.ResNetForImageClassification(hf.ResNetConfig(**RESNET)),
    "resnet of two labels": lambda: hf.ResNetForImageClassification(
        hf.ResNetConfig(**{**RESNET, "num_labels": 2})
    ),
    "resnet basic": lambda: hf.ResNetForImageClassification(
        hf.ResNetConfig(**{**RESNET, "layer_type": "basic"})
    ),
}
CAUSAL = ["gpt2", "llama", "llama 3.1", "llama tied"]


def saved(name: str, folder: Path, **settings: Any) -> Any:
    """One of the models, with norms that are no identity, written to a folder."""
    torch.manual_seed(0)
    model = {**TEXT, **IMAGES}[name]().eval()
    for key, value in model.state_dict().items():
        if "norm" in key.lower() or "ln_" in key or "bias" in key:
            value.copy_(value.abs() + torch.rand_like(value.float()).to(value.dtype))
    model.save_pretrained(folder, **settings)
    return model


def inputs(name: str) -> Any:
    source = np.random.default_rng(1)
    if name in TEXT:
        return source.integers(0, WORDS, (2, 9))
    return source.standard_normal((2, 3, 16, 16)).astype(np.float32)


def outputs(result: Any) -> list[Any]:
    """What a model of Hugging Face gives, in our order."""
    with_head = getattr(result, "logits", None)
    return (
        [with_head] if with_head is not None else [result.last_hidden_state, result.pooler_output]
    )


def assert_same(mine: Any, theirs: Any, data: Any) -> None:
    with torch.no_grad():
        wanted = outputs(theirs(torch.tensor(data)))
    found = mine(tensor(data))
    for a, b in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        scale = max(1.0, float(b.abs().max()))
        np.testing.assert_allclose(as_array(a), b.numpy(), rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("name", [*TEXT, *IMAGES])
def test_read_models_give_the_same_numbers(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    mine = models.from_pretrained(tmp_path)
    assert not mine.training
    assert mine.parameter_count() == sum(p.numel() for p in theirs.parameters())
    with config.override(tier="interpreter"):
        assert_same(mine, theirs, inputs(name))


@pytest.mark.parametrize("name", ["gpt2", "llama 3.1", "bert masked", "vit", "resnet"])
def test_written_models_are_read_by_transformers(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path / "theirs")
    models.from_pretrained(tmp_path / "theirs").save_pretrained(tmp_path / "ours")
    again = type(theirs).from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        wanted, found = (outputs(m(torch.tensor(inputs(name)))) for m in (theirs, again))
    assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))


@pytest.mark.parametrize("name", CAUSAL)
def test_greedy_generation_gives_the_same_tokens(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    mine = models.from_pretrained(tmp_path)
    assert isinstance(mine, (models.GPT2, models.Llama))
    prompt = inputs(name)
    wanted = theirs.generate(
        torch.tensor(prompt), max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    with config.override(tier="interpreter"):
        found = generate(mine, prompt, 20)
    assert np.array_equal(as_array(found), wanted.numpy())
    assert len(set(as_array(found)[0, 9:].tolist())) > 2, "a model that only repeats tests little"


def test_a_padding_mask_counts_as_in_transformers(tmp_path: Path) -> None:
    theirs, data = saved("bert masked", tmp_path), inputs("bert masked")
    mask, types = np.ones_like(data), np.zeros_like(data)
    mask[1, 5:], types[:, 4:] = 0, 1
    with torch.no_grad():
        wanted = theirs(*map(torch.tensor, (data, mask, types))).logits.numpy()
    found = models.BERT.from_pretrained(tmp_path)(*map(tensor, (data, mask, types)))
    np.testing.assert_allclose(as_array(found), wanted, rtol=1e-4, atol=1e-3)


def test_bfloat16_is_as_good_as_theirs(tmp_path: Path) -> None:
    theirs = llama().to(torch.bfloat16).eval()
    theirs.save_pretrained(tmp_path)
    mine, data = models.from_pretrained(tmp_path), inputs("llama")
    with torch.no_grad():
        peer = theirs(torch.tensor(data)).logits.double().numpy()
        exact = theirs.double()(torch.tensor(data)).logits.numpy()
    found = as_array(mine(tensor(data)).to(dtype=float64))
    assert np.linalg.norm(found - exact) < 2 * np.linalg.norm(peer - exact)


def test_files_in_shards(tmp_path: Path) -> None:
    theirs = saved("llama", tmp_path / "theirs", max_shard_size="20KB")
    assert (tmp_path / "theirs" / "model.safetensors.index.json").exists()
    mine = models.from_pretrained(tmp_path / "theirs")
    mine.save_pretrained(tmp_path / "ours", shard_bytes=20_000)
    files = sorted((tmp_path / "ours").glob("*.safetensors"))
    assert len(files) > 1 and all(len(read_tensors(file)[0]) for file in files)
    again = models.Llama.from_pretrained(tmp_path / "ours", dtype=float64)
    assert again.tokens.weight.dtype is float64
    assert_same(models.from_pretrained(tmp_path / "ours"), theirs, inputs("llama"))


def test_names_of_old_files(tmp_path: Path) -> None:
    theirs = saved("gpt2", tmp_path)
    arrays, _ = read_tensors(tmp_path / "model.safetensors")
    old = {name.removeprefix("transformer."): array for name, array in arrays.items()}
    old["h.0.attn.bias"] = np.ones((1, 1, 64, 64), np.float32)  # a causal mask, no weight
    old["ln_f.gamma"] = old.pop("ln_f.weight")
    write_tensors(tmp_path / "model.safetensors", old, {})
    assert_same(models.from_pretrained(tmp_path), theirs, inputs("gpt2"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    saved("gpt2", tmp_path)
    return tmp_path


def changed(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    arrays, _ = read_tensors(folder / "model.safetensors")
    change(arrays)
    write_tensors(folder / "model.safetensors", arrays, {})


def test_a_missing_an_unexpected_and_a_misshapen_tensor(folder: Path) -> None:
    def change(arrays: dict[str, Any]) -> None:
        arrays["transformer.ln_g.weight"] = arrays.pop("transformer.ln_f.weight")
        arrays["transformer.wte.weight"] = arrays["transformer.wte.weight"][:40]

    changed(folder, change)
    with pytest.raises(StateDictError) as caught:
        models.from_pretrained(folder)
    text = str(caught.value)
    assert "missing: transformer.ln_f.weight" in text
    assert "unexpected: transformer.ln_g.weight" in text
    assert "transformer.wte.weight: the model has [50, 32], the file [40, 32]" in text


def settings(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "cannot read .*config.json"),
        (lambda f: (f / "config.json").write_text("{"), "config.json is not JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "holds no settings"),
        (lambda f: (f / "model.safetensors").unlink(), "cannot read .*model.safetensors"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x" * 99), "not a whole safetensors"),
        (lambda f: settings(f, model_type="unheard_of"), "unknown type 'unheard_of'"),
        (lambda f: settings(f, architectures=["GPT2ForTokens"]), "unknown architecture"),
        (lambda f: settings(f, n_embd="wide"), "n_embd is 'wide', expected a whole number above 0"),
        (lambda f: settings(f, n_layer=None), "n_layer is None, expected a whole number above 0"),
        (lambda f: settings(f, scale_attn_weights=False), "scale_attn_weights can only be True"),
    ],
)
def test_damaged_folders(folder: Path, harm: Callable[[Path], Any], message: str) -> None:
    harm(folder)
    with pytest.raises(InputFileError, match=message):
        models.from_pretrained(folder)


HOSTILE: list[dict[str, Any]] = [
    {"n_head": 0}, {"n_head": -1}, {"n_head": 5}, {"n_head": True}, {"n_head": 4.0},
    {"n_head": 10**30}, {"n_layer": 10**9}, {"n_layer": 0}, {"n_layer": [1]}, {"n_embd": 0},
    {"n_embd": 2**31 - 1}, {"n_inner": 0}, {"n_inner": "x"}, {"vocab_size": -5},
    {"vocab_size": 10**18}, {"n_positions": 0}, {"layer_norm_epsilon": float("nan")},
    {"embd_pdrop": 7}, {"embd_pdrop": "all"}, {"activation_function": 3},
    {"activation_function": "os.system"}, {"architectures": 5}, {"architectures": "GPT2Model"},
    {"architectures": [["GPT2Model"]]}, {"architectures": {"0": 1}}, {"model_type": ["gpt2"]},
    {"model_type": None}, {"model_type": {}},
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_settings_are_one_clear_line(folder: Path, number: int) -> None:
    settings(folder, **HOSTILE[number])
    with pytest.raises(rl.RidgelineError) as caught:
        models.from_pretrained(folder)
    assert "\n" not in caught.value.message and len(caught.value.message) < 300


@pytest.mark.parametrize("kind", ["llama", "bert", "vit", "resnet"])
def test_hostile_settings_of_other_models(tmp_path: Path, kind: str) -> None:
    saved(kind, tmp_path)
    before = (tmp_path / "config.json").read_text()
    names = [n for n, v in json.loads(before).items() if isinstance(v, int | float | list | dict)]
    known = {setting.name for setting in fields(models._TYPED[kind].config_type)}
    for name in sorted(known.intersection(names) - {"id2label"}):
        for value in (0, -1, 10**9, "x", [], {}, [0], ["x"], None):
            if value in (None, {}, 0) and name not in ("num_attention_heads", "depths"):
                continue  # some of these have a meaning there
            settings(tmp_path, **{name: value})
            try:
                models.from_pretrained(tmp_path)
            except rl.RidgelineError as error:
                assert "\n" not in error.message
            (tmp_path / "config.json").write_text(before)


def test_a_config_that_is_nested_deeply_or_large(folder: Path) -> None:
    for text in ("[" * 100_000, '{"a":' * 100_000, '{"n_head": ' + "9" * 10_000 + "}"):
        (folder / "config.json").write_text(text)
        with pytest.raises(InputFileError, match="is not JSON"):
            models.from_pretrained(folder)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "a/b", "..", "", "\0", 5])
def test_shards_lie_beside_their_index(folder: Path, name: Any) -> None:
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"transformer.wte.weight": name}}))
    with pytest.raises(InputFileError, match=r"no file beside it|cannot read"):
        models.from_pretrained(folder)


def test_a_folder_of_another_kind(folder: Path) -> None:
    with pytest.raises(InputFileError, match="'gpt2', not 'llama'"):
        models.Llama.from_pretrained(folder)
    with pytest.raises(InputFileError, match="there is no folder"):
        models.from_pretrained(folder / "nowhere")


def test_the_name_of_a_download_means_its_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download = tmp_path / "cache" / "models--org--tiny.model"
    (download / "refs").mkdir(parents=True)
    (download / "snapshots").mkdir()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(InputFileError, match=r"there is no folder org/tiny\.model") as raised:
        models.from_pretrained("org/tiny.model")
    assert "`hf download org/tiny.model`" in str(raised.value)
    (download / "refs" / "main").write_text("0123abc\n")
    (download / "snapshots" / "0123abc").symlink_to(folder)
    assert type(models.from_pretrained("org/tiny.model")) is type(models.from_pretrained(folder))
    (download / "refs" / "main").write_text("../..\n")
    with pytest.raises(InputFileError, match="there is no folder"):
        models.from_pretrained("org/tiny.model")


def test_a_missing_shard(tmp_path: Path) -> None:
    saved("llama", tmp_path, max_shard_size="20KB")
    sorted(tmp_path.glob("*.safetensors"))[1].unlink()
    with pytest.raises(InputFileError, match=r"cannot read .*-00002-of-"):
        models.from_pretrained(tmp_path)


def test_large_models_are_counted_without_memory() -> None:
    assert models.Llama.configuration("8B").parameter_count() == 8_030_261_248
    assert models.Llama.configuration("70B").parameter_count() == 70_553_706_496
    assert models.Llama.configuration("405B").parameter_count() == 405_853_388_800
    with nn.deferred():
        assert models.GPT2().parameter_count() == 124_439_808
        assert models.BERT().parameter_count() == 109_482_240
