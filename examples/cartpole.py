"""A pole on a cart, after Barto, Sutton and Anderson (1983): keep it upright by pushing the cart.

A state is the cart's place and speed and the pole's angle and turning speed; an action pushes left
(0) or right (1). Each step gives a reward of 1 until the pole falls, the cart leaves the track, or
`limit` steps have passed. Many carts run side by side.
"""

import numpy as np

GRAVITY, CART, POLE, HALF_LENGTH, PUSH, STEP = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
EDGE, FALLEN = 2.4, np.deg2rad(12)


class CartPoles:
    """`count` carts; a step moves them all, and those that are done start again."""

    def __init__(self, count: int, limit: int = 200, seed: int = 0) -> None:
        self.count, self.limit = count, limit
        self.random = np.random.default_rng(seed)
        self.state, self.age = self._start(count), np.zeros(count, int)

    def _start(self, count: int) -> np.ndarray:
        return self.random.uniform(-0.05, 0.05, (count, 4))

    def reset(self) -> np.ndarray:
        """New starts for all carts."""
        self.state, self.age = self._start(self.count), np.zeros(self.count, int)
        return self.state.astype(np.float32)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The states after the push (before any new start), which poles fell, and which carts
        started again."""
        x, speed, angle, turning = self.state.T
        force = np.where(actions == 1, PUSH, -PUSH)
        sine, cosine, mass = np.sin(angle), np.cos(angle), CART + POLE
        pull = (force + POLE * HALF_LENGTH * turning**2 * sine) / mass
        turn = (GRAVITY * sine - cosine * pull) / (HALF_LENGTH * (4 / 3 - POLE * cosine**2 / mass))
        move = pull - POLE * HALF_LENGTH * turn * cosine / mass
        self.state = np.stack([x + STEP * speed, speed + STEP * move,
                               angle + STEP * turning, turning + STEP * turn], 1)  # fmt: skip
        self.age += 1
        fell = (np.abs(self.state[:, 0]) > EDGE) | (np.abs(self.state[:, 2]) > FALLEN)
        done, seen = fell | (self.age >= self.limit), self.state.astype(np.float32)
        self.state[done], self.age[done] = self._start(done.sum()), 0
        return seen, fell, done
