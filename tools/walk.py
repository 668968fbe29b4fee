"""Fill the printed stages into ARCHITECTURE.md: `python tools/walk.py` writes, `--check` compares.

The stages are those of one LeNet-5 training step, compiled for a fixed machine (two cores, 256-bit
vectors), so that the text does not depend on where it was made.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.codegen.llvm.emit import module_text
from ridgeline.compiler import lay_out, lower_graph
from ridgeline.compiler.explain import kernel_row, quantity
from ridgeline.compiler.pipeline import CHECK, LOWER, OPTIMIZE, PREPARE
from ridgeline.graph.graph import Graph
from ridgeline.graph.printer import format_graph
from ridgeline.loops.text.printer import print_kernel
from ridgeline.runtime.cpu.backend import CpuBackend
from ridgeline.schedules.machine import Machine

DOCUMENT = Path(__file__).parents[1] / "ARCHITECTURE.md"
MACHINE = Machine(32, 16, 2, 32 << 10, 512 << 10, 32 << 20)


def capture() -> Graph:
    """The graph of the step."""
    rl.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 3), nn.ReLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(576, 120), nn.ReLU(), nn.Linear(120, 84),
        nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    @rl.jit
    def step(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = rl.tensor(np.zeros((64, 1, 32, 32), np.float32)), rl.tensor(np.zeros(64, np.int64))
    step(x, y)
    step(x, y)  # momentum exists from the second step on
    return step.program.graph


def sections() -> dict[str, str]:
    """The printed stages by name."""
    graph = capture()
    stages = lower_graph(graph, MACHINE)
    layout = lay_out(stages, CpuBackend())
    first = stages.kernels[0]
    rows = [kernel_row(k) for k in stages.kernels]
    table = ["kernel                                     FLOP        bytes   FLOP/B"]
    for row in rows:
        name = row.name.rsplit("_", 1)[0]
        table.append(
            f"{name:<36} {quantity(row.flops, ''):>10} {quantity(row.nbytes, ''):>12}"
            f" {row.intensity:>8.1f}"
        )
    ir = module_text([first.kernel], MACHINE.vector_bytes)
    inner = [line for line in ir.splitlines() if "llvm.fma" in line and "=" in line]
    refused = [f"{r.first} + {r.second}: {r.reason}" for r in stages.fusion.refusals]
    return {
        "passes": passes(),
        "graph": format_graph(graph.outputs[:1], origins=False, at_most=24),
        "groups": "\n".join(table),
        "refusals": "\n".join(dict.fromkeys(refused[:5])),
        "loops": print_kernel(first.group.loops.kernel),
        "schedule": "\n".join(map(repr, first.steps)),
        "scheduled": print_kernel(first.kernel),
        "code": "\n".join(inner[:4]),
        "plan": f"{len(layout.calls)} kernel calls, {layout.inputs} inputs, "
        f"{len(layout.made)} results, arena {layout.arena_bytes} bytes for "
        f"{layout.peak_live} bytes alive at the peak",
    }


def passes() -> str:
    """The compiler's passes in order, under the names of their lists."""
    lists = {"PREPARE": PREPARE, "CHECK": CHECK, "OPTIMIZE": OPTIMIZE, "LOWER": LOWER}
    return "\n".join(
        f"{title:<9} {each.name:<19} {each.doc}"
        for title, listed in (*lists.items(), ("LEGALIZE", CpuBackend().legalize()))
        for each in listed
    )


def filled(text: str) -> str:
    """The document with every marked block replaced by its stage."""
    for name, stage in sections().items():
        block = f"<!-- walk:{name} -->\n```\n{stage.rstrip()}\n```\n<!-- end -->"
        pattern = rf"<!-- walk:{name} -->.*?<!-- end -->"
        text, count = re.subn(pattern, lambda _, block=block: block, text, flags=re.DOTALL)
        if count != 1:
            sys.exit(f"ARCHITECTURE.md needs the marker walk:{name} once, has it {count} times")
    return text


def main() -> None:
    """Write the document, or compare it."""
    old = DOCUMENT.read_text()
    new = filled(old)
    if "--check" in sys.argv:
        sys.exit(0 if new == old else "ARCHITECTURE.md is out of date: run python tools/walk.py")
    DOCUMENT.write_text(new)


if __name__ == "__main__":
    main()
