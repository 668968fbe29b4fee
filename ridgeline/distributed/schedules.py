"""Pipeline schedules as data: for every stage the list of what it computes, in order.

A schedule is a table of actions, one row a stage. An action is the forward pass of a microbatch
through a chunk of layers (`F`), its whole backward pass (`B`), or the two halves of a split one:
gradients of the inputs (`I`), which the stage before waits for, and of the weights (`W`), which
nobody waits for. Stage `s` of `p` holds the chunks `s, s + p, s + 2p, …` of the model, `chunks` of
them. What executes a table and what simulates it read the same rows.

    schedule = pipeline_schedule("1f1b", stages=4, microbatches=8)
    print(schedule)                      # drawn over time, if F takes 1 and a backward pass 2
    schedule.table[0]                    # the actions of stage 0
    timeline(schedule, durations)        # when each starts and ends
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ridgeline.errors import BadValueError, RidgelineError

FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "F", "B", "I", "W"
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")


class PipelineAction(NamedTuple):
    """One pass (`F`, `B`, `I` or `W`) of one microbatch through one chunk of a stage."""

    kind: str
    microbatch: int
    chunk: int

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}" + (f".{self.chunk}" if self.chunk else "")


class Transfer(NamedTuple):
    """What a stage sends after an action; `kind` is `F` for activations, `B` for gradients.

    The receiver needs it before its action on `microbatch` and `chunk`, its own chunk there.
    """

    kind: str
    receiver: int
    microbatch: int
    chunk: int


@dataclass(frozen=True)
class PipelineSchedule:
    """Who computes what in which order: a row of actions for each stage."""

    name: str
    stages: int
    microbatches: int
    chunks: int
    table: tuple[tuple[PipelineAction, ...], ...]

    @property
    def parts(self) -> int:
        """How many pieces the model is cut into."""
        return self.stages * self.chunks

    @cached_property
    def places(self) -> list[tuple[list[int], list[int]]]:
        """For each stage where what its actions need arrives, and what they send; -1 for nothing.

        A simulation looks here for every action: a table is looked through once.
        """
        return [_row_places(self, stage) for stage in range(self.stages)]

    def part(self, stage: int, chunk: int) -> int:
        """Which piece of the model a chunk of a stage is, counted from the input."""
        return chunk * self.stages + stage

    def transfer(self, stage: int, action: PipelineAction) -> Transfer | None:
        """What `stage` sends once `action` is done: to the next part forwards, the last backwards.

        With one stage nothing is sent: the next part is on the same stage.
        """
        if action.kind == WEIGHT_GRADIENT or self.stages == 1:
            return None
        step = 1 if action.kind == FORWARD else -1
        there = self.part(stage, action.chunk) + step
        if not 0 <= there < self.parts:
            return None
        kind = FORWARD if step == 1 else BACKWARD
        chunk, receiver = divmod(there, self.stages)
        return Transfer(kind, receiver, action.microbatch, chunk)

    def peak_activations(self) -> tuple[int, ...]:
        """For each stage, the most (microbatch, chunk) pairs whose activations it holds at once."""
        return tuple(max(_held(row), default=0) for row in self.table)

    def __str__(self) -> str:
        return draw(self)


def pipeline_schedule(
    name: str, stages: int, microbatches: int, chunks: int = 1, *, held: int | None = None
) -> PipelineSchedule:
    """The table of a schedule by name: `gpipe`, `1f1b`, `interleaved` or `zero-bubble`.

    `held` bounds the microbatches whose activations a stage of `zero-bubble` keeps: `stages`, as
    1F1B does (ZB-H1), unless told otherwise; twice as many leave no bubble (ZB-H2).
    """
    for what, value in (("stages", stages), ("microbatches", microbatches), ("chunks", chunks)):
        if value < 1:
            raise BadValueError(f"a pipeline schedule of {value} {what}", help="give at least 1")
    if name not in SCHEDULES:
        raise BadValueError(
            f"there is no pipeline schedule {name!r}", help=f"take one of {', '.join(SCHEDULES)}"
        )
    if chunks > 1 and name != "interleaved":
        raise BadValueError(
            f"the schedule {name!r} has one chunk a stage, not {chunks}", help="take 'interleaved'"
        )
    if held is not None and (name != "zero-bubble" or held < 1):
        raise BadValueError(
            f"held={held} for the schedule {name!r}", help="only 'zero-bubble' takes it, 1 or more"
        )
    if name == "zero-bubble":
        table = _split_backward(stages, microbatches, held or stages)
    elif name == "gpipe":
        table = (_all_forward_first(microbatches),) * stages
    else:
        table = _one_forward_one_backward(stages, microbatches, chunks)
    return PipelineSchedule(name, stages, microbatches, chunks, table)


def _all_forward_first(microbatches: int) -> tuple[PipelineAction, ...]:
    order = range(microbatches)
    forward = [PipelineAction(FORWARD, i, 0) for i in order]
    return (*forward, *(PipelineAction(BACKWARD, i, 0) for i in order))


def _one_forward_one_backward(
    stages: int, microbatches: int, chunks: int
) -> tuple[tuple[PipelineAction, ...], ...]:
    """Forward passes until the first gradient can arrive, then one of each in turn.

    Chunks are visited by runs of microbatches. A run of at least `stages` never waits for its own
    first microbatch to come round; where stages do not divide microbatches, runs are longer
    instead of the last being short, at the price of a few more activations held.
    """
    runs = _runs(microbatches, stages)
    forward = [
        PipelineAction(FORWARD, i, chunk) for run in runs for chunk in range(chunks) for i in run
    ]
    backward = [
        PipelineAction(BACKWARD, i, chunk)
        for run in runs
        for chunk in reversed(range(chunks))
        for i in run
    ]
    table = []
    for behind in reversed(range(stages)):
        warm_up = behind if chunks == 1 else 2 * behind + (chunks - 1) * len(runs[0])
        warm_up = min(warm_up, len(forward))
        steady = zip(forward[warm_up:], backward)
        alternating = [action for pair in steady for action in pair]
        table.append((*forward[:warm_up], *alternating, *backward[len(forward) - warm_up :]))
    return tuple(table)


def _runs(microbatches: int, stages: int) -> list[range]:
    """Microbatches cut into runs of at least `stages` (all of them where there are fewer)."""
    count = max(1, microbatches // stages)
    short, longer = divmod(microbatches, count)
    ends = [0]
    for index in range(count):
        ends.append(ends[-1] + short + (index < longer))
    return [range(start, end) for start, end in itertools.pairwise(ends)]


def _split_backward(
    stages: int, microbatches: int, held: int
) -> tuple[tuple[PipelineAction, ...], ...]:
    """1F1B whose backward passes are split: weight gradients lag, and fill what was a bubble.

    Room for more than 1F1B holds goes into forward passes ahead of the first gradient, as many as
    fit before it arrives; what is left of it lets weight gradients lag.
    """
    forward, inputs, weights = (
        [PipelineAction(kind, i, 0) for i in range(microbatches)]
        for kind in (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)
    )
    table = []
    for behind in reversed(range(stages)):
        warm_up = min(behind + max(0, min(held - stages, behind)), held - 1, microbatches)
        lag = held - 1 - warm_up
        row = forward[:warm_up]
        for i in range(microbatches):
            row += forward[warm_up + i : warm_up + i + 1]
            row.append(inputs[i])
            if i >= lag:
                row.append(weights[i - lag])
        table.append((*row, *weights[max(0, microbatches - lag) :]))
    return tuple(table)


def _held(row: tuple[PipelineAction, ...]) -> Iterator[int]:
    """After each action, how many forward passes still wait for the end of their backward one."""
    held = 0
    for action in row:
        held += {FORWARD: 1, INPUT_GRADIENT: 0}.get(action.kind, -1)
        yield held


class ActionSpan(NamedTuple):
    """When an action of a stage starts and ends."""

    start: float
    end: float


Duration = Callable[[int, PipelineAction], float]
"""Seconds that an action takes on a stage."""
Delay = Callable[[int, Transfer], float]
"""Seconds from the end of an action on a stage until what it sent has arrived."""


def timeline(
    schedule: PipelineSchedule, duration: Duration, delay: Delay | float = 0.0
) -> list[list[ActionSpan]]:
    """When every action runs if each stage takes them in order, each once its inputs are there.

    `delay` is that of each transfer, or one for all. A table in which stages wait for one another
    in a circle is refused, with the actions they wait in.
    """
    costs = [[duration(stage, one) for one in row] for stage, row in enumerate(schedule.table)]
    late = delay if isinstance(delay, float) else _delays(schedule, delay)
    starts, ends = action_times(schedule, costs, late)
    return [[*map(ActionSpan, *times)] for times in zip(starts, ends)]


def action_times(
    schedule: PipelineSchedule, costs: list[list[float]], delay: list[list[float]] | float = 0.0
) -> tuple[list[list[float]], list[list[float]]]:
    """`timeline` with the seconds of every action by stage: when each starts, and when it ends."""
    stages = schedule.stages
    # What arrives has a place: activations of a microbatch for a part, then gradients.
    arrived = [-1.0] * (2 * schedule.parts * schedule.microbatches)
    waiting: dict[int, int] = {}
    starts: list[list[float]] = [[] for _ in range(stages)]
    ends: list[list[float]] = [[] for _ in range(stages)]
    runnable = list(range(stages))
    while runnable:
        stage = runnable.pop()
        (needed, sent), cost = schedule.places[stage], costs[stage]
        started, ended = starts[stage], ends[stage]
        now = ended[-1] if ended else 0.0
        late = delay if isinstance(delay, float) else delay[stage]
        for index in range(len(ended), len(cost)):
            place = needed[index]
            if place >= 0:
                ready = arrived[place]
                if ready < 0:
                    waiting[place] = stage
                    break
                if ready > now:
                    now = ready
            started.append(now)
            now += cost[index]
            ended.append(now)
            place = sent[index]
            if place >= 0:
                arrived[place] = now + (late if isinstance(late, float) else late[index])
                if place in waiting:
                    runnable.append(waiting.pop(place))
    if waiting:
        raise RidgelineError(
            "the stages of this pipeline schedule wait for one another: "
            + ", ".join(
                f"stage {stage} in {schedule.table[stage][len(ends[stage])]}"
                for stage in sorted(waiting.values())
            ),
            help="every action must come after those it depends on, on every stage",
        )
    return starts, ends


def _row_places(schedule: PipelineSchedule, stage: int) -> tuple[list[int], list[int]]:
    stages, parts, count = schedule.stages, schedule.parts, schedule.microbatches
    if stages == 1:
        nothing = [-1] * len(schedule.table[0])
        return nothing, nothing
    # Both are the microbatch beside a first place, which is the same for a kind and a chunk.
    needed, sent = [], []
    first: dict[tuple[str, int], tuple[int, int]] = {}
    for kind, microbatch, chunk in schedule.table[stage]:
        key = (kind, chunk)
        if key not in first:
            first[key] = _first_places(kind, chunk * stages + stage, parts, count)
        before, behind = first[key]
        needed.append(before + microbatch if before >= 0 else -1)
        sent.append(behind + microbatch if behind >= 0 else -1)
    return needed, sent


def _first_places(kind: str, part: int, parts: int, count: int) -> tuple[int, int]:
    """Where what the first microbatch's action needs arrives, and where what it sends does."""
    if kind == WEIGHT_GRADIENT:
        return -1, -1
    if kind == FORWARD:
        here = part * count
        return here if part else -1, here + count if part < parts - 1 else -1
    here = (parts + part) * count
    return here if part < parts - 1 else -1, here - count if part else -1


