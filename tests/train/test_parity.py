"""Language models against the same models in PyTorch: same weights, data and steps, same loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ridgeline import nn, optim
from ridgeline.data import DataLoader, TextDataset
from ridgeline.data.dataset import as_array
from ridgeline.models import GPT2, LSTMLanguageModel
from ridgeline.random import manual_seed
from ridgeline.train import Step, next_token

torch = pytest.importorskip("torch")

TEXT = "the quick brown fox jumps over the lazy dog; pack my box with five dozen liquor jugs. " * 40
LENGTH, BATCH, STEPS, LR = 16, 16, 60, 3e-3
DATA = TextDataset(TEXT, LENGTH, stride=3)
assert DATA.tokenizer is not None
WORDS = DATA.tokenizer.vocab_size


def batches() -> list[tuple[Any, Any]]:
    loader = DataLoader(DATA, BATCH, shuffle=True, drop_last=True)
    found = list(loader)[:STEPS]
    assert len(found) == STEPS
    return found


def ours(model: nn.Module, scores: Any) -> list[float]:
    def objective(model: Any, tokens: Any, following: Any) -> Any:
        return next_token(lambda t: scores(model, t), tokens, following)

    step = Step(model, optim.Adam(model.parameters(), LR), objective)
    return [float(step(*batch)[0]) for batch in batches()]


def theirs(model: Any, scores: Any) -> list[float]:
    optimizer, losses = torch.optim.Adam(model.parameters(), LR), []
    for batch in batches():
        tokens, following = (torch.tensor(as_array(part)) for part in batch)
        optimizer.zero_grad()
        found = scores(model, tokens)
        loss = torch.nn.functional.cross_entropy(found.flatten(0, 1), following.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def compare(here: list[float], there: list[float]) -> None:
    assert there[-1] < 0.8 * there[0], "nothing was learnt"
    assert abs(here[0] - there[0]) < 1e-5 * there[0]
    last, wanted = np.mean(here[-5:]), np.mean(there[-5:])
    assert abs(last - wanted) < 0.02 * wanted, (last, wanted)


class TorchLSTM(torch.nn.Module):
    """The LSTM language model under our names of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(WORDS, 24)
        self.lstm = torch.nn.LSTM(24, 48, 2, batch_first=True)
        self.head = torch.nn.Linear(48, WORDS)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.lstm(self.tokens(tokens))[0])


def test_lstm() -> None:
    manual_seed(0)
    model, peer = LSTMLanguageModel(WORDS, 24, 48, 2), TorchLSTM()
    peer.load_state_dict({k: torch.tensor(as_array(v)) for k, v in model.state_dict().items()})
    compare(ours(model, lambda m, t: m(t)[0]), theirs(peer, lambda m, t: m(t)))


def test_char_gpt(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    manual_seed(0)
    off = dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), 0.0)
    model = GPT2(vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=4, **off)
    model.save_pretrained(tmp_path)
    peer = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, attn_implementation="eager")
    compare(ours(model, lambda m, t: m(t)), theirs(peer.train(), lambda m, t: m(t).logits))
