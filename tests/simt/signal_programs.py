"""Random kernels of a few threads that meet through atomics, fences, locks and counters.

What the threads do depends on who comes first, so a race may hide in one order of many.
"""

from __future__ import annotations

import random

Lines = list[str]
# pairs and triples of (block, thread): of one warp, of two warps, of two blocks
PLACES = [((0, 0), (0, 1)), ((0, 0), (0, 32)), ((0, 0), (1, 0)), ((0, 0), (0, 1), (1, 0)),
          ((0, 0), (0, 32), (1, 0)), ((0, 0), (1, 0), (1, 1))]  # fmt: skip
LAUNCH = (2, 33)


class _Writer:
    """Writes the body of one thread after another."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.number = 0
        self.scope = draw.choice(("device", "device", "device", "block"))

    def name(self) -> str:
        self.number += 1
        return f"r{self.number}"

    def flag(self) -> str:
        return f"f[{self.draw.choice((0, 0, 0, 1))}]"

    def words(self, *orders: str) -> str:
        """The keywords of an atomic."""
        order = self.draw.choice(("", "", *orders))
        scope = self.scope if self.draw.random() < 0.9 else "block"
        return "".join([f', scope="{scope}"' if scope == "block" else "",
                        f', order="{order}"' if order else ""])  # fmt: skip

    def data(self) -> Lines:
        place = f"x[{self.draw.choice((0, 0, 1))}]"
        if self.draw.random() < 0.5:
            self.number += 1
            return [f"{place} = {self.number + 10}"]
        return [f"{self.name()} = {place}"]

    def fence(self) -> Lines:
        return [self.draw.choice(("threadfence()", "threadfence()", "threadfence_block()"))]

    def publish(self) -> Lines:
        """A release of some kind."""
        fence = self.fence() if self.draw.random() < 0.75 else []
        write = self.draw.choice((
            f'atomic_exch({self.flag()}, 1{self.words("release", "acq_rel")})',
            f'atomic_store({self.flag()}, 1{self.words("release")})',
            f'atomic_add({self.flag()}, 1{self.words("release", "acq_rel")})',
        ))  # fmt: skip
        return [*fence, write]

    def decide(self) -> Lines:
        """An atomic read, and what is done where it found something."""
        name, words = self.name(), self.words("acquire")
        read = self.draw.choice(
            (
                f"{name} = atomic_load({self.flag()}{words})",
                f"{name} = atomic_add({self.flag()}, 1{self.words('acquire', 'acq_rel')})",
                f"{name} = atomic_cas({self.flag()}, 0, 1{self.words('acquire', 'acq_rel')})",
            )
        )
        fence = self.fence() if self.draw.random() < 0.75 else []
        inner = [*fence, *self.data(), *(self.data() if self.draw.random() < 0.3 else [])]
        test = self.draw.choice((f"{name} == 1", f"{name} == 1", f"{name} == 0", f"{name} == 2"))
        return [read, f"if {test}:", *(f"    {line}" for line in inner)]

    def wait(self) -> Lines:
        fence = self.fence() if self.draw.random() < 0.75 else []
        return [f"while atomic_load({self.flag()}{self.words('acquire')}) == 0:", "    pass",
                *fence, *self.data()]  # fmt: skip

    def locked(self) -> Lines:
        """A lock around data, with or without its fences."""
        before, after = (self.fence() if self.draw.random() < 0.85 else [] for _ in range(2))
        take = f"while atomic_cas(lock[0], 0, 1{self.words('acquire')}) != 0:"
        leave = f"atomic_exch(lock[0], 0{self.words('release')})"
        return [take, "    pass", *before, *self.data(), *after, leave]

    def body(self) -> Lines:
        kinds = (self.data, self.publish, self.decide, self.wait, self.locked)
        parts = self.draw.choices(kinds, (3, 3, 3, 1, 2), k=self.draw.randint(1, 3))
        return [line for part in parts for line in part()]


def signal_program(seed: int) -> str:
    """A kernel of two or three threads, for a launch of `LAUNCH` over four elements each."""
    draw = random.Random(seed)
    writer = _Writer(draw)
    lines = [
        'def signals(x: inout[i32["n"]], f: inout[i32["m"]], lock: inout[i32["k"]]):',
    ]
    places = draw.choice(PLACES)
    word = draw.choice(("if", "elif"))
    for number, (block, thread) in enumerate(places):
        start = word if number else "if"
        lines.append(f"    {start} blockIdx.x == {block} and threadIdx.x == {thread}:")
        lines += [f"        {line}" for line in writer.body()]
    return "\n".join(lines)
