"""Two convolutional networks that train against each other, each with an Adam of its own."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.programs.switch import Step, compiled, device, initialise, nn, source, tensor, torch


@dataclass(frozen=True)
class Sizes:
    batch: int = 64
    image: int = 64
    nz: int = 100
    features: int = 64


DEFAULT, SMALL = Sizes(), Sizes(batch=4, image=16, nz=16, features=8)


def doublings(image: int) -> int:
    """How often 4x4 pixels double until there are half of the image's."""
    return (image // 8).bit_length() - 1


class Generator(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        wide = sizes.features << doublings(sizes.image)
        layers = [
            nn.ConvTranspose2d(sizes.nz, wide, 4, 1, 0, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU(True),
        ]
        while wide > sizes.features:
            layers += [
                nn.ConvTranspose2d(wide, wide // 2, 4, 2, 1, bias=False),
                nn.BatchNorm2d(wide // 2),
                nn.ReLU(True),
            ]
            wide //= 2
        layers += [nn.ConvTranspose2d(wide, 3, 4, 2, 1, bias=False), nn.Tanh()]
        self.main = nn.Sequential(*layers)

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        wide = sizes.features
        layers = [nn.Conv2d(3, wide, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
        for _ in range(doublings(sizes.image)):
            layers += [
                nn.Conv2d(wide, wide * 2, 4, 2, 1, bias=False),
                nn.BatchNorm2d(wide * 2),
                nn.LeakyReLU(0.2, inplace=True),
            ]
            wide *= 2
        layers += [nn.Conv2d(wide, 1, 4, 1, 0, bias=False), nn.Sigmoid()]
        self.main = nn.Sequential(*layers)

    def forward(self, input):
        return self.main(input).view(-1, 1).squeeze(1)


def make(sizes: Sizes) -> Step:
    count = 4 * sizes.batch
    images = tensor(source(1).uniform(-1, 1, (count, 3, sizes.image, sizes.image)))
    netG, netD = initialise(Generator(sizes), 0.02), initialise(Discriminator(sizes), 0.02)
    criterion = nn.BCELoss()
    optimizerD = torch.optim.Adam(netD.parameters(), lr=0.0002, betas=(0.5, 0.999))
    optimizerG = torch.optim.Adam(netG.parameters(), lr=0.0002, betas=(0.5, 0.999))

    @compiled
    def train(real):
        # the discriminator: real images, then made ones
        netD.zero_grad()
        label = torch.full((real.size(0),), 1.0, dtype=real.dtype, device=device)
        errD_real = criterion(netD(real), label)
        errD_real.backward()
        noise = torch.randn(real.size(0), sizes.nz, 1, 1, device=device)
        fake = netG(noise)
        label.fill_(0.0)
        errD_fake = criterion(netD(fake.detach()), label)
        errD_fake.backward()
        optimizerD.step()
        # the generator: made images that shall pass for real ones
        netG.zero_grad()
        label.fill_(1.0)
        errG = criterion(netD(fake), label)
        errG.backward()
        optimizerG.step()
        return errD_real + errD_fake + errG

    def step(number: int):
        begin = number * sizes.batch % count
        return train(images[begin : begin + sizes.batch])

    return step
