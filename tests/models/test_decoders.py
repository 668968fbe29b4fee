"""Every family of language models against transformers: scores, masks, tokens, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import models
from ridgeline.config import config
from ridgeline.data.dataset import as_array
from ridgeline.errors import InputFileError
from ridgeline.models.families import FAMILIES
from tests.models.family_cases import DECODERS, MORE_DECODERS, WORDS

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers")
hf.utils.logging.disable_progress_bar()
hf.utils.logging.set_verbosity_error()

ALL = {**DECODERS, **MORE_DECODERS}
TOKENS = np.random.default_rng(1).integers(3, WORDS, (2, 9))


@pytest.fixture(autouse=True)
def interpreted() -> Any:
    with config.override(tier="interpreter"):
        yield


def saved(name: str, folder: Path, kind: Any = None, **settings: Any) -> Any:
    """A small random model, with norms and biases that are no identity, written to a folder."""
    torch.manual_seed(0)
    model_type, values = ALL[name]
    described = hf.AutoConfig.for_model(model_type, **{**values, **settings})
    # what a version chooses by itself may leave out what its fused attention cannot do, as
    # soft caps of scores; written out, attention is as the configuration says
    make = (kind or hf.AutoModelForCausalLM).from_config
    model = make(described, attn_implementation="eager").eval()
    for key, value in model.state_dict().items():
        if any(part in key.lower() for part in ("norm", "ln_", "bias")):
            value.copy_(value.abs() * 0.8 + 0.2 * torch.rand_like(value.float()).to(value.dtype))
    model.save_pretrained(folder)
    return model


def assert_same(mine: Any, theirs: Any, mask: Any = None) -> None:
    """The same scores at all tokens that count."""
    given = None if mask is None else torch.tensor(mask)
    with torch.no_grad():
        wanted = theirs(torch.tensor(TOKENS), attention_mask=given)[0].numpy()
    found = as_array(mine(rl.tensor(TOKENS), None if mask is None else rl.tensor(mask)))
    counts = slice(None) if mask is None else mask != 0
    scale = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found[counts], wanted[counts], rtol=0, atol=1e-4 * scale)


def padded(left: bool) -> Any:
    mask = np.ones_like(TOKENS)
    mask[1, :3] = 0
    return mask if left else mask[:, ::-1].copy()


def assert_same_tokens(mine: Any, theirs: Any, count: int) -> None:
    wanted = theirs.generate(
        torch.tensor(TOKENS), max_new_tokens=count, do_sample=False, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    assert np.array_equal(as_array(models.generate(mine, TOKENS, count)), wanted.numpy())


@pytest.mark.parametrize("name", DECODERS)
def test_scores_and_masks(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    mine = models.from_pretrained(tmp_path)
    assert mine.parameter_count() == sum(p.numel() for p in theirs.parameters())
    assert_same(mine, theirs)
    assert_same(mine, theirs, padded(left=True))


@pytest.mark.parametrize("name", ["gemma3", "mixtral", "deepseek_v3"])
def test_tokens(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    assert_same_tokens(models.from_pretrained(tmp_path), theirs, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_all_of_a_family(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    mine = models.from_pretrained(tmp_path)
    assert mine.parameter_count() == sum(p.numel() for p in theirs.parameters())
    for mask in (None, padded(left=True), padded(left=False)):
        assert_same(mine, theirs, mask)
    assert_same_tokens(mine, theirs, 8)
    mine.save_pretrained(tmp_path / "ours")
    again = type(theirs).from_pretrained(tmp_path / "ours").eval()
    assert_same(mine, again)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2", "gemma2", "mixtral", "deepseek_v3", "bloom"])
def test_jit_and_eager_compute_the_same(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    mine = models.from_pretrained(tmp_path)
    with config.override(tier="compiled"):
        assert_same(mine, theirs)
        assert_same(rl.jit(lambda tokens, mask: mine(tokens, mask)), theirs, padded(left=True))
    with rl.eager():
        assert_same(mine, theirs)


@pytest.mark.parametrize("kind", ["AutoModel", "AutoModelForSequenceClassification"])
def test_other_forms(kind: str, tmp_path: Path) -> None:
    theirs = saved("qwen2", tmp_path, getattr(hf, kind))
    assert_same(models.from_pretrained(tmp_path), theirs)


def test_settings_as_older_files_have_them(tmp_path: Path) -> None:
    theirs = saved("qwen3", tmp_path)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    values |= {"rope_theta": values.pop("rope_parameters")["rope_theta"], "rope_scaling": None}
    for name in ("attention_bias", "hidden_act", "layer_types", "initializer_range"):
        del values[name]
    path.write_text(json.dumps(values))
    assert_same(models.from_pretrained(tmp_path), theirs)


def test_weights_in_torchs_own_files(tmp_path: Path) -> None:
    theirs = saved("olmo2", tmp_path)
    state = theirs.state_dict()
    (tmp_path / "model.safetensors").unlink()
    torch.save(state, tmp_path / "pytorch_model.bin")
    assert_same(models.from_pretrained(tmp_path), theirs)
    (tmp_path / "pytorch_model.bin").unlink()
    halves = [dict(list(state.items())[n::2]) for n in range(2)]
    places: dict[str, str] = {}
    for number, half in enumerate(halves):
        torch.save(half, tmp_path / f"part-{number}.bin")
        places |= dict.fromkeys(half, f"part-{number}.bin")
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    assert_same(models.from_pretrained(tmp_path), theirs)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("qwen2", {"rope_parameters": {"rope_type": "spiral"}}, "rope_type 'spiral' is not"),
        ("qwen2", {"hidden_act": "wobble"}, "no activation 'wobble'"),
        ("gemma2", {"layer_types": ["half_attention"] * 2}, "layer_types 'half_attention'"),
        ("gemma2", {"layer_types": ["full_attention"]}, "layer_types '1 of 2 layers'"),
        ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention True"),
        ("mixtral", {"num_local_experts": 0}, "num_local_experts is 0, expected a whole number"),
        ("mistral", {"num_hidden_layers": 10**9}, "num_hidden_layers 1000000000 is not supported"),
        ("gemma2", {"query_pre_attn_scalar": 0}, "no model has these settings"),
        ("gemma2", {"query_pre_attn_scalar": -1}, "no model has these settings"),
        ("falcon", {"num_attention_heads": 10**9}, "no model has these settings"),
        ("mistral", {"head_dim": 10**9}, "head_dim 1000000000 is not supported"),
        ("mixtral", {"num_local_experts": 10**9}, "num_local_experts 1000000000 is not supported"),
        ("mistral", {"num_hidden_layers": 50_000}, "50000 layers, but the files hold"),
        ("falcon", {"hidden_size": None}, "hidden_size is missing"),
        ("phi", {"architectures": ["PhiForPoetry"]}, "PhiForPoetry is an unknown architecture"),
        ("phi", {"num_key_value_heads": 3}, "4 heads cannot share 3"),
    ],
)
def test_what_is_not_supported_is_named(
    name: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    saved(name, tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(InputFileError, match=message) as caught:
        models.from_pretrained(tmp_path)
    assert "\n" not in caught.value.message


HOSTILE: tuple[Any, ...] = (0, -1, 1.5, 10**9, 10**30, "x", [], {}, [0], ["x"], True, float("nan"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_hostile_settings_are_one_clear_line(name: str, tmp_path: Path) -> None:
    saved(name, tmp_path)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    for field in values:
        for value in HOSTILE:
            path.write_text(json.dumps({**values, field: value}))
            try:
                models.from_pretrained(tmp_path)
            except rl.RidgelineError as error:
                assert "\n" not in error.message and len(error.message) < 300


def test_every_family_is_tried() -> None:
    assert {model_type for model_type, _ in ALL.values()} | {"gpt2", "llama"} >= {
        name for name, family in FAMILIES.items() if family.skeleton == "language"
    }
