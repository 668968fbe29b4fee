"""Language models on a text: an LSTM, a small GPT-2, a small Llama."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ridgeline import nn
from ridgeline.data import CharTokenizer, DataLoader, TextDataset, read_text
from ridgeline.files import write_atomic
from ridgeline.models import GPT2, Llama, LSTMLanguageModel, generate
from ridgeline.optim import AdamW
from ridgeline.optim.lr_scheduler import OneCycleLR
from ridgeline.random import manual_seed
from ridgeline.record.modes import no_grad
from ridgeline.tensors.tensor import Tensor, tensor
from ridgeline.train.evaluate import Evaluator
from ridgeline.train.loop import Run
from ridgeline.train.objectives import Objective, next_token
from ridgeline.train.recipes.base import (
    Options,
    Prepared,
    Recipe,
    Settings,
    check_batch,
    make_run,
    set_apart,
)

HELD_OUT = 0.1  # the share of the text, at its end, that is not learnt
SAMPLE = 200  # characters of a sample


class Recurrent(nn.Module):
    """An LSTM language model as a function from tokens to scores."""

    def __init__(self, words: int, length: int) -> None:
        super().__init__()
        self.inner = LSTMLanguageModel(words, 64, 256, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.inner(tokens)[0]
        return scores


def _gpt2(words: int, length: int) -> nn.Module:
    return GPT2(
        vocab_size=words, n_positions=max(length, 2 * SAMPLE), n_embd=128, n_layer=4, n_head=4,
        embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0,
    )  # fmt: skip


def _llama(words: int, length: int) -> nn.Module:
    return Llama(
        vocab_size=words, hidden_size=128, intermediate_size=352, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=max(length, 2 * SAMPLE),
    )  # fmt: skip


def bundled_text() -> tuple[str, str]:
    """A text that every Python has: the reference that `help()` prints. And what it is."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics)), "Python's help texts"


@dataclass(frozen=True)
class Text:
    """A text in windows: those to learn from, to validate with, and the end that tests."""

    source: str
    tokenizer: CharTokenizer
    train: Any
    validation: Any
    test: TextDataset
    learnt: int  # characters


def open_text(settings: Settings) -> Text:
    """The text that `--data` names, or the one that every Python has."""
    text, source = bundled_text()
    if settings.data:
        text, source = read_text(settings.data), settings.data
    tokenizer = CharTokenizer(text)
    tokens = tokenizer.encode(text)
    end = int(len(tokens) * (1 - HELD_OUT))
    train, validation = set_apart(settings, TextDataset(tokens[:end], settings.length))
    check_batch(settings, len(train), "windows of text")
    test = TextDataset(tokens[end:], settings.length)
    return Text(source, tokenizer, train, validation, test, end)


def _recipe(
    name: str, title: str, build: Callable[[int, int], nn.Module], lr: float
) -> tuple[str, Recipe]:
    def prepare(settings: Settings, options: Options) -> Prepared:
        manual_seed(settings.seed)
        text = open_text(settings)
        tokenizer = text.tokenizer
        model = options.placed(build(tokenizer.vocab_size, settings.length))
        run = text_run(settings, options, model, text, next_token)
        return Prepared(
            run,
            f"{title} on {text.source}, {text.learnt:,} characters of {tokenizer.vocab_size} kinds "
            "to learn",
            lambda kept: {"test_loss": mean_loss(kept, text.test, next_token, options.device)},
            lambda kept, out: _sample(kept, tokenizer, out, settings.seed),
        )

    return name, Recipe(Settings(name, 2, 32, lr, clip=1.0), prepare)


def text_run(
    settings: Settings, options: Options, model: nn.Module, text: Text, objective: Objective
) -> Run:
    """A run over a text: AdamW and one cycle of the learning rate."""
    loader = DataLoader(text.train, settings.batch_size, True, drop_last=True, seed=settings.seed)
    optimizer = AdamW(model.parameters(), settings.lr, weight_decay=0.1, betas=(0.9, 0.95))
    steps = settings.epochs * len(loader)
    schedule = OneCycleLR(optimizer, settings.lr, total_steps=steps, pct_start=0.1)
    parts = (model, optimizer, schedule, loader, objective, text.validation)
    return make_run(settings, options, *parts)


def mean_loss(model: nn.Module, dataset: Any, objective: Objective, device: str) -> float:
    """The mean loss over a dataset."""
    return Evaluator(model, objective, device)(DataLoader(dataset, 32))["loss"]


def _sample(model: nn.Module, tokenizer: CharTokenizer, out: Path, seed: int) -> str:
    """A text that the model goes on with, in a file beside the vocabulary."""
    write_atomic(out / "sample.txt", tokenizer.decode(_continued(model, [0], seed)).encode())
    tokenizer.save(out / "vocabulary.json")
    return f"a sample is in {out / 'sample.txt'}, the vocabulary in {out / 'vocabulary.json'}"


def _continued(model: nn.Module, start: list[int], seed: int) -> list[int]:
    model.eval()
    if isinstance(model, GPT2 | Llama):
        made: list[int] = generate(model, [start], SAMPLE, temperature=0.8, seed=seed)[0].tolist()
        return made
    assert isinstance(model, Recurrent)
    tokens, state = list(start), None
    with no_grad():
        for _ in range(SAMPLE):
            scores, state = model.inner(tensor([tokens[-1:]]), state)
            shares = (scores[0, -1] / 0.8).softmax(0)
            tokens.append(int(shares.multinomial(1)))
    return tokens


RECIPES = dict([
    _recipe("lstm", "an LSTM of two layers", Recurrent, 5e-3),
    _recipe("gpt2", "a GPT-2 of four layers", _gpt2, 3e-3),
    _recipe("llama", "a Llama of four layers", _llama, 3e-3),
])  # fmt: skip
