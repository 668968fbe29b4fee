"""Meta-learning of sines: a step of descent inside, differentiated by the step outside."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.programs.switch import F, Step, compiled, initialise, nn, source, tensor, torch


@dataclass(frozen=True)
class Sizes:
    tasks: int = 25
    shots: int = 10
    hidden: int = 40


DEFAULT, SMALL = Sizes(), Sizes(tasks=3)
INNER_LR = 0.01


class MAMLModel(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.l1 = nn.Linear(1, sizes.hidden)
        self.l2 = nn.Linear(sizes.hidden, sizes.hidden)
        self.l3 = nn.Linear(sizes.hidden, 1)

    def forward(self, x):
        return self.l3(F.relu(self.l2(F.relu(self.l1(x)))))

    def parameterised(self, x, weights):
        x = F.relu(F.linear(x, weights[0], weights[1]))
        x = F.relu(F.linear(x, weights[2], weights[3]))
        return F.linear(x, weights[4], weights[5])


def sines(sizes: Sizes, number: int):
    """Points of some sines, for the inner step and for the outer one."""
    numbers = source(1, number)
    amplitude = numbers.uniform(0.1, 5.0, (sizes.tasks, 1, 1))
    phase = numbers.uniform(0.0, 3.14159, (sizes.tasks, 1, 1))
    tensors = []
    for _ in range(2):
        x = numbers.uniform(-5.0, 5.0, (sizes.tasks, sizes.shots, 1))
        tensors += [tensor(x), torch.sin(tensor(x) + tensor(phase)) * tensor(amplitude)]
    return tensors


def make(sizes: Sizes) -> Step:
    model = initialise(MAMLModel(sizes))
    criterion = nn.MSELoss()
    meta_optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

    def inner_loop(x, y, x_test, y_test):
        weights = list(model.parameters())
        loss = criterion(model.parameterised(x, weights), y)
        grad = torch.autograd.grad(loss, weights, create_graph=True)
        weights = [w - INNER_LR * g for w, g in zip(weights, grad)]
        return criterion(model.parameterised(x_test, weights), y_test)

    @compiled
    def outer_loop(x, y, x_test, y_test):
        meta_loss = 0
        for task in range(sizes.tasks):
            meta_loss = meta_loss + inner_loop(x[task], y[task], x_test[task], y_test[task])
        meta_optimiser.zero_grad()
        meta_loss = meta_loss / sizes.tasks
        meta_loss.backward()
        meta_optimiser.step()
        return meta_loss

    return lambda number: outer_loop(*sines(sizes, number))
