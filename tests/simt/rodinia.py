"""Kernels of Rodinia and SHOC, written anew from what they compute: graphs, grids, sequences."""

import numpy as np

from ridgeline import simt
from ridgeline.simt import (
    atomic_add,
    ballot,
    blockDim,
    blockIdx,
    const,
    f32,
    f64,
    i32,
    inout,
    lane,
    local,
    out,
    popc,
    shared,
    shfl_down,
    shfl_up,
    shfl_xor,
    syncthreads,
    threadIdx,
    u32,
    warp,
)
from tests.simt.three_ways import Solved


@simt.kernel
def bfs_step(
    starts: i32["v1"], edges: i32["e"], frontier: i32["v"], visited: i32["v"],
    found: inout[i32["v"]], cost: inout[i32["v"]],
):  # fmt: skip
    """One level of breadth first search: who finds a vertex, and at what cost."""
    v = blockIdx.x * blockDim.x + threadIdx.x
    if v < frontier.shape[0] and frontier[v] != 0:
        for e in range(starts[v], starts[v + 1]):
            if visited[edges[e]] == 0:
                atomic_add(found[edges[e]], 1)
                simt.atomic_min(cost[edges[e]], cost[v] + 1)


@simt.kernel
def hotspot(temp: f32["r c"], power: f32["r c"], after: out[f32["r c"]], B: const = 8):
    """A block of temperatures after a step, with its halo in shared memory."""
    near = shared((B + 2, B + 2), f32)
    ty, tx = threadIdx.y, threadIdx.x
    rows, cols = temp.shape
    y, x = blockIdx.y * B + ty, blockIdx.x * B + tx

    def_y = min(max(y, 0), rows - 1)
    def_x = min(max(x, 0), cols - 1)
    near[ty + 1, tx + 1] = temp[def_y, def_x]
    if ty == 0:
        near[0, tx + 1] = temp[max(def_y - 1, 0), def_x]
        near[B + 1, tx + 1] = temp[min(y + B, rows - 1), def_x]
    if tx == 0:
        near[ty + 1, 0] = temp[def_y, max(def_x - 1, 0)]
        near[ty + 1, B + 1] = temp[def_y, min(x + B, cols - 1)]
    syncthreads()
    if y < rows and x < cols:
        c = near[ty + 1, tx + 1]
        up, down = near[ty, tx + 1], near[ty + 2, tx + 1]
        left, right = near[ty + 1, tx], near[ty + 1, tx + 2]
        after[y, x] = c + 0.1 * (power[y, x] + (up + down - 2.0 * c) + (left + right - 2.0 * c))


@simt.kernel
def pathfinder(wall: i32["r c"], first: i32["c"], result: out[i32["c"]], B: const = 32):
    """The cheapest way down, some rows a launch: the block's edges go stale row by row."""
    prev, here = shared(B, i32), shared(B, i32)
    rows, cols = wall.shape
    t = threadIdx.x
    x = blockIdx.x * (B - 2 * rows) - rows + t
    inside = 0 <= x < cols
    prev[t] = first[x] if inside else 1 << 20
    syncthreads()
    for r in range(rows):
        done = False
        if r + 1 <= t <= B - 2 - r and inside:
            done = True
            shortest = min(prev[t - 1], prev[t], prev[t + 1])
            here[t] = shortest + wall[r, x]
        syncthreads()
        if done:
            prev[t] = here[t]
        syncthreads()
    if rows <= t < B - rows and inside:
        result[x] = prev[t]


