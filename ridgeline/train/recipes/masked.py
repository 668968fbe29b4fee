"""BERT on a text: characters are hidden, and found again from both sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ridgeline import nn
from ridgeline.data.dataset import as_array
from ridgeline.files import write_atomic
from ridgeline.models import BERT
from ridgeline.models.bert import MASKED
from ridgeline.nn.functional import cross_entropy
from ridgeline.random import manual_seed
from ridgeline.record.modes import no_grad
from ridgeline.tensors.public import rand, where
from ridgeline.tensors.tensor import Tensor, tensor
from ridgeline.train.objectives import Objective
from ridgeline.train.recipes.base import Options, Prepared, Recipe, Settings
from ridgeline.train.recipes.text import Text, mean_loss, open_text, text_run

HIDDEN = 0.15  # the share of characters to be found
_IGNORED = -100  # the target of a character that is shown


def hide_and_find(hidden_token: int) -> Objective:
    """Cross entropy over characters hidden at random, and the share that is found."""

    def objective(model: Any, tokens: Tensor, _: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        hidden = rand(tuple(tokens.shape)).to(tokens.device) < HIDDEN
        scores = model(where(hidden, hidden_token, tokens))
        targets = where(hidden, tokens, _IGNORED)
        count = hidden.sum().clamp(min=1)  # a small batch may have nothing hidden
        loss = cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="sum") / count
        found = (scores.argmax(-1) == targets).sum() / count
        return loss, {"found": found * int(tokens.shape[0])}

    return objective


def _bert(settings: Settings, options: Options) -> Prepared:
    manual_seed(settings.seed)
    text = open_text(settings)
    words = text.tokenizer.vocab_size
    model = BERT(
        architecture=MASKED, vocab_size=words + 1, hidden_size=128, num_hidden_layers=4,
        num_attention_heads=4, intermediate_size=256, max_position_embeddings=settings.length,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    ).to(options.device)  # fmt: skip
    objective = hide_and_find(words)
    return Prepared(
        text_run(settings, options, model, text, objective),
        f"a BERT of four layers on {text.source}, {text.learnt:,} characters of {words} kinds to "
        "learn",
        lambda kept: {"test_loss": mean_loss(kept, text.test, objective, options.device)},
        lambda kept, out: _sample(kept, text, out, options.device),
    )


def _sample(model: nn.Module, text: Text, out: Path, device: str) -> str:
    """Some held-out text with every seventh character hidden, and what the model puts there."""
    tokenizer = text.tokenizer
    tokens = text.test[0][0]
    shown = tokens.copy()
    shown[3::7] = tokenizer.vocab_size
    model.eval()
    with no_grad():
        scores = model(tensor(shown[None]).to(device))[0, :, : tokenizer.vocab_size]
    made = tokens.copy()
    made[3::7] = as_array(scores.argmax(-1))[3::7]
    given = "".join(
        "_" if index % 7 == 3 else c for index, c in enumerate(tokenizer.decode(tokens))
    )
    lines = (given, tokenizer.decode(made), tokenizer.decode(tokens))
    write_atomic(out / "sample.txt", ("\n---\n".join(lines) + "\n").encode())
    tokenizer.save(out / "vocabulary.json")
    return f"hidden characters, found ones and the text: {out / 'sample.txt'}"


RECIPES = {"bert": Recipe(Settings("bert", 4, 32, 3e-3, clip=1.0), _bert)}
