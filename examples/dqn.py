"""Deep Q-learning on the cart-pole: greedy play keeps the pole up for 195 of 200 steps.

    python examples/dqn.py

A network learns the value of each action from a memory of steps, towards a slowly moving copy.
"""

import argparse
import copy

import numpy as np
from cartpole import CartPoles

import ridgeline as rl
from ridgeline import nn, optim

CARTS, MEMORY, BATCH, DISCOUNT, GOAL = 8, 20_000, 128, 0.99, 195.0


def greedy_reward(values, limit):
    """The mean reward of ten episodes without exploring."""
    carts, alive, total = CartPoles(10, limit, seed=1), np.ones(10, bool), 0
    state = carts.reset()
    for _ in range(limit):
        total += alive.sum()
        state, _, done = carts.step(values(state).argmax(1))
        alive &= ~done
    return total / 10


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6000, help="updates of the network")
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()

    rl.manual_seed(arguments.seed)
    model = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
                          nn.Linear(128, 2)).to(arguments.device)  # fmt: skip
    target = copy.deepcopy(model)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)

    @rl.jit
    def scores(state):
        with rl.no_grad():
            return model(state)

    def values(state):
        return scores(rl.tensor(state, device=arguments.device)).cpu().numpy()

    @rl.jit
    def learn(state, action, after, going_on):
        optimizer.zero_grad()
        with rl.no_grad():
            best = model(after).argmax(1, keepdim=True)  # chosen by one network,
            goal = 1 + DISCOUNT * target(after).gather(1, best) * going_on  # valued by the other
        loss = nn.functional.smooth_l1_loss(model(state).gather(1, action), goal)
        loss.backward()
        optimizer.step()
        with rl.no_grad():
            for slow, fast in zip(target.parameters(), model.parameters()):
                slow.lerp_(fast, 0.01)
        return loss

    carts, random = CartPoles(CARTS, arguments.limit, arguments.seed), np.random.default_rng(0)
    state, place = carts.reset(), 0
    memory = [np.zeros((MEMORY, n), t) for n, t in ((4, "f4"), (1, "i8"), (4, "f4"), (1, "f4"))]
    for step in range(1, arguments.steps + 1):
        explore = random.random(CARTS) < max(0.05, 1 - step / 1000)
        best = values(state).argmax(1)
        action = np.where(explore, random.integers(0, 2, CARTS), best)
        after, fell, _ = carts.step(action)
        slots = np.arange(place, place + CARTS) % MEMORY
        for column, new in zip(memory, (state, action[:, None], after, 1.0 - fell[:, None])):
            column[slots] = new
        place, state = place + CARTS, carts.state.astype(np.float32)
        chosen = random.integers(0, min(place, MEMORY), BATCH)
        learn(*(rl.tensor(column[chosen], device=arguments.device) for column in memory))
        if step % 500 == 0 or step == arguments.steps:
            reward = greedy_reward(values, arguments.limit)
            print(f"step {step}  greedy reward {reward:.1f}")
            if reward >= GOAL:
                print(f"reached {GOAL:g} after {step * CARTS} steps of the carts")
                break


if __name__ == "__main__":
    main()
