"""What each schedule step makes of a kernel: name, loops before, steps, loops after."""

from __future__ import annotations

from ridgeline.loops.schedule import (
    CacheRead,
    CacheWrite,
    Cascade,
    ComputeAt,
    Fuse,
    Inline,
    Interleave,
    LanesLast,
    Offset,
    Online,
    Pad,
    Pipeline,
    Reorder,
    Rfactor,
    SetKind,
    Split,
    Step,
    Tensorize,
    Tile,
)
from tests.loops.step_kernels import (
    ATTENTION,
    BLUR,
    BYTES,
    DOT,
    FLAT,
    LOGSUMEXP,
    MEAN,
    SIGNED,
    SMALL,
    TILES,
    WORDS,
)

EXAMPLES: list[tuple[str, str, list[Step], str]] = [
    (
        "tile",
        SMALL,
        [Tile(axes=("m", "n"), factors=(2, 4), tail="branch")],
        """
kernel mm(a: float32[4, 3] @0, b: float32[3, 6] @1, c: float32[4, 6] @2)
for m.0 < 2:
  for n.0 < 2:
    for m.1 < 2:
      if n.0 < 1:
        for n.1 < 4:
          alloc acc: float32[] reg
          acc[] = 0.0
          for k < 3 reduce:
            acc[] += a[m.0 * 2 + m.1, k] * b[k, n.0 * 4 + n.1]
          c[m.0 * 2 + m.1, n.0 * 4 + n.1] = acc[]
      if 1 <= n.0:
        for n.1 < 2:
          alloc acc: float32[] reg
          acc[] = 0.0
          for k < 3 reduce:
            acc[] += a[m.0 * 2 + m.1, k] * b[k, n.1 + 4]
          c[m.0 * 2 + m.1, n.1 + 4] = acc[]
""",
    ),
    (
        "the last place runs again",
        SMALL,
        [Split(axis="m", factor=3, tail="repeat"), SetKind(axis="m.0", kind="parallel")],
        """
kernel mm(a: float32[4, 3] @0, b: float32[3, 6] @1, c: float32[4, 6] @2)
for m.0 < 2 parallel:
  for m.1 < 3:
    for n < 6:
      alloc acc: float32[] reg
      acc[] = 0.0
      for k < 3 reduce:
        acc[] += a[min(m.0 * 3 + m.1, 3), k] * b[k, n]
      c[min(m.0 * 3 + m.1, 3), n] = acc[]
""",
    ),
    (
        "fuse in order",
        FLAT,
        [Fuse(outer="i", inner="j", divide=False)],
        """
kernel scale(xf: float32[24] @0, yf: float32[24] @1)
for ij < 24:
  yf[ij] = xf[ij] * 2.0
""",
    ),
    (
        "fuse by division",
        SMALL,
        [Fuse(outer="m", inner="n", divide=True)],
        """
kernel mm(a: float32[4, 3] @0, b: float32[3, 6] @1, c: float32[4, 6] @2)
for mn < 24:
  alloc acc: float32[] reg
  acc[] = 0.0
  for k < 3 reduce:
    acc[] += a[mn // 6, k] * b[k, mn % 6]
  c[mn // 6, mn % 6] = acc[]
""",
    ),
    (
        "cache_read",
        SMALL,
        [Reorder(order=("n", "m")), CacheRead(buffer="b", before="m", axes=("k",))],
        """
kernel mm(a: float32[4, 3] @0, b: float32[3, 6] @1, c: float32[4, 6] @2)
for n < 6:
  alloc b_read: float32[3] local
  for k < 3:
    b_read[k] = b[k, n]
  for m < 4:
    alloc acc: float32[] reg
    acc[] = 0.0
    for k < 3 reduce:
      acc[] += a[m, k] * b_read[k]
    c[m, n] = acc[]
""",
    ),
    (
        "cache_read transposes",
        SMALL,
        [
            Split(axis="n", factor=2, tail="peel"),
            CacheRead(buffer="b", before="m", axes=("n.0", "k", "n.1")),
        ],
        """
kernel mm(a: float32[4, 3] @0, b: float32[3, 6] @1, c: float32[4, 6] @2)
alloc b_read: float32[3, 3, 2] local
for n.0 < 3:
  for k < 3:
    for n.1 < 2:
      b_read[n.0, k, n.1] = b[k, n.0 * 2 + n.1]
for m < 4:
  for n.0 < 3:
    for n.1 < 2:
      alloc acc: float32[] reg
      acc[] = 0.0
      for k < 3 reduce:
        acc[] += a[m, k] * b_read[n.0, k, n.1]
      c[m, n.0 * 2 + n.1] = acc[]
""",
    ),
    (
        "cache_write",
        SMALL,
        [CacheWrite(buffer="c", after="n", axes=("n",))],
        """
kernel mm(a: float32[4, 3] @0, b: float32[3, 6] @1, c: float32[4, 6] @2)
for m < 4:
  alloc c_write: float32[6] local
  for n < 6:
    alloc acc: float32[] reg
    acc[] = 0.0
    for k < 3 reduce:
      acc[] += a[m, k] * b[k, n]
    c_write[n] = acc[]
  for n < 6:
    c[m, n] = c_write[n]
""",
    ),
    (
        "cache_write of a sum",
        BYTES,
        [CacheWrite(buffer="c", after="k.0", axes=("n",))],
        """
kernel bytes(a: uint8[2, 8] @0, b: int8[2, 8, 4] @1, c: int32[2, 8] @2)
for m < 2:
  for n < 8:
    c[m, n] = 0
  alloc c_write: int32[8] local
  for n < 8:
    c_write[n] = c[m, n]
  for k.0 < 2 reduce:
    for n < 8:
      for k.1 < 4 reduce:
        c_write[n] += int32(a[m, k.0 * 4 + k.1]) * int32(b[k.0, n, k.1])
  for n < 8:
    c[m, n] = c_write[n]
""",
    ),
    (
        "lanes_last",
        SMALL,
        [CacheRead(buffer="b", before="m", axes=("n", "k")), LanesLast(buffer="b_read")],
        """
kernel mm(a: float32[4, 3] @0, b: float32[3, 6] @1, c: float32[4, 6] @2)
alloc b_read: float32[3, 6] local
for n < 6:
  for k < 3:
    b_read[k, n] = b[k, n]
for m < 4:
  for n < 6:
    alloc acc: float32[] reg
    acc[] = 0.0
    for k < 3 reduce:
      acc[] += a[m, k] * b_read[k, n]
    c[m, n] = acc[]
""",
    ),
    (
        "inline",
        BLUR,
        [Inline(buffer="t")],
        """
kernel blur(x: float32[20] @0, y: float32[16] @1)
for j < 16:
  y[j] = (x[j] + x[j + 2]) * (x[j + 1] + x[j + 3]) * (x[j + 2] + x[j + 4])
""",
    ),
    (
        "compute_at",
        BLUR,
        [Split(axis="j", factor=4, tail="peel"), ComputeAt(buffer="t", axis="j.0")],
        """
kernel blur(x: float32[20] @0, y: float32[16] @1)
for j.0 < 4:
  alloc t: float32[6] local
  for i < 6:
    t[i] = x[j.0 * 4 + i] + x[j.0 * 4 + i + 2]
  for j.1 < 4:
    y[j.0 * 4 + j.1] = t[j.1] * t[j.1 + 1] * t[j.1 + 2]
""",
    ),
    (
        "compute_at one element",
        BLUR,
        [ComputeAt(buffer="t", axis="j")],
        """
kernel blur(x: float32[20] @0, y: float32[16] @1)
for j < 16:
  alloc t: float32[3] local
  for i < 3:
    t[i] = x[j + i] + x[j + i + 2]
  y[j] = t[0] * t[1] * t[2]
""",
    ),
    (
        "cascade",
        MEAN,
        [Cascade(axis="c", block=32)],
        """
kernel mean(x: float32[5, 70] @0, y: float32[5] @1)
for r < 5:
  alloc acc: float64[] reg
  acc[] = 0.0
  for c.b < 3 reduce:
    alloc acc_block: float32[] reg
    acc_block[] = 0.0
    for c < min(70 - c.b * 32, 32) reduce:
      acc_block[] += x[r, c.b * 32 + c]
    acc[] wide_sum= float64(acc_block[])
  y[r] = float32(acc[]) / 70.0
""",
    ),
    (
        "cascade of doubles",
        MEAN.replace("float32", "float64"),
        [Cascade(axis="c", block=10)],
        """
kernel mean(x: float64[5, 70] @0, y: float64[5] @1)
for r < 5:
  alloc acc: float64[] reg
  alloc acc_lost: float64[] reg
  acc[] = 0.0
  acc_lost[] = 0.0
  for c.b < 7 reduce:
    alloc acc_block: float64[] reg
    acc_block[] = 0.0
    for c < 10 reduce:
      acc_block[] += x[r, c.b * 10 + c]
    (acc, acc_lost)[] compensated= acc_block[], -0.0
  y[r] = select(acc_lost[] == acc_lost[], acc[] + acc_lost[], acc[]) / 70.0
""",
    ),
    (
        "cascade without blocks",
        MEAN,
        [Cascade(axis="c", block=1)],
        """
kernel mean(x: float32[5, 70] @0, y: float32[5] @1)
for r < 5:
  alloc acc: float64[] reg
  acc[] = 0.0
  for c < 70 reduce:
    acc[] wide_sum= float64(x[r, c])
  y[r] = float32(acc[]) / 70.0
""",
    ),
    (
        "cascade in lanes",
        MEAN,
        [
            Split(axis="c", factor=4),
            Rfactor(axis="c.1"),
            Cascade(axis="c.0", block=4),
            SetKind(axis="c.1", kind="vector"),
        ],
        """
kernel mean(x: float32[5, 70] @0, y: float32[5] @1)
for r < 5:
  alloc acc: float64[] reg
  acc[] = 0.0
  alloc accv: float64[4] reg:
    for c.1 < 4 vector:
      accv[c.1] = 0.0
    for c.0.b < 5 reduce:
      alloc accv_block: float32[4] reg
      for c.1 < 4 vector:
        accv_block[c.1] = 0.0
      for c.0 < min(17 - c.0.b * 4, 4) reduce:
        for c.1 < 4 reduce vector:
          accv_block[c.1] += x[r, (c.0.b * 4 + c.0) * 4 + c.1]
      for c.1 < 4 vector:
        accv[c.1] wide_sum= float64(accv_block[c.1])
    for c.1 < 2 reduce vector:
      accv[c.1] wide_sum= float64(x[r, c.1 + 68])
    for c.1 < 4 reduce vector:
      acc[] wide_sum= accv[c.1]
  y[r] = float32(acc[]) / 70.0
""",
    ),
    (
        "online logsumexp",
        LOGSUMEXP,
        [
            Split(axis="c", factor=8, tail="branch"),
            Online(axis="c.0"),
            Rfactor(axis="c.1"),
            SetKind(axis="c.1", kind="vector"),
        ],
        """
kernel lse(x: float32[3, 20] @0, y: float32[3] @1)
for r < 3:
  alloc m: float32[] reg
  alloc s: float32[] reg
  m[] = -inf
  alloc m_old: float32[] reg:
    s[] = 0.0
    for c.0 < 3 carried:
      m_old[] = m[]
      alloc mv: float32[8] reg:
        for c.1 < 8 vector:
          mv[c.1] = -inf
        if c.0 < 2:
          for c.1 < 8 reduce vector:
            mv[c.1] max= x[r, c.0 * 8 + c.1]
        if 2 <= c.0:
          for c.1 < 4 reduce vector:
            mv[c.1] max= x[r, c.1 + 16]
        for c.1 < 8 reduce vector:
          m[] max= mv[c.1]
      s[] = select(m_old[] == m[], s[], select(m_old[] == -inf, 0.0, s[] * exp(m_old[] - m[])))
      alloc sv: float32[8] reg
      for c.1 < 8 vector:
        sv[c.1] = 0.0
      if c.0 < 2:
        for c.1 < 8 reduce vector:
          sv[c.1] += exp(x[r, c.0 * 8 + c.1] - m[])
      if 2 <= c.0:
        for c.1 < 4 reduce vector:
          sv[c.1] += exp(x[r, c.1 + 16] - m[])
      for c.1 < 8 reduce vector:
        s[] += sv[c.1]
  y[r] = log(s[]) + m[]
""",
    ),
    (
        "online attention",
        ATTENTION,
        [
            Split(axis="c", factor=4, tail="peel"),
            Online(axis="c.0"),
            SetKind(axis="d", kind="vector"),
        ],
        """
kernel attention(s: float32[2, 12] @0, v: float32[12, 4] @1, y: float32[2, 4] @2)
for r < 2:
  alloc m: float32[] reg
  alloc z: float32[] reg
  alloc o: float32[4] reg
  m[] = -inf
  alloc m_old: float32[] reg:
    z[] = 0.0
    for d < 4 vector:
      o[d] = 0.0
    for c.0 < 3 carried:
      m_old[] = m[]
      for c.1 < 4 reduce:
        m[] max= s[r, c.0 * 4 + c.1]
      for d < 4 vector:
        o[d] = select(m_old[] == m[], o[d], select(m_old[] == -inf, 0.0, o[d] * exp(m_old[] - m[])))
      z[] = select(m_old[] == m[], z[], select(m_old[] == -inf, 0.0, z[] * exp(m_old[] - m[])))
      for c.1 < 4 reduce:
        z[] += exp(s[r, c.0 * 4 + c.1] - m[])
        for d < 4 vector:
          o[d] += exp(s[r, c.0 * 4 + c.1] - m[]) * v[c.0 * 4 + c.1, d]
  for d < 4 vector:
    y[r, d] = o[d] / z[]
""",
    ),
    (
        "pipeline",
        SMALL,
        [
            Reorder(order=("k", "m", "n")),
            CacheRead(buffer="b", before="m", axes=("n",)),
            Pipeline(axis="k", stages=3),
        ],
        """
kernel mm(a: float32[4, 3] @0, b: float32[3, 6] @1, c: float32[4, 6] @2)
alloc acc: float32[4, 6] reg
for m < 4:
  for n < 6:
    acc[m, n] = 0.0
pipe 3:
  for k < 3 reduce:
    alloc b_read: float32[6] local
    for n < 6:
      b_read[n] = b[k, n]
    for m < 4:
      for n < 6:
        acc[m, n] += a[m, k] * b_read[n]
for m < 4:
  for n < 6:
    c[m, n] = acc[m, n]
""",
    ),
    (
        "interleave",
        SMALL,
        [Pad("k", 2), Split("k", 2), Interleave("b", "m", ("k.0", "n", "k.1"))],
        """
kernel mm(a: float32[4, 3] @0, b: float32[3, 6] @1, c: float32[4, 6] @2)
alloc b_read: float32[2, 6, 2] local
for k.0 < 2:
  for k.1 < 2 unroll:
    for n < 6 vector:
      b_read[k.0, n, k.1] = guarded(k.0 * 2 + k.1 < 3, b[k.0 * 2 + k.1, n], 0.0)
for m < 4:
  for n < 6:
    alloc acc: float32[] reg
    acc[] = 0.0
    for k.0 < 2 reduce:
      for k.1 < 2 reduce:
        acc[] += guarded(k.0 * 2 + k.1 < 3, a[m, k.0 * 2 + k.1], 0.0) * b_read[k.0, n, k.1]
    c[m, n] = acc[]
""",
    ),
    (
        "offset",
        SIGNED,
        [CacheRead("b", "m", ("k", "n")), CacheRead("a", "m", ("m", "k")), Offset("a_read", "m")],
        """
kernel signed(a: int8[3, 8] @0, b: int8[8, 16] @1, c: int32[3, 16] @2)
alloc b_read: int8[8, 16] local
for k < 8:
  for n < 16:
    b_read[k, n] = b[k, n]
alloc a_read: uint8[3, 8] local
for m < 3:
  for k < 8:
    a_read[m, k] = uint8(a[m, k]) ^ 128
alloc a_read_totals: int32[16] local
for n < 16:
  a_read_totals[n] = 0
for k.total < 8 reduce:
  for n < 16:
    a_read_totals[n] += int32(b_read[k.total, n]) * 128
for m < 3:
  for n < 16:
    alloc acc: int32[] reg
    acc[] = -a_read_totals[n]
    for k < 8 reduce:
      acc[] += int32(a_read[m, k]) * int32(b_read[k, n])
    c[m, n] = acc[]
""",
    ),
    (
        "tensorize fma",
        SMALL,
        [Reorder(order=("k", "m", "n")), Tensorize(axis="m", instruction="fma")],
        """
kernel mm(a: float32[4, 3] @0, b: float32[3, 6] @1, c: float32[4, 6] @2)
alloc acc: float32[4, 6] reg
for m < 4:
  for n < 6:
    acc[m, n] = 0.0
for k < 3 reduce:
  mma fma:
    for m < 4 unroll:
      for n < 6 vector:
        acc[m, n] += a[m, k] * b[k, n]
for m < 4:
  for n < 6:
    c[m, n] = acc[m, n]
""",
    ),
    (
        "tensorize bfloat16",
        DOT,
        [Tensorize(axis="n", instruction="vdpbf16ps")],
        """
kernel dot(a: bfloat16[4, 8] @0, b: bfloat16[4, 16, 2] @1, c: float32[4, 16] @2)
for m < 4:
  alloc acc: float32[16] reg
  for n < 16 vector:
    acc[n] = 0.0
  for k.0 < 4 reduce:
    mma vdpbf16ps:
      for n < 16:
        for k.1 < 2 reduce:
          acc[n] += float32(a[m, k.0 * 2 + k.1]) * float32(b[k.0, n, k.1])
  for n < 16 vector:
    c[m, n] = acc[n]
""",
    ),
    (
        "tensorize tiles",
        TILES,
        [Tensorize(axis="k", instruction="tdpbssd")],
        """
kernel tiles(a: int8[16, 128] @0, b: int8[7, 32, 16, 4] @1, c: int32[16, 112] @2)
for m < 16:
  for n < 112:
    c[m, n] = 1
for j < 7:
  mma tdpbssd:
    for k < 2 reduce:
      for w < 16 reduce:
        for m < 16:
          for e < 4 reduce:
            for n < 16:
              c[m, j * 16 + n] += int32(a[m, k * 64 + (w * 4 + e)]) * int32(b[j, k * 16 + w, n, e])
""",
    ),
    (
        "tensorize int16",
        WORDS,
        [Tensorize(axis="n", instruction="vpdpwssd")],
        """
kernel words(a: int16[4, 8] @0, b: int16[4, 16, 2] @1, c: int32[4, 16] @2)
for m < 4:
  alloc acc: int32[16] reg
  for n < 16 vector:
    acc[n] = 0
  for k.0 < 4 reduce:
    mma vpdpwssd:
      for n < 16:
        for k.1 < 2 reduce:
          acc[n] += int32(a[m, k.0 * 2 + k.1]) * int32(b[k.0, n, k.1])
  for n < 16 vector:
    c[m, n] = acc[n]
""",
    ),
    (
        "tensorize bytes",
        BYTES,
        [Tensorize(axis="n", instruction="vpdpbusd")],
        """
kernel bytes(a: uint8[2, 8] @0, b: int8[2, 8, 4] @1, c: int32[2, 8] @2)
for m < 2:
  for n < 8:
    c[m, n] = 0
  for k.0 < 2 reduce:
    mma vpdpbusd:
      for n < 8:
        for k.1 < 4 reduce:
          c[m, n] += int32(a[m, k.0 * 4 + k.1]) * int32(b[k.0, n, k.1])
""",
    ),
]