@simt.kernel
def needle(score: inout[i32["n n"]], reference: i32["n n"], penalty: i32, B: const = 16):
    """Needleman-Wunsch for one tile, by its anti-diagonals."""
    tile, ref = shared((B + 1, B + 1), i32), shared((B, B), i32)
    t = threadIdx.x
    for row in range(B):
        ref[row, t] = reference[row + 1, t + 1]
    tile[t + 1, 0] = score[t + 1, 0]
    tile[0, t + 1] = score[0, t + 1]
    if t == 0:
        tile[0, 0] = score[0, 0]
    syncthreads()
    for m in range(B):
        if t <= m:
            x, y = t + 1, m - t + 1
            tile[y, x] = max(tile[y - 1, x - 1] + ref[y - 1, x - 1],
                             tile[y, x - 1] - penalty, tile[y - 1, x] - penalty)  # fmt: skip
        syncthreads()
    for m in range(B - 2, -1, -1):
        if t <= m:
            x, y = t + B - m, B - t
            tile[y, x] = max(tile[y - 1, x - 1] + ref[y - 1, x - 1],
                             tile[y, x - 1] - penalty, tile[y - 1, x] - penalty)  # fmt: skip
        syncthreads()
    for row in range(B):
        score[row + 1, t + 1] = tile[row + 1, t + 1]


@simt.kernel
def lud_diagonal(m: inout[f32["n n"]], B: const = 16):
    """LU decomposition of a block in shared memory."""
    s = shared((B, B), f32)
    t = threadIdx.x
    for i in range(B):
        s[i, t] = m[i, t]
    syncthreads()
    for i in range(B - 1):
        if t > i:
            for j in range(i):
                s[t, i] -= s[t, j] * s[j, i]
            s[t, i] /= s[i, i]
        syncthreads()
        if t > i:
            for j in range(i + 1):
                s[i + 1, t] -= s[i + 1, j] * s[j, t]
        syncthreads()
    for i in range(1, B):
        m[i, t] = s[i, t]


@simt.kernel
def gaussian_multipliers(a: f32["n n"], m: inout[f32["n n"]], step: i32):
    i = threadIdx.x + blockIdx.x * blockDim.x
    n = a.shape[0]
    if i >= n - 1 - step:
        return
    m[i + step + 1, step] = a[i + step + 1, step] / a[step, step]


@simt.kernel
def srad(image: f32["r c"], q0: f32, coefficient: out[f32["r c"]]):
    """The diffusion coefficient of speckle reduction."""
    y, x = simt.grid(2)[1], simt.grid(2)[0]
    rows, cols = image.shape
    if not (y < rows and x < cols):
        return
    c = image[y, x]
    north, south = image[max(y - 1, 0), x] - c, image[min(y + 1, rows - 1), x] - c
    west, east = image[y, max(x - 1, 0)] - c, image[y, min(x + 1, cols - 1)] - c
    g2 = (north**2 + south**2 + west**2 + east**2) / (c * c)
    lap = (north + south + west + east) / c
    num = 0.5 * g2 - (1.0 / 16.0) * (lap * lap)
    den = 1 + 0.25 * lap
    qsqr = num / (den * den)
    den = (qsqr - q0) / (q0 * (1 + q0))
    value = 1.0 / (1.0 + den)
    coefficient[y, x] = 0.0 if value < 0 else 1.0 if value > 1 else value


@simt.kernel
def kmeans_assign(points: f32["p f"], centres: f32["k f"], member: out[i32["p"]],
                  size: inout[i32["k"]]):  # fmt: skip
    p = blockIdx.x * blockDim.x + threadIdx.x
    if p < points.shape[0]:
        best, index = f32("inf"), -1
        for k in range(centres.shape[0]):
            distance = f32(0)
            for f in range(centres.shape[1]):
                d = points[p, f] - centres[k, f]
                distance += d * d
            if distance < best:
                best, index = distance, k
        member[p] = index
        atomic_add(size, index, 1)


