"""Attack: undecorated training programs with several backward passes, and everything in between."""

from __future__ import annotations

from tests.attacks.attack import Attack
from tests.fuzz.faults import Fault
from tests.fuzz.train import find
from tests.fuzz.ways import torch


def trial(seed: int) -> None:
    """Raise where a training program leaves behind what it does not in torch."""
    if torch is None:
        return
    torch.set_num_threads(1)  # waking its pool takes longer than these ops
    said = find(seed)
    if said is not None:
        raise AssertionError(said)


ATTACK = Attack(
    "training",
    "a training step gives torch's gradients, however often it goes backward and reads in between",
    trial,
    short=60,
    faults=(
        Fault("gradients go on through what was detached", "ops.differentiate",
              "flowing", "op is STOP_GRADIENT or op is VARIABLE", "op is VARIABLE"),
        Fault("a write that no gradient sees is differentiated", "record.values", "write",
              "elif former.mode == GRAPH:", "elif False:"),
        Fault("a graph that is to be retained is let go", "autograd.engine", "backward",
              "if not (create_graph if retain_graph is None else retain_graph):", "if True:"),
        Fault("a second pass finds no graph where no value is needed",
              "graph.passes.autodiff.saved_values", "reads_values", "in op.linear", "in ()"),
    ),
)  # fmt: skip
