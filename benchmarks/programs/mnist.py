"""A convolutional network on digits: dropout, log-softmax, Adadelta with a schedule."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.programs.switch import F, Step, compiled, initialise, nn, source, tensor, torch


@dataclass(frozen=True)
class Sizes:
    batch: int = 64
    image: int = 28
    channels: tuple[int, int] = (32, 64)
    hidden: int = 128


DEFAULT, SMALL = Sizes(), Sizes(batch=8, image=12, channels=(4, 8), hidden=32)


class Net(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        first, second = sizes.channels
        self.conv1 = nn.Conv2d(1, first, 3, 1)
        self.conv2 = nn.Conv2d(first, second, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(second * ((sizes.image - 4) // 2) ** 2, sizes.hidden)
        self.fc2 = nn.Linear(sizes.hidden, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = self.dropout2(x)
        return F.log_softmax(self.fc2(x), dim=1)


def make(sizes: Sizes) -> Step:
    numbers = source(1)
    count = 16 * sizes.batch
    images = tensor(numbers.standard_normal((count, 1, sizes.image, sizes.image)))
    labels = tensor(numbers.integers(0, 10, count))
    model = initialise(Net(sizes))
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)

    @compiled
    def train(data, target):
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        return loss

    def step(number: int):
        begin = number * sizes.batch % count
        if begin == 0 and number:
            scheduler.step()
        chosen = slice(begin, begin + sizes.batch)
        return train(images[chosen], labels[chosen])

    return step
