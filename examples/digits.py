"""LeNet-5 on the bundled handwritten digits, as a plain PyTorch-like loop.

python examples/digits.py
"""

import argparse

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.data import DataLoader, TensorDataset, digits
from ridgeline.data.transforms import RandomAffine
from ridgeline.models import lenet5


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--workers", type=int, default=0, help="processes that load data")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()

    rl.manual_seed(0)
    train, test = digits("train"), digits("test")
    loader = DataLoader(
        TensorDataset(train.images, train.labels), batch_size=64, shuffle=True, drop_last=True,
        num_workers=arguments.workers, transform=RandomAffine(10.0, 2.0, 0.1),
    )  # fmt: skip
    model = lenet5().to(arguments.device)
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    @rl.jit
    def step(images, labels):
        images, labels = images.to(arguments.device), labels.to(arguments.device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    for epoch in range(arguments.epochs):
        losses = [float(step(images, labels)) for images, labels in loader]
        print(f"epoch {epoch + 1}  loss {sum(losses) / len(losses):.4f}")

    model.eval()
    with rl.no_grad():
        predicted = model(rl.tensor(test.images, device=arguments.device)).argmax(1)
    right = (predicted.cpu() == rl.tensor(test.labels)).sum()
    print(f"test accuracy {int(right) / len(test):.2%}")


if __name__ == "__main__":
    main()