@simt.kernel
def layer_forward(x: f32["n"], w: f32["n m"], partial: out[f32["b m"]], H: const = 16):
    """Back propagation's forward pass: products in shared memory, added up by halves."""
    inputs, weights = shared(H, f32), shared((H, H), f32)
    ty, tx, by = threadIdx.y, threadIdx.x, blockIdx.y
    if tx == 0:
        inputs[ty] = x[by * H + ty]
    syncthreads()
    weights[ty, tx] = w[by * H + ty, tx] * inputs[ty]
    syncthreads()
    power = 2
    while power <= H:
        if ty % power == 0:
            weights[ty, tx] += weights[ty + power // 2, tx]
        syncthreads()
        power *= 2
    if ty == 0:
        partial[by, tx] = weights[0, tx]


@simt.kernel
def spmv_scalar(starts: i32["n1"], cols: i32["e"], vals: f32["e"], x: f32["n"], y: out[f32["n"]]):
    row = blockIdx.x * blockDim.x + threadIdx.x
    if row < y.shape[0]:
        total = 0.0
        for j in range(starts[row], starts[row + 1]):
            total += vals[j] * x[cols[j]]
        y[row] = total


@simt.kernel
def spmv_vector(starts: i32["n1"], cols: i32["e"], vals: f32["e"], x: f32["n"], y: out[f32["n"]]):
    """A warp a row."""
    row = (blockIdx.x * blockDim.x + threadIdx.x) // 32
    if row < y.shape[0]:
        total = 0.0
        for j in range(starts[row] + lane, starts[row + 1], 32):
            total += vals[j] * x[cols[j]]
        step = 16
        while step > 0:
            total += shfl_down(total, step)
            step >>= 1
        if lane == 0:
            y[row] = total


@simt.kernel
def ellpack(cols: i32["w n"], vals: f32["w n"], lengths: i32["n"], x: f32["n"], y: out[f32["n"]]):
    t = blockIdx.x * blockDim.x + threadIdx.x
    if t < y.shape[0]:
        total = 0.0
        for i in range(lengths[t]):
            total += vals[i, t] * x[cols[i, t]]
        y[t] = total


@simt.kernel
def radix_pass(keys: i32["n"], sorted_: out[i32["n"]], bit: i32, T: const = 64):
    """One bit of a radix sort within a block: a scan by ballots says where a key goes."""
    ones = shared(T // 32, i32)
    t = threadIdx.x
    key = keys[t]
    is_one = (key >> bit) & 1
    votes = ballot(is_one == 1)
    if lane == 0:
        ones[warp] = popc(votes)
    syncthreads()
    before, total = 0, 0
    for w in range(T // 32):
        if w < warp:
            before += ones[w]
        total += ones[w]
    before += popc(votes & ((u32(1) << u32(lane)) - u32(1)))
    place = T - total + before if is_one == 1 else t - before
    sorted_[place] = key


@simt.kernel
def md_forces(pos: f32["n 3"], near: i32["k n"], force: out[f32["n 3"]], cut2: f32):
    """Lennard-Jones forces from lists of neighbours."""
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < pos.shape[0]:
        f = local(3, f32, fill=0)
        for k in range(near.shape[0]):
            j = near[k, i]
            d = local(3, f32)
            r2 = f32(0)
            for axis in simt.unroll(3):
                d[axis] = pos[i, axis] - pos[j, axis]
                r2 += d[axis] * d[axis]
            if r2 < cut2:
                inverse = 1.0 / r2
                six = inverse * inverse * inverse
                pull = inverse * six * (1.5 * six - 2.0)
                for axis in simt.unroll(3):
                    f[axis] += d[axis] * pull
        for axis in simt.unroll(3):
            force[i, axis] = f[axis]


@simt.device
def rotated(x, by):
    return (x << by) | (x >> (u32(32) - by))


@simt.kernel
def mixed_hash(x: u32["n"], y: out[u32["n"]]):
    """Rounds of a hash: unsigned arithmetic that wraps."""
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i >= x.shape[0]:
        return
    a, b = u32(0x67452301), u32(0xEFCDAB89)
    for turn in range(16):
        f = (a & b) | (~a & x[i])
        a, b = b, b + rotated(a + f + u32(turn) * u32(0x5A827999), u32(7))
    y[i] = a ^ b


@simt.kernel
def fft8(re: inout[f32["n"]], im: inout[f32["n"]], N: const = 64):
    """A radix-2 transform of a block's elements in shared memory."""
    sr, si = shared(N, f32), shared(N, f32)
    t = threadIdx.x
    bits = 6
    for half in simt.unroll(2):
        i = t + half * (N // 2)
        turned = i32(simt.brev(u32(i)) >> u32(32 - bits))
        sr[turned], si[turned] = re[i], im[i]
    syncthreads()
    span = 1
    while span < N:
        place = t % span
        i = 2 * (t - place) + place
        angle = -3.14159265358979 * f32(place) / f32(span)
        wr, wi = simt.cos(angle), simt.sin(angle)
        xr = sr[i + span] * wr - si[i + span] * wi
        xi = sr[i + span] * wi + si[i + span] * wr
        sr[i + span], si[i + span] = sr[i] - xr, si[i] - xi
        sr[i], si[i] = sr[i] + xr, si[i] + xi
        syncthreads()
        span *= 2
    for half in simt.unroll(2):
        i = t + half * (N // 2)
        re[i], im[i] = sr[i], si[i]


@simt.kernel
def stencil9(x: f64["r c"], y: out[f64["r c"]], centre: f64, cardinal: f64, diagonal: f64):
    j, i = simt.grid(2)
    rows, cols = x.shape
    if 1 <= i < rows - 1 and 1 <= j < cols - 1:
        near = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]
        corners = x[i - 1, j - 1] + x[i - 1, j + 1] + x[i + 1, j - 1] + x[i + 1, j + 1]
        y[i, j] = centre * x[i, j] + cardinal * near + diagonal * corners
    elif i < rows and j < cols:
        y[i, j] = x[i, j]


@simt.kernel
def inclusive(x: i32["n"], y: out[i32["n"]], sums: out[i32["b"]]):
    """A scan of a block by warps."""
    parts = shared(32, i32)
    i = blockIdx.x * blockDim.x + threadIdx.x
    value = x[i] if i < x.shape[0] else 0
    d = 1
    while d < 32:
        other = shfl_up(value, d)
        value += other if lane >= d else 0
        d *= 2
    if lane == 31:
        parts[warp] = value
    syncthreads()
    if warp == 0:
        total = parts[lane] if lane < blockDim.x // 32 else 0
        for step in (1, 2, 4, 8, 16):
            other = shfl_up(total, step)
            if lane >= step:
                total += other
        parts[lane] = total
    syncthreads()
    if warp > 0:
        value += parts[warp - 1]
    if i < y.shape[0]:
        y[i] = value
    if threadIdx.x == blockDim.x - 1:
        sums[blockIdx.x] = value


@simt.kernel
def greatest(x: f32["n"], y: inout[f32["1"]], at: out[i32["b"]]):
    """The greatest of a block with its place, by a butterfly over pairs."""
    best, where = f32("-inf"), -1
    for i in simt.grid_stride(x.shape[0]):
        if x[i] > best:
            best, where = x[i], i
    for step in (16, 8, 4, 2, 1):
        other, there = shfl_xor(best, step), shfl_xor(where, step)
        if other > best or (other == best and there < where):
            best, where = other, there
    if lane == 0:
        simt.atomic_max(y, 0, best)
        at[blockIdx.x] = where


draw = np.random.default_rng(1)


def floats(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


def _graph(n: int) -> tuple[np.ndarray, np.ndarray]:
    lengths = draw.integers(0, 9, n)
    starts = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return starts, draw.integers(0, n, starts[-1]).astype(np.int32)


def _found() -> tuple[np.ndarray, np.ndarray]:
    counts, costs = np.zeros(100, np.int32), np.where(visited, 0, 1000)
    for v in np.flatnonzero(frontier):
        for u in edges[starts[v] : starts[v + 1]]:
            if not visited[u]:
                counts[u] += 1
                costs[u] = 1
    return counts, costs


def _hot() -> np.ndarray:
    p = np.pad(temp, 1, mode="edge").astype(np.float64)
    c = p[1:-1, 1:-1]
    return c + 0.1 * (power + p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * c)


def _paths() -> np.ndarray:
    best = first.astype(np.int64)
    for row in wall:
        p = np.pad(best, 1, constant_values=1 << 20)
        best = np.minimum(np.minimum(p[:-2], p[1:-1]), p[2:]) + row
    return best


def _aligned() -> np.ndarray:
    s = scores.copy()
    for y in range(1, 17):
        for x in range(1, 17):
            s[y, x] = max(s[y - 1, x - 1] + similar[y, x], s[y, x - 1] - 3, s[y - 1, x] - 3)
    return s


def _lu() -> np.ndarray:
    a = square.astype(np.float64)
    for i in range(16):
        a[i + 1 :, i] /= a[i, i]
        a[i + 1 :, i + 1 :] -= np.outer(a[i + 1 :, i], a[i, i + 1 :])
    return a


def _multipliers() -> np.ndarray:
    m = np.zeros((16, 16))
    m[3:, 2] = square[3:, 2].astype(np.float64) / square[2, 2]
    return m


def _diffusion() -> np.ndarray:
    p = np.pad(speckled, 1, mode="edge").astype(np.float64)
    c = p[1:-1, 1:-1]
    parts = [p[:-2, 1:-1] - c, p[2:, 1:-1] - c, p[1:-1, :-2] - c, p[1:-1, 2:] - c]
    g2, lap = sum(d * d for d in parts) / c**2, sum(parts) / c
    q = (0.5 * g2 - lap**2 / 16) / (1 + 0.25 * lap) ** 2
    return np.clip(1 / (1 + (q - 0.5) / (0.5 * 1.5)), 0, 1)


def _product(columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
    dense = np.zeros((100, 100))
    np.add.at(dense, (rows, columns), values)
    return dense @ vector


def _ell() -> np.ndarray:
    taken = np.arange(9)[:, None] < lengths
    return (ell_values.astype(np.float64) * vector[ell_columns] * taken).sum(0)


def _forces() -> np.ndarray:
    d = places[:, None].astype(np.float64) - places[neighbours.T]
    r2 = (d * d).sum(2)
    six = r2**-3.0
    return (d * np.where(r2 < 4, six / r2 * (1.5 * six - 2), 0)[..., None]).sum(1)


def _hash(x: int) -> int:
    a, b, m = 0x67452301, 0xEFCDAB89, 0xFFFFFFFF
    for turn in range(16):
        f = (a & b) | (~a & m & x)
        s = (a + f + turn * 0x5A827999) & m
        a, b = b, (b + ((s << 7 | s >> 25) & m)) & m
    return a ^ b


def _stencil() -> np.ndarray:
    y, x = grid.copy(), grid
    near = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
    corners = x[:-2, :-2] + x[:-2, 2:] + x[2:, :-2] + x[2:, 2:]
    y[1:-1, 1:-1] = 0.5 * x[1:-1, 1:-1] + 0.1 * near + 0.025 * corners
    return y


starts, edges = _graph(100)
frontier, visited = (draw.integers(0, 3, 100) == 0).astype(np.int32), np.zeros(100, np.int32)
visited[frontier != 0] = 1
temp, power = floats(20, 30), floats(20, 30)
wall, first = draw.integers(0, 10, (5, 60)).astype(np.int32), draw.integers(0, 9, 60)
first = first.astype(np.int32)
scores = np.zeros((17, 17), np.int32)
scores[0], scores[:, 0] = -3 * np.arange(17), -3 * np.arange(17)
similar = draw.integers(-4, 6, (17, 17)).astype(np.int32)
square = floats(16, 16) + 8 * np.eye(16, dtype=np.float32)
speckled = np.exp(0.2 * floats(20, 30)).astype(np.float32)
points, centres = floats(90, 4), floats(5, 4)
nearest = ((points[:, None].astype(np.float64) - centres) ** 2).sum(2).argmin(1)
inputs, weights = floats(48), floats(48, 16)
values, vector = floats(len(edges)), floats(100)
rows = np.repeat(np.arange(100), np.diff(starts))
lengths = draw.integers(0, 10, 100).astype(np.int32)
ell_columns = draw.integers(0, 100, (9, 100)).astype(np.int32)
ell_values = floats(9, 100)
keys = draw.integers(0, 1000, 64).astype(np.int32)
places = (np.indices((4, 4, 4)).reshape(3, -1).T + 0.1 * floats(64, 3)).astype(np.float32)
neighbours = ((np.arange(64) + 1 + np.arange(8)[:, None] * 7) % 64).astype(np.int32)
words = draw.integers(0, 1 << 32, 100, dtype=np.uint32)
real, imaginary = floats(64), floats(64)
spectrum = np.fft.fft(real.astype(np.float64) + 1j * imaginary)
grid = draw.standard_normal((20, 30))
ints = draw.integers(-50, 50, 300).astype(np.int32)
padded = np.pad(ints, (0, 84)).reshape(3, 128)
signal = floats(500)
strided = [np.flatnonzero(np.arange(500) // 32 % 3 == b) for b in range(3)]
order = keys[np.argsort(keys >> 3 & 1, kind="stable")]


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int32)


SOLVED = [
    Solved("bfs", bfs_step, 2, 64, (starts, edges, frontier, visited, zeros(100),
           np.where(visited, 0, 1000).astype(np.int32)), _found()),
    Solved("hotspot", hotspot, (4, 3), (8, 8), (temp, power), (_hot(),), far=1e-5),
    Solved("pathfinder", pathfinder, 3, 32, (wall, first), (_paths(),)),
    Solved("needle", needle, 1, 16, (scores, similar, 3), (_aligned(),)),
    Solved("lud", lud_diagonal, 1, 16, (square,), (_lu(),), far=1e-4),
    Solved("gaussian", gaussian_multipliers, 2, 16, (square, np.zeros((16, 16), np.float32), 2),
           (_multipliers(),), far=1e-6),
    Solved("srad", srad, (4, 3), (8, 8), (speckled, 0.5), (_diffusion(),), far=1e-4),
    Solved("kmeans", kmeans_assign, 3, 32, (points, centres, zeros(5)),
           (nearest, np.bincount(nearest, minlength=5))),
    Solved("backprop", layer_forward, (1, 3), (16, 16), (inputs, weights),
           ((inputs[:, None].astype(np.float64) * weights).reshape(3, 16, 16).sum(1),),
           {"b": 3}, far=1e-4),
    Solved("spmv scalar", spmv_scalar, 4, 32, (starts, edges, values, vector),
           (_product(edges, rows),), far=1e-4),
    Solved("spmv vector", spmv_vector, 50, 64, (starts, edges, values, vector),
           (_product(edges, rows),), far=1e-4),
    Solved("ellpack", ellpack, 4, 32, (ell_columns, ell_values, lengths, vector), (_ell(),),
           far=1e-4),
    Solved("radix sort", radix_pass, 1, 64, (keys, 3), (order,)),
    Solved("md", md_forces, 2, 32, (places, neighbours, 4.0), (_forces(),), far=1e-3),
    Solved("hash", mixed_hash, 2, 64, (words,), (np.array([_hash(int(w)) for w in words]),)),
    Solved("fft", fft8, 1, 32, (real, imaginary), (spectrum.real, spectrum.imag), far=1e-4),
    Solved("stencil2d", stencil9, (4, 3), (8, 8), (grid, 0.5, 0.1, 0.025), (_stencil(),),
           far=1e-12),
    Solved("scan", inclusive, 3, 128, (ints,),
           (np.cumsum(padded, 1).reshape(-1)[:300], padded.sum(1)), {"b": 3}),
    Solved("greatest", greatest, 3, 32, (signal, np.full(1, -9, np.float32)),
           ([signal.max()], [s[signal[s].argmax()] for s in strided]), {"b": 3}),
]  # fmt: skip
