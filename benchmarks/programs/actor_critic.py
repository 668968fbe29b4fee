"""An actor and a critic that balance a pole: one observation, and an action read, at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.programs.switch import F, Step, compiled, initialise, nn, source, tensor, torch


@dataclass(frozen=True)
class Sizes:
    hidden: int = 128
    actions: int = 50  # before an update


DEFAULT, SMALL = Sizes(), Sizes(hidden=16, actions=6)
GAMMA = 0.99


class CartPole:
    """A cart that is pushed left or right under a pole; a fallen one is set up again."""

    def __init__(self):
        self.numbers = source(1)
        self.state = self.reset()

    def reset(self):
        self.state = self.numbers.uniform(-0.05, 0.05, 4)
        return self.state

    def step(self, action):
        _, speed, angle, turning = self.state
        force = 10.0 if action == 1 else -10.0
        sine, cosine = math.sin(angle), math.cos(angle)
        pushed = (force + 0.05 * turning**2 * sine) / 1.1
        falling = (9.8 * sine - cosine * pushed) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        moving = pushed - 0.05 * falling * cosine / 1.1
        change = np.array([speed, moving, turning, falling])
        self.state = self.state + 0.02 * change
        done = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2095
        return self.state, 0.0 if done else 1.0, done


class Policy(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.affine1 = nn.Linear(4, sizes.hidden)
        self.action_head = nn.Linear(sizes.hidden, 2)
        self.value_head = nn.Linear(sizes.hidden, 1)
        self.saved_actions = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


def make(sizes: Sizes) -> Step:
    env = CartPole()
    model = initialise(Policy(sizes))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    @compiled
    def act(state):
        probs, state_value = model(state)
        m = torch.distributions.Categorical(probs)
        action = m.sample()
        return action, m.log_prob(action), state_value

    def select_action(state):
        action, log_prob, state_value = act(tensor(state))
        model.saved_actions.append((log_prob, state_value))
        return action.item()

    def finish_episode():
        R = 0.0
        policy_losses, value_losses, returns = [], [], []
        for r in reversed(model.rewards):
            R = r + GAMMA * R
            returns.insert(0, R)
        returns = tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        for (log_prob, value), R in zip(model.saved_actions, returns):
            advantage = R - value.item()
            policy_losses.append(-log_prob * advantage)
            value_losses.append(F.smooth_l1_loss(value, R.reshape(1)))
        optimizer.zero_grad()
        loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
        loss.backward()
        optimizer.step()
        del model.rewards[:]
        del model.saved_actions[:]
        return loss

    def step(number: int):
        state = env.state
        for _ in range(sizes.actions):
            state, reward, done = env.step(select_action(state))
            model.rewards.append(reward)
            if done:
                state = env.reset()
        return finish_episode()

    return step
