"""Speech to letters: a bidirectional GRU over packed sequences of many lengths, and CTC."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.programs.switch import F, Step, compiled, initialise, nn, source, tensor, torch


@dataclass(frozen=True)
class Sizes:
    batch: int = 8
    frames: tuple[int, int] = (60, 100)
    mels: int = 40
    hidden: int = 128
    layers: int = 2
    letters: int = 29
    spoken: int = 20  # letters of the longest text


DEFAULT = Sizes()
SMALL = Sizes(batch=2, frames=(8, 12), mels=8, hidden=16, layers=1, letters=8, spoken=3)
LENGTHS = 6  # different batches


class Recogniser(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.gru = nn.GRU(
            sizes.mels, sizes.hidden, sizes.layers, batch_first=True, bidirectional=True
        )
        self.fc = nn.Linear(2 * sizes.hidden, sizes.letters)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths, batch_first=True, enforce_sorted=False
        )
        output, _ = self.gru(packed)
        output, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
        return F.log_softmax(self.fc(output), dim=-1)


def batches(sizes: Sizes):
    """Spoken texts, each batch with lengths of its own, which Python knows."""
    for number in range(LENGTHS):
        numbers = source(1, number)
        lengths = numbers.integers(*sizes.frames, sizes.batch)
        x = tensor(numbers.standard_normal((sizes.batch, lengths.max(), sizes.mels)))
        targets = tensor(numbers.integers(1, sizes.letters, (sizes.batch, sizes.spoken)))
        written = numbers.integers(sizes.spoken // 2, sizes.spoken + 1, sizes.batch)
        yield x, lengths.tolist(), targets, written.tolist()


def make(sizes: Sizes) -> Step:
    data = list(batches(sizes))
    model = initialise(Recogniser(sizes))
    criterion = nn.CTCLoss(blank=0, zero_infinity=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)

    @compiled
    def train(x, lengths, targets, written):
        optimizer.zero_grad()
        output = model(x, lengths).transpose(0, 1)
        loss = criterion(output, targets, tuple(lengths), tuple(written))
        loss.backward()
        optimizer.step()
        return loss

    return lambda number: train(*data[number % LENGTHS])
