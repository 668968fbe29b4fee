"""Families that are no language models, against transformers: small random models, same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import models
from ridgeline.config import config
from ridgeline.data.dataset import as_array
from tests.models.family_cases import ENCODERS, IMAGES, OTHERS, SEQUENCES, WORDS

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers")
hf.utils.logging.disable_progress_bar()
hf.utils.logging.set_verbosity_error()


def saved(model_type: str, name: str, values: dict[str, Any], folder: Path) -> Any:
    """A small random model, with norms and biases that are no identity, written to a folder."""
    torch.manual_seed(0)
    model = getattr(hf, name)(hf.AutoConfig.for_model(model_type, **values)).eval()
    for key, value in model.state_dict().items():
        kinds = ("norm", "bias", "running_mean", "running_var")
        if any(part in key.lower() for part in kinds) and "relative" not in key:
            value.copy_(value.abs() * 0.8 + 0.2 * torch.rand_like(value.float()).to(value.dtype))
    model.save_pretrained(folder)
    return model


OUTPUTS = ("start_logits", "end_logits", "logits_per_image", "logits_per_text", "logits",
           "image_embeds", "text_embeds", "last_hidden_state", "pooler_output")  # fmt: skip


def outputs(found: Any) -> list[Any]:
    """What a model of Hugging Face gives, in our order."""
    values = [getattr(found, name, None) for name in OUTPUTS]
    given = [value for value in values if isinstance(value, torch.Tensor)]
    heads = ("logits", "image_embeds", "text_embeds")
    if any(isinstance(getattr(found, name, None), torch.Tensor) for name in heads):
        states = [getattr(found, name, None) for name in OUTPUTS[-2:]]
        given = [value for value in given if not any(value is state for state in states)]
    return given


def assert_same(mine: Any, theirs: Any, *data: Any, counts: Any = None) -> None:
    with torch.no_grad():
        wanted = outputs(theirs(*map(torch.tensor, data)))
    with config.override(tier="interpreter"):
        result = mine(*map(rl.tensor, data))
    found = result if isinstance(result, tuple) else (result,)
    for a, b in zip(found, wanted, strict=True):
        places = counts if counts is not None and b.shape[:2] == counts.shape else slice(None)
        ours, other = as_array(a)[places], b.numpy()[places]
        scale = max(1.0, float(np.abs(other).max()))
        np.testing.assert_allclose(ours, other, rtol=0, atol=1e-4 * scale)


def text(padding: int) -> tuple[Any, Any]:
    tokens = np.random.default_rng(1).integers(3, WORDS, (2, 9))
    mask = np.ones_like(tokens)
    mask[1, 6:], tokens[1, 6:] = 0, padding
    return tokens, mask


QUICK = [(model_type, "Model") for model_type in ENCODERS] + [
    ("electra", "ForMaskedLM"), ("roberta", "ForSequenceClassification"),
    ("distilbert", "ForQuestionAnswering"),
]  # fmt: skip
ALL = [(model_type, form) for model_type, (_, _, forms) in ENCODERS.items() for form in forms]


@pytest.mark.parametrize(
    ("model_type", "form"),
    [pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow) for case in ALL],
)
def test_text_encoders(model_type: str, form: str, tmp_path: Path) -> None:
    stem, values, _ = ENCODERS[model_type]
    theirs = saved(model_type, stem + form, values, tmp_path)
    mine = models.from_pretrained(tmp_path)
    assert mine.parameter_count() == sum(p.numel() for p in theirs.parameters())
    tokens, mask = text(theirs.config.pad_token_id)
    assert_same(mine, theirs, tokens, mask, counts=mask != 0)
    mine.save_pretrained(tmp_path / "ours")
    again = type(theirs).from_pretrained(tmp_path / "ours").eval()
    assert_same(mine, again, tokens, mask, counts=mask != 0)


def test_a_base_model_reads_the_file_of_one_with_a_head(tmp_path: Path) -> None:
    stem, values, _ = ENCODERS["electra"]
    theirs = saved("electra", f"{stem}ForSequenceClassification", values, tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace("ElectraForSequenceClassification", "ElectraModel"))
    mine = models.from_pretrained(tmp_path)
    assert_same(mine, theirs.electra, *text(0), counts=text(0)[1] != 0)


PICTURES = np.random.default_rng(2).standard_normal((2, 3, 16, 16)).astype(np.float32)


SOUND = np.random.default_rng(2).standard_normal((2, 100)).astype(np.float32)
HEARD = np.ones((2, 100), np.int64)
HEARD[1, 60:] = 0


@pytest.mark.parametrize(("model_type", "name", "values", "given"), [*IMAGES, *OTHERS])
def test_images_and_sounds(
    model_type: str, name: str, values: dict[str, Any], given: str, tmp_path: Path
) -> None:
    theirs = saved(model_type, name, values, tmp_path)
    mine = models.from_pretrained(tmp_path)
    tokens = text(0)[0]
    data: Any = {
        "images": (PICTURES,), "text": (tokens,), "both": (tokens, PICTURES), "sound": (SOUND,),
        "masked sound": (SOUND, HEARD),
    }[given]  # fmt: skip
    assert_same(mine, theirs, *data)
    mine.save_pretrained(tmp_path / "ours")
    again = type(theirs).from_pretrained(tmp_path / "ours").eval()
    assert_same(mine, again, *data)


def _greedy(theirs: Any, source: Any, mask: Any, count: int) -> Any:
    """The likeliest tokens, each from a whole pass over what there is so far."""
    found = torch.full((2, 1), theirs.config.decoder_start_token_id)
    with torch.no_grad():
        for _ in range(count):
            scores = theirs(source, attention_mask=mask, decoder_input_ids=found).logits[:, -1]
            found = torch.cat([found, scores.argmax(-1, keepdim=True)], 1)
    return found.numpy()


@pytest.mark.parametrize(("model_type", "name", "values"), SEQUENCES)
def test_sequences_to_sequences(
    model_type: str, name: str, values: dict[str, Any], tmp_path: Path
) -> None:
    theirs = saved(model_type, name, values, tmp_path)
    mine = models.from_pretrained(tmp_path)
    sounds = np.random.default_rng(3).standard_normal((2, 8, 20)).astype(np.float32)
    source, mask = (sounds, None) if model_type == "whisper" else text(0)
    tokens = np.random.default_rng(4).integers(3, WORDS, (2, 5))
    given, hidden = torch.tensor(source), None if mask is None else torch.tensor(mask)
    ours, ours_hidden = rl.tensor(source), None if mask is None else rl.tensor(mask)
    encodes = name.endswith("EncoderModel")
    more = {} if encodes else {"decoder_input_ids": torch.tensor(tokens)}
    with torch.no_grad():
        wanted = theirs(given, attention_mask=hidden, **more)[0].numpy()
    with config.override(tier="interpreter"):
        found = as_array(mine(ours, None if encodes else rl.tensor(tokens), ours_hidden))
        counts = mask != 0 if encodes else slice(None)
        scale = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(found[counts], wanted[counts], rtol=0, atol=1e-4 * scale)
        if "For" in name or name.endswith("MTModel"):
            new = as_array(mine.generate(ours, 4, ours_hidden))  # type: ignore[operator]
            assert np.array_equal(new, _greedy(theirs, given, hidden, 4))
    mine.save_pretrained(tmp_path / "ours")
    again = type(theirs).from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        assert np.array_equal(again(given, attention_mask=hidden, **more)[0].numpy(), wanted)
