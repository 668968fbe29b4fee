"""Run pipeline tables on the cores of one machine, and compare with their simulation.

    python tools/measure_pipeline.py [--threads 4] [--microbatches 8] [--in-turn] [--schedule 1f1b]

A GPT of six layers of 384 is cut over four processes, which take the actions of
`distributed/schedules.py` in order and send arrays through pipes. Each action is timed alone first,
while all others wait; `timeline` makes a step of those times, and the step is measured.

That needs four cores that nobody else uses. With `--in-turn` one process plays all four stages: it
takes whichever action can start first, computes it with what the others sent, and each stage's
clock goes on by the processor's time for it. What is measured is then every action of a real step,
one by one; what it cannot show is how processes disturb one another.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

STAGES, LAYERS, WIDTH, HEADS, WORDS = 4, 6, 384, 6, 512
BATCH, LENGTH, ROUNDS = 4, 256, 5
NAMES = (("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("zero-bubble", 1))


def cut(parts: int) -> list[int]:
    """Layers of each part; the embedding and the head count as one where parts are many."""
    if parts == LAYERS + 2:
        return [0, *[1] * LAYERS, 0]
    return [LAYERS // parts + (part < LAYERS % parts) for part in range(parts)]


class Part:
    """A chunk of the model: what it computes forwards and backwards for a microbatch."""

    def __init__(self, layers: int, first: bool, last: bool) -> None:
        from ridgeline import nn

        self.first, self.last = first, last
        self.table = nn.Embedding(WORDS, WIDTH) if first else None
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(WIDTH, WORDS) if last else None
        self.held: dict[int, tuple[Any, Any]] = {}

    def parameters(self) -> list[Any]:
        modules = [m for m in (self.table, self.layers, self.head) if m is not None]
        return [parameter for module in modules for parameter in module.parameters()]

    def forward(self, microbatch: int, given: Any) -> Any:
        import ridgeline as rl

        x = rl.tensor(given) if self.first else rl.tensor(given).requires_grad_()
        y = self.table(x) if self.table is not None else x
        for layer in self.layers:
            y = layer(y)
        if self.head is not None:
            scores = self.head(y).flatten(0, 1)
            target = rl.zeros((scores.shape[0],), dtype=rl.int64)
            y = rl.nn.functional.cross_entropy(scores, target)
        self.held[microbatch] = (x, y)
        return y.detach().numpy().copy()

    def backward(self, microbatch: int, gradient: Any, kind: str) -> Any:
        """Gradients of inputs (`I`), of weights (`W`), or both (`B`)."""
        import ridgeline as rl

        x, y = self.held[microbatch]
        seed = None if self.last else rl.tensor(gradient)
        weights = [] if kind == "I" else self.parameters()
        inputs = [] if kind == "W" or self.first else [x]
        if not weights and not inputs:
            return None
        found = rl.autograd.grad(y, [*inputs, *weights], seed, retain_graph=kind == "I")
        for one in found:
            one.numpy()
        if kind != "I":
            del self.held[microbatch]
        return found[0].numpy().copy() if inputs else None


def work(stage: int, name: str, chunks: int, count: int, threads: int, ends: Any) -> None:
    """One process: its parts, each action alone, then steps."""
    os.environ["RIDGELINE_THREADS"] = str(threads)
    if hasattr(os, "sched_setaffinity") and os.cpu_count() and os.cpu_count() >= STAGES * threads:
        os.sched_setaffinity(0, range(stage * threads, (stage + 1) * threads))
    import numpy as np

    from ridgeline.distributed.schedules import pipeline_schedule

    receive, send, barrier, results = ends
    schedule = pipeline_schedule(name, STAGES, count, chunks)
    sizes = cut(schedule.parts)
    parts = [
        Part(sizes[c * STAGES + stage], c == stage == 0, c * STAGES + stage == schedule.parts - 1)
        for c in range(chunks)
    ]
    tokens = np.random.default_rng(0).integers(0, WORDS, (BATCH, LENGTH))
    hidden = np.random.default_rng(1).standard_normal((BATCH, LENGTH, WIDTH)).astype("float32")

    def act(action: Any, given: Any) -> Any:
        part = parts[action.chunk]
        if action.kind == "F":
            return part.forward(action.microbatch, tokens if part.first else given)
        return part.backward(action.microbatch, given, action.kind)

    kinds = ("F", "I", "W") if name == "zero-bubble" else ("F", "B")
    row_type = type(schedule.table[0][0])
    alone: dict[tuple[str, int], float] = {}
    for turn in range(STAGES):
        barrier.wait()
        if turn != stage:
            continue
        for chunk in range(chunks):
            times: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(ROUNDS + 2):
                for kind in kinds:
                    start = time.perf_counter()
                    act(row_type(kind, 0, chunk), hidden)
                    times[kind].append(time.perf_counter() - start)
            for kind in kinds:
                alone[kind, chunk] = statistics.median(times[kind][2:])
    steps = []
    for _ in range(ROUNDS):
        barrier.wait()
        begun, busy = time.perf_counter(), 0.0
        boxes: dict[tuple[str, int, int], Any] = {}
        gradients: dict[tuple[int, int], Any] = {}
        for action in schedule.table[stage]:
            part = action.chunk * STAGES + stage
            key = ("F" if action.kind == "F" else "B", action.microbatch, action.chunk)
            given = None
            needs = part > 0 if key[0] == "F" else part < schedule.parts - 1
            if action.kind == "W":
                given = gradients.pop((action.microbatch, action.chunk), None)
            elif needs:
                while key not in boxes:
                    label, value = receive.get()
                    boxes[label] = value
                given = boxes.pop(key)
                if action.kind == "I":
                    gradients[action.microbatch, action.chunk] = given
            start = time.perf_counter()
            made = act(action, given)
            busy += time.perf_counter() - start
            moved = schedule.transfer(stage, action)
            if moved is not None:
                send[moved.receiver].put(((moved.kind, moved.microbatch, moved.chunk), made))
        ended = time.perf_counter()
        barrier.wait()
        steps.append((time.perf_counter() - begun, ended - begun, busy))
    results.put((stage, alone, steps))


def measure(name: str, chunks: int, count: int, threads: int) -> None:
    """One schedule: simulated and measured step, and the share in which each stage is idle."""
    from ridgeline.distributed.schedules import pipeline_schedule

    context = multiprocessing.get_context("spawn")
    boxes = [context.Queue() for _ in range(STAGES)]
    barrier, results = context.Barrier(STAGES), context.Queue()
    workers = [
        context.Process(
            target=work, args=(s, name, chunks, count, threads, (boxes[s], boxes, barrier, results))
        )
        for s in range(STAGES)
    ]
    for worker in workers:
        worker.start()
    found = sorted(results.get(timeout=300) for _ in workers)
    for worker in workers:
        worker.join()
    alone = [times for _, times, _ in found]
    schedule = pipeline_schedule(name, STAGES, count, chunks)
    measured = [statistics.median(step[0] for step in steps) for _, _, steps in found]
    busy = [statistics.median(step[2] for step in steps) for _, _, steps in found]
    step = max(measured)
    compare(schedule, alone, step, [1 - one / step for one in busy])


def in_turn(name: str, chunks: int, count: int) -> None:
    """One schedule whose stages take turns in this process, each with a clock of its own."""
    from ridgeline.distributed.schedules import PipelineAction, pipeline_schedule

    schedule = pipeline_schedule(name, STAGES, count, chunks)
    sizes = cut(schedule.parts)
    last = schedule.parts - 1
    parts = [Part(size, index == 0, index == last) for index, size in enumerate(sizes)]
    kinds = ("F", "I", "W") if name == "zero-bubble" else ("F", "B")
    alone: list[dict[tuple[str, int], float]] = [{} for _ in range(STAGES)]
    for index, part in enumerate(parts):
        chunk, stage = divmod(index, STAGES)
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(ROUNDS + 2):
            for kind in kinds:
                times[kind].append(
                    played(part, PipelineAction(kind, 0, chunk), sample(part, kind))[1]
                )
        for kind in kinds:
            alone[stage][kind, chunk] = statistics.median(times[kind][2:])
    steps = [turns(schedule, parts) for _ in range(ROUNDS)]
    middle = sorted(steps)[ROUNDS // 2]
    compare(schedule, alone, middle[0], [1 - busy / middle[0] for busy in middle[1]])


def sample(part: Part, kind: str) -> Any:
    """What a part is given where no other has sent anything."""
    import numpy as np

    if part.first and kind == "F":
        return np.random.default_rng(0).integers(0, WORDS, (BATCH, LENGTH))
    return np.random.default_rng(1).standard_normal((BATCH, LENGTH, WIDTH)).astype("float32")


def played(part: Part, action: Any, given: Any) -> tuple[Any, float]:
    """What an action gives, and the processor's seconds for it."""
    begun = time.process_time()
    if action.kind == "F":
        made = part.forward(action.microbatch, given)
    else:
        made = part.backward(action.microbatch, given, action.kind)
    return made, time.process_time() - begun


