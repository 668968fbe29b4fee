"""A variational autoencoder: noise by reparameterisation, two losses that are summed."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.programs.switch import F, Step, compiled, initialise, nn, source, tensor, torch


@dataclass(frozen=True)
class Sizes:
    batch: int = 128
    pixels: int = 784
    hidden: int = 400
    latent: int = 20


DEFAULT, SMALL = Sizes(), Sizes(batch=32, pixels=64, hidden=32, latent=4)


class VAE(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.pixels = sizes.pixels
        self.fc1 = nn.Linear(sizes.pixels, sizes.hidden)
        self.fc21 = nn.Linear(sizes.hidden, sizes.latent)
        self.fc22 = nn.Linear(sizes.hidden, sizes.latent)
        self.fc3 = nn.Linear(sizes.latent, sizes.hidden)
        self.fc4 = nn.Linear(sizes.hidden, sizes.pixels)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, self.pixels))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x.view(-1, x.shape[-1]), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


def make(sizes: Sizes) -> Step:
    count = 16 * sizes.batch
    images = tensor(source(1).uniform(0, 1, (count, sizes.pixels)))
    model = initialise(VAE(sizes))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    @compiled
    def train(data):
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        optimizer.step()
        return loss

    def step(number: int):
        begin = number * sizes.batch % count
        return train(images[begin : begin + sizes.batch])

    return step
