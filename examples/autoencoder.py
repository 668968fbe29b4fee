"""A denoising autoencoder of handwritten digits, with a picture of its reconstructions.

    python examples/autoencoder.py --picture autoencoder.png

The picture shows test images, the same with noise, and what the model makes of the noisy ones.
"""

import argparse

import numpy as np

import ridgeline as rl
from ridgeline import optim
from ridgeline.data import DataLoader, TensorDataset, digits
from ridgeline.data.digits import MEAN, STD
from ridgeline.models import DenoisingAutoencoder
from ridgeline.train import grid, save_png

SIDE, NOISE, SHOWN = 16, 0.4, 10


def pixels(part):
    """A part's images as rows of ink in 0…1."""
    return (digits(part, SIDE).images * STD + MEAN).clip(0, 1).reshape(-1, SIDE * SIDE)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--picture", default="autoencoder.png")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()

    rl.manual_seed(0)
    loader = DataLoader(TensorDataset(pixels("train")), 64, shuffle=True, drop_last=True)
    model = DenoisingAutoencoder((SIDE * SIDE, 256, 64), NOISE).to(arguments.device)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)

    @rl.jit
    def step(x):
        optimizer.zero_grad()
        loss = model.loss(x)
        loss.backward()
        optimizer.step()
        return loss

    for epoch in range(arguments.epochs):
        losses = [float(step(x.to(arguments.device))) for (x,) in loader]
        print(f"epoch {epoch + 1}  loss {sum(losses) / len(losses):.5f}")

    model.eval()
    clean = rl.tensor(pixels("test"), device=arguments.device)
    noisy = clean + NOISE * rl.randn_like(clean)
    with rl.no_grad():
        made = model(noisy)
    before, after = (float(((x - clean) ** 2).mean()) for x in (noisy, made))
    print(f"mean square error {before:.4f} with noise, {after:.4f} reconstructed")
    rows = np.concatenate([x[:SHOWN].cpu().numpy() for x in (clean, noisy, made)])
    save_png(arguments.picture, grid(rows.reshape(-1, 1, SIDE, SIDE), SHOWN))
    print(f"picture: {arguments.picture}")


if __name__ == "__main__":
    main()
