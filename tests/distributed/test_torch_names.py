"""torch.distributed's names on simulated ranks, each checked against what torch documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist

SIZE = 3


def on_ranks(work: Any) -> list[Any]:
    def joined() -> Any:
        dist.init_process_group("gloo")
        try:
            return work()
        finally:
            dist.destroy_process_group()

    return dist.run(joined, ranks=SIZE)


def test_groups() -> None:
    def work() -> tuple[Any, ...]:
        pair = dist.new_group([2, 0])
        inside = pair is not dist.GroupMember.NON_GROUP_MEMBER
        x = rl.tensor([float(dist.get_rank())])
        if inside:
            dist.all_reduce(x, group=pair)
            dist.broadcast(y := rl.tensor([dist.get_rank()]), src=2, group=pair)
            assert y.item() == 2
        with pytest.raises(rl.RidgelineError, match="not in the group"):
            dist.all_reduce(x, group=pair if not inside else dist.GroupMember.NON_GROUP_MEMBER)
        place = dist.get_rank(pair) if inside else -1
        return dist.get_rank(), dist.get_world_size(), place, x.item(), dist.is_available()

    assert on_ranks(work) == [(0, 3, 0, 2.0, True), (1, 3, -1, 1.0, True), (2, 3, 1, 2.0, True)]


@pytest.mark.parametrize("op", ["SUM", "AVG", "PRODUCT", "MIN", "MAX"])
def test_all_reduce_writes_into_its_tensor(op: str) -> None:
    def work() -> tuple[np.ndarray, bool]:
        x = rl.tensor([1.0, 2.0]) * (dist.get_rank() + 1)
        view = x[:1]
        work = dist.all_reduce(x, getattr(dist.ReduceOp, op), async_op=True)
        assert work is not None and work.wait()
        return x.numpy(), bool(view.item() == x[0].item())

    whole = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    step = {"SUM": np.sum, "AVG": np.mean, "PRODUCT": np.prod, "MIN": np.min, "MAX": np.max}[op]
    for got, shared in on_ranks(work):
        np.testing.assert_allclose(got, step(whole, axis=0))
        assert shared


def test_messages_under_way() -> None:
    def work() -> list[float]:
        rank = dist.get_rank()
        right, left = (rank + 1) % SIZE, (rank - 1) % SIZE
        x, y = rl.full((2,), float(rank)), rl.zeros(2)
        for each in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, y, left)]
        ):
            assert each.wait()
        sent = dist.isend(x, right, tag=3)
        x += 10  # what is on its way was copied
        z = rl.zeros(2)
        dist.irecv(z, left, tag=3).wait()
        sent.wait()
        return [y[0].item(), z[1].item()]

    assert on_ranks(work) == [[2.0, 2.0], [0.0, 0.0], [1.0, 1.0]]


def test_objects_for_one_rank_or_from_one() -> None:
    def work() -> tuple[Any, ...]:
        rank = dist.get_rank()
        gathered: list[Any] = [None] * SIZE
        dist.gather_object({"rank": rank}, gathered if rank == 1 else None, dst=1)
        taken = [None]
        dist.scatter_object_list(taken, ["a", "b", "c"] if rank == 2 else None, src=2)
        told: list[Any] = [None]
        if rank == 0:
            dist.send_object_list([{"x": 1}], dst=2)
        elif rank == 2:
            dist.recv_object_list(told, src=0)
        return gathered, taken[0], told[0]

    (none, a, _), (gathered, b, _), (_, c, told) = on_ranks(work)
    assert none == [None] * SIZE and gathered == [{"rank": r} for r in range(SIZE)]
    assert (a, b, c) == ("a", "b", "c") and told == {"x": 1}


def test_ranks_of_groups() -> None:
    def work() -> tuple[Any, ...]:
        pair = dist.new_group([2, 0])
        if dist.get_rank() == 1:
            return (dist.get_process_group_ranks(),)
        known = dist.get_process_group_ranks(pair)
        return known, dist.get_global_rank(pair, 1), dist.get_group_rank(pair, 2)

    assert on_ranks(work) == [([0, 2], 2, 1), ([0, 1, 2],), ([0, 2], 2, 1)]


@pytest.mark.parametrize(
    ("name", "words"), [("fsdp", "Plan(zero=3)"), ("tensor", "have meshes and placements")]
)
def test_modules_that_are_not_here_say_what_is(name: str, words: str) -> None:
    with pytest.raises(ModuleNotFoundError) as raised:
        __import__(f"ridgeline.distributed.{name}")
    assert words in str(raised.value)
    with pytest.raises(AttributeError) as missing:
        getattr(dist, name)
    assert words in str(missing.value)


def test_parts_of_ranks() -> None:
    def work() -> list[Any]:
        rank = dist.get_rank()
        x = rl.arange(6).reshape(3, 2) + 10 * rank
        parts = [rl.zeros(3, 2, dtype=rl.int64) for _ in range(SIZE)]
        dist.all_gather(parts, x)
        whole = rl.zeros(9, 2, dtype=rl.int64)
        dist.all_gather_into_tensor(whole, x)
        row = rl.zeros(1, 2, dtype=rl.int64)
        dist.reduce_scatter_tensor(row, x)
        listed = rl.zeros(2, dtype=rl.int64)
        dist.reduce_scatter(listed, list(x))
        turned = rl.zeros(3, 2, dtype=rl.int64)
        dist.all_to_all_single(turned, x)
        lists = [rl.zeros(2, dtype=rl.int64) for _ in range(SIZE)]
        dist.all_to_all(lists, list(x))
        return [rl.cat(parts), whole, row, listed, turned, rl.stack(lists)]

    each = [np.arange(6).reshape(3, 2) + 10 * rank for rank in range(SIZE)]
    for rank, got in enumerate(on_ranks(work)):
        turned = np.stack([a[rank] for a in each])
        want = [np.concatenate(each)] * 2 + [sum(each)[rank : rank + 1], sum(each)[rank]]
        for ours, theirs in zip(got, [*want, turned, turned], strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs)


def test_one_to_all_and_back() -> None:
    def work() -> list[Any]:
        rank = dist.get_rank()
        x = rl.full((2,), float(rank))
        dist.reduce(total := x.clone(), dst=1)
        found = [rl.zeros(2) for _ in range(SIZE)] if rank == 2 else None
        dist.gather(x, found, dst=2)
        dist.scatter(y := rl.zeros(2), found if rank == 2 else None, src=2)
        if rank == 0:
            dist.send(x + 5, dst=1)
        elif rank == 1:
            assert dist.recv(x, src=0) == 0
        dist.barrier()
        return [total.tolist(), y.tolist(), x.tolist()]

    zero, one, two = on_ranks(work)
    assert zero == [[0, 0], [0, 0], [0, 0]]
    assert one == [[3, 3], [1, 1], [5, 5]]
    assert two == [[2, 2], [2, 2], [2, 2]]


def test_objects() -> None:
    def work() -> list[Any]:
        found: list[Any] = [None] * SIZE
        dist.all_gather_object(found, {"rank": dist.get_rank(), "text": "x" * dist.get_rank()})
        shared: list[Any] = [dist.get_rank(), "a" * dist.get_rank()]
        dist.broadcast_object_list(shared, src=2)
        return [[each["text"] for each in found], shared]

    assert on_ranks(work) == [[["", "x", "xx"], [2, "aa"]]] * SIZE


def test_a_process_alone_is_a_group_of_one() -> None:
    assert not dist.is_available() and not dist.is_initialized() and dist.get_rank() == -1
    dist.init_process_group("nccl")
    try:
        x = rl.ones(2)
        dist.all_reduce(x)
        assert x.tolist() == [1, 1] and dist.get_world_size() == 1 and dist.get_backend() == "nccl"
    finally:
        dist.destroy_process_group()
    with pytest.raises(rl.RidgelineError, match="a group of 4 processes: this is rank 0 of 1"):
        dist.init_process_group(world_size=4)
    assert not dist.is_initialized()
