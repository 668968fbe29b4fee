"""Labelled kernels: work shared out in a block, buffers used again, parts of warps."""

import numpy as np

from ridgeline import simt
from ridgeline.simt import (
    activemask,
    atomic_add,
    ballot,
    blockDim,
    blockIdx,
    dynamic,
    f32,
    i32,
    inout,
    lane,
    shared,
    shfl_down,
    shfl_xor,
    syncthreads,
    syncthreads_and,
    syncthreads_count,
    syncthreads_or,
    syncwarp,
    threadIdx,
    u8,
    u32,
    volatile_load,
    volatile_store,
    warp,
    warp_sum,
)
from tests.simt.labelled import case, numbers, zeros


@simt.device
def total_of_block(buf, value):
    """Sum over a block of 64; the buffer is free again only after a barrier of the caller's."""
    t = threadIdx.x
    buf[t] = value
    syncthreads()
    for half in (32, 16, 8, 4, 2, 1):
        if t < half:
            buf[t] += buf[t + half]
        syncthreads()
    return buf[0]


@case("shared race", 1, 64, numbers(64), zeros(64))
def buffer_used_again(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(64, i32)
    t = threadIdx.x
    first = total_of_block(buf, x[t])
    y[t] = first - total_of_block(buf, x[63 - t] * 2)


@case(None, 1, 64, numbers(64), zeros(64))
def buffer_used_again_ok(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(64, i32)
    t = threadIdx.x
    first = total_of_block(buf, x[t])
    syncthreads()
    y[t] = first - total_of_block(buf, x[63 - t] * 2)


@case(None, 1, 64, numbers(64), zeros(64))
def two_buffers_in_turn(x: i32["n"], y: inout[i32["n"]]):
    buf, other = shared(64, i32), shared(64, i32)
    t = threadIdx.x
    first = total_of_block(buf, x[t])
    y[t] = first - total_of_block(other, x[63 - t])


@case("shared race", 1, 64, numbers(256), zeros(256))
def three_buffers_one_short(x: i32["n"], y: inout[i32["n"]]):
    buf = shared((2, 64), i32)
    t = threadIdx.x
    for k in range(4):
        buf[k % 2, t] = x[k * 64 + t]
        if k % 2 == 0:
            syncthreads()
        y[k * 64 + t] = buf[k % 2, t ^ 1]


@case("shared race", 1, 64, numbers(64), zeros(64))
def dynamic_pieces_overlap(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(96, i32)
    t = threadIdx.x
    buf[t] = x[t]
    buf[32 + t] = x[t] + 1
    syncthreads()
    y[t] = buf[t] + buf[t + 32]


@case(None, 1, 64, numbers(64), zeros(64), shared=512)
def dynamic_pieces(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(dynamic, i32)
    t = threadIdx.x
    buf[t] = x[t]
    buf[64 + t] = x[t] + 1
    syncthreads()
    y[t] = buf[63 - t] + buf[127 - t]


@case("shared race", 1, 96, numbers(96), zeros(96))
def chunks_that_touch(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(97, i32)
    t = threadIdx.x
    if t < 32:
        for k in range(t * 3, t * 3 + 4):
            buf[k] = t
    syncthreads()
    y[t] = buf[t]


@case(None, 1, 96, numbers(96), zeros(96))
def chunks(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(96, i32)
    t = threadIdx.x
    if t < 32:
        for k in range(t * 3, t * 3 + 3):
            buf[k] = t
    syncthreads()
    y[t] = buf[t]


@case(None, 1, 48, numbers(100), zeros(100))
def strided_share(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(100, i32)
    for k in range(threadIdx.x, 100, blockDim.x):
        buf[k] = x[k]
    syncthreads()
    for k in range(threadIdx.x, 100, blockDim.x):
        y[k] = buf[99 - k]


@case("shared race", 1, 48, numbers(100), zeros(100))
def strided_share_of_another_width(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(100, i32)
    for k in range(threadIdx.x, 100, 32):
        buf[k] = x[k] + threadIdx.x
    syncthreads()
    for k in range(threadIdx.x, 100, blockDim.x):
        y[k] = buf[99 - k]


@case(None, 1, 64, numbers(64), zeros(64))
def voting_barriers_order(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(64, i32)
    t = threadIdx.x
    buf[t] = x[t]
    if syncthreads_or(x[t] == 5):
        y[t] = buf[63 - t]
    if syncthreads_and(t >= 0):
        buf[t] = 1
    n = syncthreads_count(t < 10)
    y[63 - t] += buf[(t + n) % 64]


@case("divergent barrier", 1, 64, numbers(64), zeros(64))
def loop_until_own_is_done(x: i32["n"], y: inout[i32["n"]]):
    t = threadIdx.x
    left = x[t] % 3 + 1
    while left > 0:
        left -= 1
        syncthreads()
    y[t] = left


@case(None, 1, 64, numbers(64), zeros(64))
def loop_until_all_are_done(x: i32["n"], y: inout[i32["n"]]):
    t = threadIdx.x
    left = x[t] % 3 + 1
    while syncthreads_or(left > 0):
        left -= 1
    y[t] = left


@case("divergent barrier", 1, 64, numbers(64), zeros(64))
def barrier_skipped_by_continue(x: i32["n"], y: inout[i32["n"]]):
    t = threadIdx.x
    for k in range(4):
        if x[t] % 4 == k:
            continue
        syncthreads()
    y[t] = 1


@case("divergent barrier", 1, 64, numbers(64), zeros(64))
def inner_loops_of_own_lengths(x: i32["n"], y: inout[i32["n"]]):
    t = threadIdx.x
    for k in range(2):
        for _ in range(1 + (t + k) % 2):
            syncthreads()
    y[t] = 1


@case(None, 1, 64, numbers(64), zeros(64))
def inner_loops_of_one_length(x: i32["n"], y: inout[i32["n"]]):
    t = threadIdx.x
    for k in range(4):
        for j in range(1 + k % 2):
            if j + k == 2:
                continue
            syncthreads()
    y[t] = 1


@case("shared race", 1, 64, numbers(64), zeros(64))
def old_warp_reduction(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(96, i32)
    t = threadIdx.x
    buf[t] = x[t]
    if t < 32:
        buf[64 + t] = 0
    syncthreads()
    if t < 32:
        volatile_store(buf, t, volatile_load(buf, t) + volatile_load(buf, t + 32))
        buf[t] += buf[t + 16]
        buf[t] += buf[t + 8]
    y[t] = 0


@case(None, 1, 64, numbers(64), zeros(1))
def last_warp_synced(x: i32["n"], y: inout[i32["m"]]):
    buf = shared(64, i32)
    t = threadIdx.x
    buf[t] = x[t]
    syncthreads()
    if t < 32:
        value = buf[t] + buf[t + 32]
        for half in (16, 8, 4, 2, 1):
            syncwarp()
            buf[t] = value
            syncwarp()
            if t < half:
                value += buf[t + half]
        if t == 0:
            y[0] = value


@case("shared race", 1, 64, numbers(64), zeros(1))
def last_warp_synced_once(x: i32["n"], y: inout[i32["m"]]):
    buf = shared(64, i32)
    t = threadIdx.x
    buf[t] = x[t]
    syncthreads()
    if t < 32:
        value = buf[t] + buf[t + 32]
        for half in (16, 8, 4, 2, 1):
            buf[t] = value
            syncwarp()
            value += buf[(t + half) % 32]
        if t == 0:
            y[0] = value


@case(None, 1, 64, numbers(64), zeros(64))
def groups_of_eight(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(64, i32)
    t = threadIdx.x
    mask = u32(0xFF) << u32(lane // 8 * 8)
    buf[t] = x[t]
    syncwarp(mask)
    y[t] = buf[t ^ 7]


@case("shared race", 1, 64, numbers(64), zeros(64))
def groups_of_eight_reach_sixteen(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(64, i32)
    t = threadIdx.x
    mask = u32(0xFF) << u32(lane // 8 * 8)
    buf[t] = x[t]
    syncwarp(mask)
    y[t] = buf[t ^ 15]


@case(None, 1, 64, numbers(64), zeros(64))
def branch_with_its_own_mask(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(64, i32)
    t = threadIdx.x
    odd = x[t] % 2 == 1
    mask = ballot(odd)
    if odd:
        buf[t] = x[t]
        syncwarp(mask)
        y[t] = buf[t ^ 2]
    else:
        buf[t] = -x[t]
        syncwarp(~mask)
        y[t] = buf[t ^ 4]


@case("shared race", 1, 64, numbers(64), zeros(64))
def branch_reads_the_other_side(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(64, i32)
    t = threadIdx.x
    odd = x[t] % 2 == 1
    mask = ballot(odd)
    if odd:
        buf[t] = x[t]
        syncwarp(mask)
        y[t] = buf[t ^ 1]
    else:
        buf[t] = -x[t]
        syncwarp(~mask)
        y[t] = buf[t ^ 2]


@case("shared race", 1, 32, numbers(32), zeros(32))
def a_vote_is_no_fence(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(32, i32)
    t = threadIdx.x
    buf[t] = x[t]
    if simt.any(x[t] > 3):
        y[t] = buf[31 - t]


@case("shared race", 1, 32, numbers(32), zeros(32))
def a_sum_is_no_fence(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(32, i32)
    t = threadIdx.x
    buf[t] = x[t]
    y[t] = warp_sum(x[t]) + buf[31 - t]


@case("shared race", 1, 64, numbers(64), zeros(64))
def active_lanes_are_no_sync(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(64, i32)
    t = threadIdx.x
    buf[t] = x[t]
    if activemask() == u32(0xFFFFFFFF):
        y[t] = buf[t ^ 1]


@case(None, 1, 64, numbers(64), zeros(64))
def registers_only(x: i32["n"], y: inout[i32["n"]]):
    value = x[threadIdx.x]
    for step in (1, 2, 4, 8, 16):
        value += shfl_xor(value, step)
    y[threadIdx.x] = value


@case(None, 1, 64, numbers(64), zeros(8))
def shuffles_in_halves(x: i32["n"], y: inout[i32["m"]]):
    value = x[threadIdx.x]
    mask = u32(0xFFFF) << u32(lane // 16 * 16)
    for step in (8, 4, 2, 1):
        value += shfl_down(value, step, mask=mask, width=16)
    if lane % 16 == 0:
        y[threadIdx.x // 16] = value


@case(None, 1, (4, 5, 3), numbers(60), zeros(60))
def small_box(x: i32["n"], y: inout[i32["n"]]):
    buf = shared((3, 5, 4), i32)
    i = (threadIdx.z * 5 + threadIdx.y) * 4 + threadIdx.x
    buf[threadIdx.z, threadIdx.y, threadIdx.x] = x[i]
    syncthreads()
    y[i] = buf[2 - threadIdx.z, 4 - threadIdx.y, 3 - threadIdx.x]


@case("shared race", 1, (4, 5, 3), numbers(60), zeros(60))
def small_box_folded(x: i32["n"], y: inout[i32["n"]]):
    buf = shared((5, 4), i32)
    i = (threadIdx.z * 5 + threadIdx.y) * 4 + threadIdx.x
    buf[threadIdx.y, threadIdx.x] = x[i]
    syncthreads()
    y[i] = buf[4 - threadIdx.y, 3 - threadIdx.x]


@case("shared race", 1, (24, 4), numbers(96), zeros(96))
def rows_are_no_warps(x: i32["n"], y: inout[i32["n"]]):
    buf = shared((4, 24), i32)
    tx, ty = threadIdx.x, threadIdx.y
    buf[ty, tx] = x[ty * 24 + tx]
    syncwarp()
    y[ty * 24 + tx] = buf[ty, 23 - tx]


@case(None, 1, (32, 4), numbers(128), zeros(128))
def rows_are_warps(x: i32["n"], y: inout[i32["n"]]):
    buf = shared((4, 32), i32)
    tx, ty = threadIdx.x, threadIdx.y
    buf[ty, tx] = x[ty * 32 + tx]
    syncwarp()
    y[ty * 32 + tx] = buf[ty, 31 - tx]


@case("shared race", 1, 64, numbers(64), zeros(64))
def set_up_by_the_first(x: i32["n"], y: inout[i32["n"]]):
    pivot = shared(1, i32)
    if threadIdx.x == 0:
        pivot[0] = x[7]
    y[threadIdx.x] = x[threadIdx.x] - pivot[0]


@case("shared race", 1, 64, numbers(64), zeros(64))
def set_up_in_a_loop(x: i32["n"], y: inout[i32["n"]]):
    pivot = shared(1, i32)
    for k in range(3):
        if threadIdx.x == 0:
            pivot[0] = x[k]
        syncthreads()
        y[threadIdx.x] += pivot[0]


@case(None, 1, 64, numbers(64), zeros(64))
def set_up_in_a_loop_ok(x: i32["n"], y: inout[i32["n"]]):
    pivot = shared(1, i32)
    for k in range(3):
        syncthreads()
        if threadIdx.x == 0:
            pivot[0] = x[k]
        syncthreads()
        y[threadIdx.x] += pivot[0]


@case(None, 1, 64, np.zeros(64, np.uint8), np.zeros(64, np.uint8))
def bytes_side_by_side(x: u8["n"], y: inout[u8["n"]]):
    buf = shared(64, u8)
    buf[threadIdx.x] = x[threadIdx.x]
    y[threadIdx.x] = buf[threadIdx.x]


@case("warning", 1, 64, numbers(64), zeros(2))
def all_raise_one_flag(x: i32["n"], y: inout[i32["m"]]):
    found = shared(1, i32)
    if threadIdx.x == 0:
        found[0] = 0
    syncthreads()
    if x[threadIdx.x] > 20:
        found[0] = 1
    syncthreads()
    if threadIdx.x == 0:
        y[0] = found[0]


@case("shared race", 1, 64, numbers(64), zeros(2))
def all_look_before_they_raise(x: i32["n"], y: inout[i32["m"]]):
    found = shared(1, i32)
    if threadIdx.x == 0:
        found[0] = 0
    syncthreads()
    if x[threadIdx.x] > 20 and found[0] == 0:
        found[0] = 1
    syncthreads()
    if threadIdx.x == 0:
        y[0] = found[0]


@case("shared race", 1, 64, numbers(64), zeros(1))
def last_to_write_wins(x: i32["n"], y: inout[i32["m"]]):
    where = shared(1, i32)
    if x[threadIdx.x] % 7 == 0:
        where[0] = threadIdx.x
    syncthreads()
    if threadIdx.x == 0:
        y[0] = where[0]


@case(None, 1, 64, numbers(64), zeros(1))
def only_one_can_write(x: i32["n"], y: inout[i32["m"]]):
    where = shared(1, i32)
    if x[threadIdx.x] == 7:
        where[0] = threadIdx.x
    syncthreads()
    if threadIdx.x == 0:
        y[0] = where[0]


@case(None, 2, 64, numbers(128), zeros(128))
def warps_by_themselves(x: i32["n"], y: inout[i32["n"]]):
    buf = shared((2, 32), i32)
    i = blockIdx.x * blockDim.x + threadIdx.x
    for _ in range(3):
        buf[warp, lane] = x[i]
        syncwarp()
        y[i] += buf[warp, 31 - lane]
        syncwarp()


@case("shared race", 2, 64, numbers(128), zeros(128))
def warps_by_themselves_once(x: i32["n"], y: inout[i32["n"]]):
    buf = shared((2, 32), i32)
    i = blockIdx.x * blockDim.x + threadIdx.x
    for _ in range(3):
        buf[warp, lane] = x[i]
        syncwarp()
        y[i] += buf[warp, 31 - lane]


@case("shared race", 1, 64, numbers(64).astype(np.float32), np.zeros(64, np.float32))
def gauss_seidel(x: f32["n"], y: inout[f32["n"]]):
    v = shared(66, f32)
    t = threadIdx.x
    v[t + 1] = x[t]
    if t == 0:
        v[0] = 0.0
        v[65] = 0.0
    syncthreads()
    v[t + 1] = 0.5 * (v[t] + v[t + 2])
    syncthreads()
    y[t] = v[t + 1]


@case(None, 1, 64, numbers(64).astype(np.float32), np.zeros(64, np.float32))
def red_black(x: f32["n"], y: inout[f32["n"]]):
    v = shared(66, f32)
    t = threadIdx.x
    v[t + 1] = x[t]
    if t == 0:
        v[0] = 0.0
        v[65] = 0.0
    for colour in range(2):
        syncthreads()
        if t % 2 == colour:
            v[t + 1] = 0.5 * (v[t] + v[t + 2])
    syncthreads()
    y[t] = v[t + 1]


@case(None, 1, 64, np.arange(64, dtype=np.int32)[::-1].copy(), zeros(64))
def scattered_by_a_permutation(p: i32["n"], y: inout[i32["n"]]):
    buf = shared(64, i32)
    buf[p[threadIdx.x]] = threadIdx.x
    syncthreads()
    y[threadIdx.x] = buf[threadIdx.x]


@case("shared race", 1, 64, np.where(numbers(64) == 9, 8, numbers(64)).astype(np.int32), zeros(64))
def scattered_with_one_twice(p: i32["n"], y: inout[i32["n"]]):
    buf = shared(64, i32)
    buf[threadIdx.x] = 0
    syncthreads()
    buf[p[threadIdx.x]] = threadIdx.x
    syncthreads()
    y[threadIdx.x] = buf[threadIdx.x]


@case(None, 1, 64, numbers(64), zeros(64))
def places_from_a_counter(x: i32["n"], y: inout[i32["n"]]):
    taken, kept = shared(1, i32), shared(64, i32)
    t = threadIdx.x
    if t == 0:
        taken[0] = 0
    syncthreads()
    if x[t] % 3 == 0:
        kept[atomic_add(taken, 0, 1)] = x[t]
    syncthreads()
    if t < taken[0]:
        y[t] = kept[t]


@case("shared race", 1, 64, numbers(64), zeros(64))
def counter_read_while_it_counts(x: i32["n"], y: inout[i32["n"]]):
    taken, kept = shared(1, i32), shared(64, i32)
    t = threadIdx.x
    if t == 0:
        taken[0] = 0
    syncthreads()
    if x[t] % 3 == 0:
        kept[atomic_add(taken, 0, 1)] = x[t]
    if t == 63:
        y[0] = taken[0]