def turns(schedule: Any, parts: list[Part]) -> tuple[float, list[float]]:
    """One step: its length by the stages' clocks, and how long each stage was busy."""
    clocks, busy = [0.0] * STAGES, [0.0] * STAGES
    rows = [list(reversed(row)) for row in schedule.table]
    arrived: dict[tuple[str, int, int, int], tuple[Any, float]] = {}
    gradients: dict[tuple[int, int], Any] = {}
    while any(rows):
        ready = []
        for stage, row in enumerate(rows):
            if row:
                place = needed(schedule, stage, row[-1])
                if place is None or place in arrived:
                    at = arrived[place][1] if place is not None else 0.0
                    ready.append((max(clocks[stage], at), stage, place))
        start, stage, place = min(ready, key=lambda one: one[:2])
        action = rows[stage].pop()
        index = schedule.part(stage, action.chunk)
        given = arrived.pop(place)[0] if place is not None else sample(parts[index], action.kind)
        if action.kind == "W":
            given = gradients.pop((index, action.microbatch))
        elif action.kind == "I":
            gradients[index, action.microbatch] = given
        made, seconds = played(parts[index], action, given)
        clocks[stage] = start + seconds
        busy[stage] += seconds
        moved = schedule.transfer(stage, action)
        if moved is not None:
            key = (moved.kind, moved.receiver, moved.microbatch, moved.chunk)
            arrived[key] = made, clocks[stage]
    return max(clocks), busy