def _delays(schedule: PipelineSchedule, delay: Delay) -> list[list[float]]:
    """The delay of what each action sends, 0 for those that send nothing."""
    return [
        [
            delay(stage, sent) if (sent := schedule.transfer(stage, action)) is not None else 0.0
            for action in row
        ]
        for stage, row in enumerate(schedule.table)
    ]


def check_schedule(schedule: PipelineSchedule) -> None:
    """Refuse a table in which a pass is missing or double, out of order, or waits for ever."""
    everything = [(i, c) for i in range(schedule.microbatches) for c in range(schedule.chunks)]
    for stage, row in enumerate(schedule.table):
        place = {action: index for index, action in enumerate(row)}
        kinds = {action.kind for action in row}
        whole = kinds <= {FORWARD, BACKWARD}
        steps = (FORWARD, BACKWARD) if whole else (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)
        expected = {PipelineAction(k, i, c) for k in steps for i, c in everything}
        if len(place) != len(row) or set(place) != expected:
            wrong = sorted(str(action) for action in expected ^ set(place)) or ["an action twice"]
            raise RidgelineError(f"stage {stage} misses, repeats or adds {', '.join(wrong[:5])}")
        for microbatch, chunk in everything:
            at = [place[PipelineAction(kind, microbatch, chunk)] for kind in steps]
            if at != sorted(at):
                raise RidgelineError(
                    f"stage {stage} takes microbatch {microbatch} of chunk {chunk} out of the "
                    f"order {', '.join(steps)}"
                )
        if schedule.stages == 1:
            _check_chunks_in_order(row, schedule.chunks)
    timeline(schedule, lambda stage, action: 1.0)


