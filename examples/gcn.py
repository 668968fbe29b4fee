"""A graph network on Zachary's karate club: two labelled members, the sides of all the others.

python examples/gcn.py
"""

import argparse

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.data import karate_club
from ridgeline.models import GCN


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()

    rl.manual_seed(0)
    edges, sides = (rl.tensor(array, device=arguments.device) for array in karate_club())
    members = len(sides)
    # nothing is known of a member but who they are
    features = rl.eye(members, device=arguments.device)
    leaders = rl.tensor([0, members - 1])
    model = GCN((members, 16, 2)).to(arguments.device)
    optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

    @rl.jit
    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(features, edges)[leaders], sides[leaders])
        loss.backward()
        optimizer.step()
        return loss

    for epoch in range(arguments.epochs):
        loss = float(step())
        if (epoch + 1) % 20 == 0 or epoch + 1 == arguments.epochs:
            print(f"epoch {epoch + 1}  loss {loss:.4f}")

    model.eval()
    with rl.no_grad():
        right = int((model(features, edges).argmax(1) == sides).sum())
    print(f"{right} of {members} members on the right side")


if __name__ == "__main__":
    main()