def needed(schedule: Any, stage: int, action: Any) -> tuple[str, int, int, int] | None:
    """Under which key what an action waits for arrives; none where it waits for nothing."""
    if action.kind == "W":
        return None
    kind = "F" if action.kind == "F" else "B"
    end = 0 if kind == "F" else schedule.parts - 1
    if schedule.part(stage, action.chunk) == end:
        return None
    return kind, stage, action.microbatch, action.chunk


def compare(schedule: Any, alone: list[dict[Any, float]], step: float, idle: list[float]) -> None:
    """Print a step as simulated from times of actions alone, and as measured."""
    from ridgeline.distributed.schedules import bubble, timeline

    spans = timeline(schedule, lambda s, action: alone[s][action.kind, action.chunk])
    simulated = max(row[-1].end for row in spans)
    print(
        f"{schedule.name:12} simulated {simulated * 1e3:8.1f} ms, measured {step * 1e3:8.1f} ms "
        f"({simulated / step - 1:+.1%}); idle simulated "
        + " ".join(f"{share:.2f}" for share in bubble(schedule, spans))
        + ", measured "
        + " ".join(f"{share:.2f}" for share in idle),
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--in-turn", action="store_true")
    parser.add_argument("--schedule", choices=[name for name, _ in NAMES], help="one, not all")
    arguments = parser.parse_args()
    if arguments.in_turn:
        os.environ["RIDGELINE_THREADS"] = "1"
    for schedule_name, chunk_count in NAMES:
        if arguments.schedule not in (None, schedule_name):
            continue
        if arguments.in_turn:
            in_turn(schedule_name, chunk_count, arguments.microbatches)
        else:
            measure(schedule_name, chunk_count, arguments.microbatches, arguments.threads)