def _check_chunks_in_order(row: tuple[PipelineAction, ...], chunks: int) -> None:
    """One stage sends nothing, so its own order is that of the chunks."""
    seen: set[PipelineAction] = set()
    for action in row:
        step = -1 if action.kind == FORWARD else 1
        before = action._replace(chunk=action.chunk + step)
        if 0 <= before.chunk < chunks and before not in seen and action.kind != WEIGHT_GRADIENT:
            raise RidgelineError(f"{action} comes before {before}, which it needs")
        seen.add(action)


def bubble(schedule: PipelineSchedule, spans: list[list[ActionSpan]]) -> tuple[float, ...]:
    """The share of the whole time in which each stage is idle."""
    total = max((row[-1].end for row in spans if row), default=0.0)
    busy = [sum(span.end - span.start for span in row) for row in spans]
    return tuple(1 - time / total if total else 0.0 for time in busy)


UNITS = {FORWARD: 1.0, BACKWARD: 2.0, INPUT_GRADIENT: 1.0, WEIGHT_GRADIENT: 1.0}


def draw(schedule: PipelineSchedule, width: int = 200) -> str:
    """Stages over time, one row each: forward passes as numbers, backward ones in brackets.

    A forward pass through one chunk takes one unit, a backward pass two, its halves one each
    (`<3>` for inputs, `{3}` for weights); dots are idle time.
    """
    spans = timeline(schedule, lambda stage, action: UNITS[action.kind])
    marks = {FORWARD: "{}", BACKWARD: "[{}]", INPUT_GRADIENT: "<{}>", WEIGHT_GRADIENT: "{{{}}}"}
    digits = len(str(max(schedule.microbatches - 1, 0)))
    cell = digits + 2
    lines = []
    for stage, row in enumerate(schedule.table):
        text = ""
        for action, span in zip(row, spans[stage]):
            text = text.ljust(round(span.start * cell), "·")
            label = marks[action.kind].format(action.microbatch)
            text += label.center(round((span.end - span.start) * cell))
        if len(text) > width:
            text = text[: width - 1] + "…"
        lines.append(f"{stage:>3} │{text}")
    return "\n".join(lines)
