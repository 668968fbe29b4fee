"""Fine-tuning: a network that knows the digits learns to tell odd from even by a few examples.

    python examples/fine_tune.py

The first training leaves a safetensors file. The second starts from it with a new last layer,
trains that layer alone, then everything at a lower rate, and beats the same network from scratch.
"""

import argparse
from pathlib import Path

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.data import DataLoader, TensorDataset, digits
from ridgeline.models import lenet5
from ridgeline.train import load_weights, save_weights


def part(name, classes, count=None):
    """Images, with their digit (10 classes) or whether it is odd (2 classes)."""
    split = digits(name)
    return TensorDataset(split.images[:count], split.labels[:count] % classes)


def learn(model, parameters, data, lr, epochs):
    """Train some parameters of a model."""
    optimizer = optim.SGD(parameters, lr=lr, momentum=0.9)

    @rl.jit
    def step(images, labels):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    loader = DataLoader(data, 16, shuffle=True, drop_last=True)
    place = next(model.parameters()).device
    for _ in range(epochs):
        losses = [float(step(*(b.to(place) for b in batch))) for batch in loader]
    print(f"  loss {sum(losses) / len(losses):.4f}")


def accuracy(model, data):
    """The share of images recognised."""
    place = next(model.parameters()).device
    images, labels = (rl.tensor(array, device=place) for array in data.tensors)
    with rl.no_grad():
        return float((model(images).argmax(1) == labels).to(rl.float32).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--images", type=int, default=48, help="labelled odd or even")
    parser.add_argument("--file", type=Path, default=Path("runs/fine_tune.safetensors"))
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()

    rl.manual_seed(0)
    known, few, test = part("train", 10), part("train", 2, arguments.images), part("test", 2)
    print("ten digits")
    model = lenet5().to(arguments.device)
    learn(model, model.parameters(), known, 0.02, arguments.epochs)
    save_weights(arguments.file, model.state_dict())

    print(f"odd or even, from {len(few)} images: the last layer, then all")
    tuned = lenet5()
    tuned.load_state_dict(load_weights(arguments.file))
    tuned[-1] = nn.Linear(84, 2)
    tuned.to(arguments.device)
    learn(tuned, tuned[-1].parameters(), few, 0.02, arguments.epochs)
    learn(tuned, tuned.parameters(), few, 0.005, arguments.epochs)
    print("the same from scratch")
    fresh = lenet5(2).to(arguments.device)
    learn(fresh, fresh.parameters(), few, 0.02, 2 * arguments.epochs)
    print(f"test accuracy {accuracy(tuned, test):.1%} tuned, {accuracy(fresh, test):.1%} fresh")


if __name__ == "__main__":
    main()
