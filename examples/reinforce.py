"""REINFORCE on the cart-pole: a policy that keeps the pole up for 195 of 200 steps on average.

    python examples/reinforce.py

Each update plays 16 episodes; an action is made likelier by the sum of rewards that followed it.
"""

import argparse

import numpy as np
from cartpole import CartPoles

import ridgeline as rl
from ridgeline import nn, optim

EPISODES, GOAL = 16, 195.0


def play(policy, carts):
    """One episode of every cart: states and actions [steps, carts], and which count."""
    state, alive = carts.reset(), np.ones(carts.count, bool)
    states, actions, counts = [], [], []
    for _ in range(carts.limit):
        likely = policy(state)
        action = (carts.random.random(carts.count) < likely).astype(np.int64)
        states.append(state), actions.append(action), counts.append(alive)
        state, _, done = carts.step(action)
        alive = alive & ~done
    return np.stack(states), np.stack(actions), np.stack(counts).astype(np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=150)
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()

    rl.manual_seed(arguments.seed)
    model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1)).to(arguments.device)
    optimizer = optim.Adam(model.parameters(), lr=0.01)

    @rl.jit
    def chance(state):
        with rl.no_grad():
            return model(state)[:, 0].sigmoid()

    def right(state):
        return chance(rl.tensor(state, device=arguments.device)).cpu().numpy()

    @rl.jit
    def learn(states, actions, advantages):
        optimizer.zero_grad()
        scores = model(states)[:, :, 0]
        unlikely = nn.functional.binary_cross_entropy_with_logits(scores, actions, reduction="none")
        loss = (unlikely * advantages).sum() / EPISODES
        loss.backward()
        optimizer.step()
        return loss

    carts, recent = CartPoles(EPISODES, arguments.limit, arguments.seed), []
    for update in range(1, arguments.updates + 1):
        states, actions, counts = play(right, carts)
        rewards = np.cumsum(counts[::-1], 0)[::-1]  # to come, at each step
        mean = (rewards * counts).sum() / counts.sum()
        spread = np.sqrt((((rewards - mean) * counts) ** 2).sum() / counts.sum())
        advantages = ((rewards - mean) / (spread + 1e-8) * counts).astype(np.float32)
        batch = (states, actions.astype(np.float32), advantages)
        learn(*(rl.tensor(array, device=arguments.device) for array in batch))
        recent = [*recent[-9:], counts.sum() / EPISODES]
        if update % 10 == 0 or update == arguments.updates:
            print(f"update {update}  reward {np.mean(recent):.1f} (mean of {len(recent)} updates)")
        if len(recent) == 10 and np.mean(recent) >= GOAL:
            print(f"reached {GOAL:g} after {update * EPISODES} episodes")
            break


if __name__ == "__main__":
    main()
