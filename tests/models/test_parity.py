"""Training reaches the loss that the same model reaches in PyTorch: same start, data and steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from ridgeline import models, nn, optim
from ridgeline.data.dataset import as_array
from ridgeline.random import manual_seed
from ridgeline.tensors.tensor import tensor
from ridgeline.tracing.jit import jit

hf = pytest.importorskip("transformers")
hf.utils.logging.disable_progress_bar()
hf.utils.logging.set_verbosity_error()

WORDS = {
    "who": "the cat|a dog|the old king|my sister|every bird|a small boat",
    "does": "sees|follows|remembers|carries|waits for|sings to",
    "when": "today|in the evening|before the storm|when it rains|once more",
}


def text(sentences: int) -> str:
    """Sentences of a small grammar, the same on every machine."""
    source = np.random.default_rng(0)
    pick = {kind: words.split("|") for kind, words in WORDS.items()}
    lines = []
    for _ in range(sentences):
        parts = [str(source.choice(pick[kind])) for kind in ("who", "does", "who", "when")]
        lines.append(" ".join(parts) + ".\n")
    return "".join(lines)


def batches(count: int, size: int, length: int) -> Iterator[tuple[Any, Any, int]]:
    """Pieces of the text as numbers of characters, and the characters that follow."""
    letters = text(400)
    alphabet = sorted(set(letters))
    data = np.array([alphabet.index(letter) for letter in letters])
    source = np.random.default_rng(1)
    for _ in range(count):
        starts = source.integers(0, len(data) - length - 1, size)
        piece = np.stack([data[start : start + length + 1] for start in starts])
        yield piece[:, :-1], piece[:, 1:], len(alphabet)


ALPHABET = next(batches(1, 1, 1))[2]
RATE = 3e-3


def train_here(model: Any, scores: Callable[[Any, Any], Any], data: Any) -> list[float]:
    optimizer = optim.AdamW(model.parameters(), RATE)

    @jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(scores(model, x).flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return [float(step(tensor(x), tensor(y))) for x, y, _ in data]


def train_in_torch(model: Any, scores: Callable[[Any, Any], Any], data: Any) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    losses = []
    for x, y, _ in data:
        optimizer.zero_grad()
        found = scores(model, torch.tensor(x)).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(found, torch.tensor(y).flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def assert_parity(ours: list[float], theirs: list[float], fall: float) -> None:
    last = max(1, len(ours) // 10)
    mine, peer = (float(np.mean(losses[-last:])) for losses in (ours, theirs))
    print(f"{len(ours)} steps from {theirs[0]:.4f}: loss {mine:.4f} here, {peer:.4f} in torch")
    assert np.isclose(ours[0], theirs[0], rtol=1e-4), "the models start differently"
    assert peer < fall * theirs[0], "the run is too short to say anything"
    assert mine < 1.02 * peer


def gpt(width: int, layers: int, length: int, folder: Any) -> tuple[Any, Any]:
    manual_seed(0)
    mine = models.GPT2(
        vocab_size=ALPHABET, n_positions=length, n_embd=width, n_layer=layers, n_head=4,
        embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0,
    )  # fmt: skip
    mine.save_pretrained(folder)
    return mine, hf.GPT2LMHeadModel.from_pretrained(folder).train()


class TorchLSTM(torch.nn.Module):
    """models.LSTMLanguageModel, in torch."""

    def __init__(self, words: int, width: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(words, width)
        self.lstm = torch.nn.LSTM(width, hidden, layers, batch_first=True)
        self.head = torch.nn.Linear(hidden, words)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.lstm(self.tokens(tokens))[0])


def lstm(width: int, hidden: int, layers: int) -> tuple[Any, Any]:
    manual_seed(0)
    mine = models.LSTMLanguageModel(ALPHABET, width, hidden, layers)
    theirs = TorchLSTM(ALPHABET, width, hidden, layers)
    state = {name: torch.tensor(as_array(value)) for name, value in mine.state_dict().items()}
    theirs.load_state_dict(state)
    return mine, theirs


@pytest.mark.parametrize(
    ("steps", "width", "layers", "length", "fall"),
    [(40, 32, 1, 16, 0.8), pytest.param(400, 64, 2, 32, 0.4, marks=pytest.mark.slow)],
)
def test_gpt(steps: int, width: int, layers: int, length: int, fall: float, tmp_path: Any) -> None:
    mine, theirs = gpt(width, layers, length, tmp_path)
    ours = train_here(mine, lambda m, x: m(x), batches(steps, 16, length))
    wanted = train_in_torch(theirs, lambda m, x: m(x).logits, batches(steps, 16, length))
    assert_parity(ours, wanted, fall)


@pytest.mark.parametrize(
    ("steps", "hidden", "layers", "length", "fall"),
    [(40, 32, 1, 8, 0.9), pytest.param(400, 64, 2, 16, 0.5, marks=pytest.mark.slow)],
)
def test_lstm(steps: int, hidden: int, layers: int, length: int, fall: float) -> None:
    mine, theirs = lstm(16, hidden, layers)
    ours = train_here(mine, lambda m, x: m(x)[0], batches(steps, 16, length))
    wanted = train_in_torch(theirs, lambda m, x: m(x), batches(steps, 16, length))
    assert_parity(ours, wanted, fall)
