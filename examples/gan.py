"""A GAN that learns to make handwritten digits, with a picture of some.

python examples/gan.py --picture gan.png
"""

import argparse

import ridgeline as rl
from ridgeline import optim
from ridgeline.data import DataLoader, TensorDataset, digits
from ridgeline.data.digits import MEAN, STD
from ridgeline.models import GAN
from ridgeline.train import grid, save_png


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--width", type=int, default=16, help="channels of the networks")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--picture", default="gan.png")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()

    rl.manual_seed(0)
    images = (digits("train").images * STD + MEAN).clip(0, 1) * 2 - 1
    loader = DataLoader(TensorDataset(images), arguments.batch, shuffle=True, drop_last=True)
    model = GAN(width=arguments.width).to(arguments.device)
    makes = optim.Adam(model.generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    tells = optim.Adam(model.discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    steady = optim.swa_utils.AveragedModel(model, avg_fn=optim.swa_utils.get_ema_avg_fn(0.99))

    @rl.jit
    def step(real):
        tells.zero_grad()
        apart = model.discriminator_loss(real)
        apart.backward()
        tells.step()
        makes.zero_grad()
        passing = model.generator_loss(len(real))
        passing.backward()
        makes.step()
        return apart, passing

    for epoch in range(arguments.epochs):
        losses = []
        for (real,) in loader:
            losses.append([float(loss) for loss in step(real.to(arguments.device))])
            steady.update_parameters(model)
        apart, passing = (sum(column) / len(losses) for column in zip(*losses))
        print(f"epoch {epoch + 1}  discriminator {apart:.4f}  generator {passing:.4f}")

    steady.eval()  # an average of the weights makes smoother digits than the last ones do
    with rl.no_grad():
        made = steady.module.sample(64).cpu() / 2 + 0.5
    save_png(arguments.picture, grid(made, 8))
    print(f"picture: {arguments.picture}")


if __name__ == "__main__":
    main()
