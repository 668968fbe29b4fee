"""All-reduce over messages: sums, and messages and bytes against formulas and counters."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist
from ridgeline.cli.main import main
from ridgeline.communicators.current import Rank, acting_as
from ridgeline.communicators.record import RecordCommunicator
from ridgeline.distributed.algorithms import ALGORITHMS, AllReduce, all_reduce_by

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("ranks", SIZES)
@pytest.mark.parametrize("elements", [0, 1, 13, 64])
def test_sums_and_what_is_sent(name: str, ranks: int, elements: int) -> None:
    algorithm = all_reduce_by(name, ranks, elements)

    def work() -> tuple[np.ndarray, int, int]:
        world = dist.world()
        mine = np.random.default_rng(world.rank).integers(-9, 9, (1, elements)).astype(float)
        total = algorithm.run(world, mine)
        return total, world.counters.calls(kind="send"), world.counters.bytes(kind="send")

    arrays = [np.random.default_rng(r).integers(-9, 9, (1, elements)) for r in range(ranks)]
    for rank, (total, calls, sent) in enumerate(dist.run(work, ranks=ranks)):
        np.testing.assert_array_equal(total, sum(arrays))
        assert calls == algorithm.messages(rank)
        assert sent == 8 * algorithm.elements_sent(rank)


def predicted(algorithm: AllReduce) -> list[tuple[int, int]]:
    return [(algorithm.messages(r), algorithm.elements_sent(r)) for r in range(algorithm.ranks)]


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_messages_and_bytes_are_those_of_the_textbooks(ranks: int) -> None:
    size = 64 * ranks
    steps = ranks - 1
    assert (
        predicted(all_reduce_by("ring", ranks, size))
        == [(2 * steps, 2 * steps * size // ranks)] * ranks
    )
    rounds = int(math.log2(ranks))
    assert (
        predicted(all_reduce_by("halving-doubling", ranks, size))
        == [(2 * rounds, 2 * steps * size // ranks)] * ranks
    )
    one = predicted(all_reduce_by("parameter-server", ranks, size))
    assert one == [(steps, steps * size), *[(1, size)] * steps]
    every = predicted(all_reduce_by("parameter-server", ranks, size, servers=ranks))
    assert every == [(2 * steps, 2 * steps * size // ranks)] * ranks
    tree = all_reduce_by("double-tree", ranks, size)
    assert len(tree.rounds) <= 2 * (rounds + 1)
    assert max(sent for _, sent in predicted(tree)) <= 2 * size
    assert sum(sent for _, sent in predicted(tree)) == 2 * steps * size


def test_a_hierarchy_sends_a_share_of_the_node_across() -> None:
    size, node, nodes = 960, 4, 3
    algorithm = all_reduce_by("hierarchical", node * nodes, size, node=node)
    across = [
        sum(
            t.stop - t.start
            for step in algorithm.rounds
            for t in step
            if t.source == rank and t.source // node != t.target // node
        )
        for rank in range(node * nodes)
    ]
    assert across == [2 * (nodes - 1) * (size // node) // nodes] * (node * nodes)


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8, 16])
def test_a_rank_inside_one_tree_is_a_leaf_of_the_other(ranks: int) -> None:
    algorithm = all_reduce_by("double-tree", ranks, 2)
    added = [t for step in algorithm.rounds for t in step if t.adds]
    inside = [{t.target for t in added if t.start == half} for half in (0, 1)]
    assert len(inside[0] & inside[1]) <= ranks % 2  # the shifted root of an odd number of ranks


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: all_reduce_by("star", 4, 4), "no all-reduce called 'star'"),
        (lambda: all_reduce_by("parameter-server", 4, 4, servers=5), "5 servers on 4 ranks"),
        (lambda: all_reduce_by("hierarchical", 6, 4, node=4), "do not divide 6"),
        (lambda: all_reduce_by("ring", 2, 4).run(dist.world(), np.zeros(4)), "was given 4 on 1"),
    ],
)
def test_wrong_calls(call, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(rl.RidgelineError, match=words):
        call()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_pictures(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collectives", name, "-n", "8"]) == 0
    text = capsys.readouterr().out
    assert text.count("step") == len(all_reduce_by(name, 8, 8).rounds)
    assert "rank   messages   elements sent" in text


def test_a_recorded_rank_counts_what_it_would_send() -> None:
    world = RecordCommunicator(5, 1024, {"tp": 8, "dp": 128})
    with acting_as(Rank(world)):
        tp = world.split(0, 5, "tp")
        x = rl.ones(64, 32)
        gathered = dist.functional.all_gather(x, group=tp)
        dist.functional.all_reduce(gathered, group=world.split(5, 0, "dp"))
    assert tuple(gathered.shape) == (512, 32)
    assert world.counters.bytes("tp") == 512 * 32 * 4 == world.counters.bytes("dp")
    assert [(axis, call.kind) for axis, call, _ in world.calls] == [
        ("tp", "all_gather"),
        ("dp", "all_reduce"),
    ]
    with pytest.raises(dist.CommunicationError, match="'pp' has is not known"):
        world.split(0, 0, "pp")
