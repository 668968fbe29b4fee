"""A LeNet-5 training step, batch 64: forward, cross-entropy, backward, SGD with momentum."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.frameworks import torch_module
from benchmarks.workload import (
    COMPILED,
    DEFERRED,
    JAX,
    OURS,
    TORCH,
    Arrays,
    Builder,
    Runner,
    Workload,
    generator,
    once_called,
)

BATCH, LR, MOMENTUM = 64, 1e-3, 0.9
SHAPES = {
    "0.weight": (6, 1, 3, 3), "0.bias": (6,), "3.weight": (16, 6, 3, 3), "3.bias": (16,),
    "7.weight": (120, 576), "7.bias": (120,), "9.weight": (84, 120), "9.bias": (84,),
    "11.weight": (10, 84), "11.bias": (10,),
}  # fmt: skip


def inputs() -> Arrays:
    """Images, labels and initial weights, which every candidate starts from."""
    source = generator()
    arrays: Arrays = {
        "images": source.standard_normal((BATCH, 1, 32, 32), np.float32),
        "labels": source.integers(0, 10, BATCH),
    }
    for name, shape in SHAPES.items():
        fan_in = np.prod(SHAPES[name.replace("bias", "weight")][1:])
        arrays[name] = source.uniform(-1, 1, shape).astype(np.float32) / np.sqrt(fan_in, dtype="f4")
    return arrays


def network(nn: Any) -> Any:
    """The model in torch's or ridgeline's modules."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(576, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def _step(lib: Any, model: Any) -> Any:
    optimizer = lib.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _runner(step: Any, x: Any, y: Any, model: Any) -> Runner:
    """The loss of the first step and the weights after it are what is compared."""
    kept: dict[str, Any] = {}

    def call() -> float:
        loss = step(x, y).item()
        if not kept:
            values = {k: v.detach().numpy().copy() for k, v in model.state_dict().items()}
            kept.update(loss=np.asarray(loss), **values)
        return float(loss)

    return Runner(call, lambda: kept)


def torch_step(compiled: bool = False, dtype: str = "float32") -> Builder:
    """torch, eager or with forward and backward compiled."""

    def build(arrays: Arrays) -> Runner:
        torch = torch_module()
        model = network(torch.nn)
        weights = {name: torch.from_numpy(arrays[name]) for name in SHAPES}
        model.load_state_dict(weights)
        model = model.to(getattr(torch, dtype))
        step = _step(torch, model)
        x = torch.from_numpy(arrays["images"]).to(getattr(torch, dtype))
        run = torch.compile(step) if compiled else step
        return _runner(run, x, torch.from_numpy(arrays["labels"]), model)

    return build


def ridgeline_step(jit: bool) -> Builder:
    """ridgeline, with or without the decorator."""

    def build(arrays: Arrays) -> Runner:
        import ridgeline as rl

        model = network(rl.nn)
        model.load_state_dict({name: rl.tensor(arrays[name]) for name in SHAPES})
        step = _step(rl, model)
        run = rl.jit(step) if jit else step
        return _runner(run, rl.tensor(arrays["images"]), rl.tensor(arrays["labels"]), model)

    return build


def jax_forward(jax: Any) -> Any:
    """The network as a JAX function of weights by name and images."""
    numpy, lax = jax.numpy, jax.lax

    def block(x: Any, weight: Any, bias: Any) -> Any:
        y = lax.conv(x, weight, (1, 1), "VALID") + bias[None, :, None, None]
        total = lax.reduce_window(jax.nn.relu(y), 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        return total / 4

    def forward(w: Any, x: Any) -> Any:
        x = block(x, w["0.weight"], w["0.bias"])
        x = block(x, w["3.weight"], w["3.bias"]).reshape(x.shape[0], -1)
        x = jax.nn.relu(x @ w["7.weight"].T + w["7.bias"])
        x = jax.nn.relu(x @ w["9.weight"].T + w["9.bias"])
        return numpy.asarray(x @ w["11.weight"].T + w["11.bias"])

    return forward


def jax_step(arrays: Arrays) -> Runner:
    """JAX: one jitted function from weights and velocities to the next ones, buffers donated."""
    import jax

    forward = jax_forward(jax)

    def loss_of(weights: Any, x: Any, y: Any) -> Any:
        logs = jax.nn.log_softmax(forward(weights, x))
        return -jax.numpy.take_along_axis(logs, y[:, None], 1).mean()

    def step(weights: Any, velocity: Any, x: Any, y: Any) -> Any:
        loss, slope = jax.value_and_grad(loss_of)(weights, x, y)
        velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, slope)
        weights = jax.tree.map(lambda w, v: w - LR * v, weights, velocity)
        return weights, velocity, loss

    run = jax.jit(step, donate_argnums=(0, 1))
    weights = {name: jax.numpy.asarray(arrays[name]) for name in SHAPES}
    state = [weights, jax.tree.map(jax.numpy.zeros_like, weights)]
    x, y = jax.numpy.asarray(arrays["images"]), jax.numpy.asarray(arrays["labels"], "int32")
    kept: dict[str, Any] = {}

    def call() -> float:
        state[0], state[1], loss = run(state[0], state[1], x, y)
        value = float(loss)
        if not kept:
            values = {k: np.array(v) for k, v in state[0].items()}
            kept.update(loss=np.asarray(value), **values)
        return value

    return Runner(call, lambda: kept)


WORKLOAD = Workload(
    name="lenet_step",
    title="LeNet-5 train step B64",
    inputs=inputs,
    reference=once_called(torch_step(dtype="float64")),
    builders={
        OURS: ridgeline_step(jit=True),
        DEFERRED: ridgeline_step(jit=False),
        TORCH: torch_step(),
        COMPILED: torch_step(compiled=True),
        JAX: jax_step,
    },
    tolerance=1e-5,
)
