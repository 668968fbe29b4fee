"""A word-level LSTM language model: truncated backpropagation through time, SGD by hand."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.programs.switch import F, Step, compiled, initialise, nn, source, tensor, torch


@dataclass(frozen=True)
class Sizes:
    words: int = 33278
    width: int = 200
    layers: int = 2
    bptt: int = 35
    batch: int = 20
    dropout: float = 0.2


DEFAULT = Sizes()
SMALL = Sizes(words=200, width=32, bptt=8, batch=4)
LR, CLIP = 2.0, 0.25


class RNNModel(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.words = sizes.words
        self.drop = nn.Dropout(sizes.dropout)
        self.encoder = nn.Embedding(sizes.words, sizes.width)
        self.rnn = nn.LSTM(sizes.width, sizes.width, sizes.layers)
        self.decoder = nn.Linear(sizes.width, sizes.words)

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        output = self.drop(output)
        decoded = self.decoder(output).view(-1, self.words)
        return F.log_softmax(decoded, dim=1), hidden


def repackage_hidden(h):
    """The same hidden states, cut from their history."""
    return tuple(v.detach() for v in h)


def make(sizes: Sizes) -> Step:
    length = 12 * sizes.bptt + sizes.bptt // 2  # the last piece of a pass is shorter
    text = tensor(source(1).integers(0, sizes.words, (length, sizes.batch)))
    model = initialise(RNNModel(sizes))
    criterion = nn.NLLLoss()
    zeros = torch.zeros(sizes.layers, sizes.batch, sizes.width, device=text.device)
    state = {"hidden": (zeros, zeros), "at": 0}

    @compiled
    def train(data, targets, hidden):
        model.zero_grad()
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(p.grad, alpha=-LR)
        return loss, hidden

    def get_batch(i):
        seq_len = min(sizes.bptt, len(text) - 1 - i)
        return text[i : i + seq_len], text[i + 1 : i + 1 + seq_len].view(-1)

    def step(number: int):
        if state["at"] >= len(text) - 1:
            state["at"] = 0
            state["hidden"] = (zeros, zeros)
        data, targets = get_batch(state["at"])
        loss, hidden = train(data, targets, repackage_hidden(state["hidden"]))
        state["hidden"] = hidden
        state["at"] += sizes.bptt
        return loss

    return step
