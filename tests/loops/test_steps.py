"""Every schedule step: what it makes of a kernel, that the meaning stays, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ridgeline.loops.analysis.counts import useful
from ridgeline.loops.schedule import (
    Bind,
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
    ScheduleError,
    SetKind,
    Split,
    Step,
    Tensorize,
    Tile,
    from_json,
    replay,
    to_json,
)
from ridgeline.loops.text.printer import print_kernel
from tests.loops.parser import parse_kernel
from tests.loops.validation import memory_for, same_results

SMALL = """
kernel mm(a: float32[4, 3] @0, b: float32[3, 6] @1, c: float32[4, 6] @2)
for m < 4:
  for n < 6:
    alloc acc: float32[] reg
    acc[] = 0.0
    for k < 3 reduce:
      acc[] += a[m, k] * b[k, n]
    c[m, n] = acc[]
"""
FLAT = """
kernel scale(x: float32[4, 6] @0, y: float32[4, 6] @1)
for i < 4:
  for j < 6:
    y[i, j] = x[i, j] * 2.0
"""
GROWING = """
kernel growing(x: float32[4] @0, y: float32[4] @0)
for i < 4:
  y[i] = x[i] + 1.0
"""
BYTES = """
kernel bytes(a: uint8[2, 8] @0, b: int8[2, 8, 4] @1, c: int32[2, 8] @2)
for m < 2:
  for n < 8:
    c[m, n] = 0
  for k.0 < 2 reduce:
    for n < 8:
      for k.1 < 4 reduce:
        c[m, n] += int32(a[m, k.0 * 4 + k.1]) * int32(b[k.0, n, k.1])
"""
SIGNED = """
kernel signed(a: int8[3, 8] @0, b: int8[8, 16] @1, c: int32[3, 16] @2)
for m < 3:
  for n < 16:
    alloc acc: int32[] reg
    acc[] = 0
    for k < 8 reduce:
      acc[] += int32(a[m, k]) * int32(b[k, n])
    c[m, n] = acc[]
"""
BLUR = """
kernel blur(x: float32[20] @0, y: float32[16] @1)
alloc t: float32[18] local
for i < 18:
  t[i] = x[i] + x[i + 2]
for j < 16:
  y[j] = t[j] * t[j + 1] * t[j + 2]
"""
MEAN = """
kernel mean(x: float32[5, 70] @0, y: float32[5] @1)
for r < 5:
  alloc acc: float32[] reg
  acc[] = 0.0
  for c < 70 reduce:
    acc[] += x[r, c]
  y[r] = acc[] / 70.0
"""
LOGSUMEXP = """
kernel lse(x: float32[3, 20] @0, y: float32[3] @1)
for r < 3:
  alloc m: float32[] reg
  alloc s: float32[] reg
  m[] = -inf
  for c < 20 reduce:
    m[] max= x[r, c]
  s[] = 0.0
  for c < 20 reduce:
    s[] += exp(x[r, c] - m[])
  y[r] = log(s[]) + m[]
"""
ATTENTION = """
kernel attention(s: float32[2, 12] @0, v: float32[12, 4] @1, y: float32[2, 4] @2)
for r < 2:
  alloc m: float32[] reg
  alloc z: float32[] reg
  alloc o: float32[4] reg
  m[] = -inf
  for c < 12 reduce:
    m[] max= s[r, c]
  z[] = 0.0
  for d < 4:
    o[d] = 0.0
  for c < 12 reduce:
    z[] += exp(s[r, c] - m[])
    for d < 4:
      o[d] += exp(s[r, c] - m[]) * v[c, d]
  for d < 4:
    y[r, d] = o[d] / z[]
"""
DOT = """
kernel dot(a: bfloat16[4, 8] @0, b: bfloat16[4, 16, 2] @1, c: float32[4, 16] @2)
for m < 4:
  alloc acc: float32[16] reg
  for n < 16 vector:
    acc[n] = 0.0
  for k.0 < 4 reduce:
    for n < 16:
      for k.1 < 2 reduce:
        acc[n] += float32(a[m, k.0 * 2 + k.1]) * float32(b[k.0, n, k.1])
  for n < 16 vector:
    c[m, n] = acc[n]
"""
TILES = """
kernel tiles(a: int8[16, 128] @0, b: int8[7, 32, 16, 4] @1, c: int32[16, 112] @2)
for m < 16:
  for n < 112:
    c[m, n] = 1
for j < 7:
  for k < 2 reduce:
    for w < 16 reduce:
      for m < 16:
        for e < 4 reduce:
          for n < 16:
            c[m, j * 16 + n] += int32(a[m, k * 64 + (w * 4 + e)]) * int32(b[j, k * 16 + w, n, e])
"""
WORDS = """
kernel words(a: int16[4, 8] @0, b: int16[4, 16, 2] @1, c: int32[4, 16] @2)
for m < 4:
  alloc acc: int32[16] reg
  for n < 16 vector:
    acc[n] = 0
  for k.0 < 4 reduce:
    for n < 16:
      for k.1 < 2 reduce:
        acc[n] += int32(a[m, k.0 * 2 + k.1]) * int32(b[k.0, n, k.1])
  for n < 16 vector:
    c[m, n] = acc[n]
"""

CASES: list[tuple[str, str, list[Step], str]] = [
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


@pytest.mark.parametrize(
    ("before", "steps", "after"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_step_makes_these_loops_of_the_same_meaning(
    before: str, steps: list[Step], after: str
) -> None:
    kernel = parse_kernel(before)
    scheduled = replay(kernel, steps)
    assert print_kernel(scheduled).strip() == after.strip()
    same_results(kernel, scheduled, native=True)
    assert parse_kernel(print_kernel(scheduled)) == scheduled
    again = from_json(json.loads(json.dumps(to_json(steps))))
    assert again == steps and replay(kernel, again) == scheduled


REFUSALS: list[tuple[str, list[Step], str]] = [
    (SMALL, [Split("q", 2)], "no loop 'q'"),
    (SMALL, [Split("m", 0)], "pieces of 0"),
    (SMALL, [Split("k", 2, "repeat")], "again changes the result"),
    (GROWING, [Split("i", 3, "repeat")], "again changes the result"),
    (BYTES, [Reorder(("k.0", "n")), Split("n", 3, "repeat")], "again changes the result"),
    (FLAT, [Split("j", 4, "repeat"), SetKind("j.1", "vector")], "runs again"),
    (FLAT, [SetKind("j", "vector"), Split("j", 4, "repeat")], "to one place at once"),
    (SMALL, [Fuse("m", "k")], "not directly inside"),
    (SMALL, [Fuse("m", "n")], "not walked in order"),
    (SMALL, [Tile(("m", "n"), (2,))], "2 axes but 1 tile sizes"),
    (SMALL, [Reorder(("k", "q"))], "no loop 'q'"),
    (SMALL, [SetKind("k", "parallel")], "depend on one another"),
    (SMALL, [SetKind("m", "vector")], "only an innermost loop"),
    (SMALL, [SetKind("n", "parallel")], "not outermost"),
    (SMALL, [CacheRead("c", "m", ("n",))], "nothing reads 'c'"),
    (SMALL, [CacheRead("b", "m", ("k",))], "depends on k, n"),
    (BLUR, [CacheRead("t", "j", ("j",))], "read in 3 ways"),
    (
        SMALL,
        [Split("n", 4, "guard"), Reorder(("k", "n.1")), CacheRead("acc", "n.1", ("n.1",))],
        "without which it may hold nothing",
    ),
    (SMALL, [CacheWrite("a", "m", ("m",))], "nothing writes 'a'"),
    (
        SMALL,
        [Split("n", 4, "guard"), Reorder(("k", "n.1")), CacheWrite("acc", "n.1", ("n.1",))],
        "'acc' may hold nothing before 'n.1'",
    ),
    (SMALL, [CacheWrite("c", "m", ("m",))], "depends on m, n"),
    (SMALL, [Inline("t")], "no scratch 't'"),
    (SMALL, [Inline("acc")], "not filled by one plain store"),
    (BLUR, [Split("j", 5), ComputeAt("t", "j.0")], "also read outside"),
    (BLUR, [Split("j", 5, "branch"), ComputeAt("t", "j.0")], "move apart"),
    (SMALL, [Online("k")], "no maximum over 'k'"),
    (SMALL, [Cascade("m", 2)], "no sum of floats runs over 'm'"),
    (SMALL, [Cascade("k", 0)], "blocks of 0"),
    (SMALL, [Cascade("k", 2), Cascade("k.b", 2)], "no sum of floats"),
    (SMALL, [Cascade("k", 2), Cascade("k", 2)], "into blocks already"),
    (LOGSUMEXP, [Online("c"), Cascade("c", 2)], "no sum of floats"),
    (SMALL, [Pipeline("k", 1)], "at least 2 stages"),
    (SMALL, [Pipeline("k", 2)], "fills no scratch"),
    (SMALL, [Interleave("b", "k", ("n",))], "an axis in lanes"),
    (SMALL, [CacheRead("a", "m", ("m", "k")), Offset("a_read", "m")], "no scratch 'a_read' of"),
    (SIGNED, [CacheRead("a", "m", ("m", "k")), Offset("a_read", "m")], "by a packed operand"),
    (SMALL, [Tensorize("m", "wgmma")], "no instruction 'wgmma'"),
    (SMALL, [Tensorize("k", "fma")], "0 loops run over columns"),
    (SMALL, [Reorder(("k", "m", "n")), Tensorize("m", "vdpbf16ps")], "the types are float32"),
    (BYTES, [Split("n", 2), Tensorize("n.1", "vpdpbusd")], "4 or 8 or 16 columns"),
    (TILES, [Tensorize("j", "tdpbssd")], "8 tile registers, too few for 1 × 7"),
    (TILES, [Split("m", 8), Tensorize("k", "tdpbssd")], "16 × 16 × 16 × 4, .* 8 × 16 × 16 × 4"),
    (TILES, [Tensorize("k", "tdpbusd")], "the types are int8, int8, int32"),
    (
        TILES,
        [CacheRead("b", "j", ("j", "n", "k", "w", "e")), Tensorize("k", "tdpbssd")],
        "b_read does not have 'n' 4 elements apart",
    ),
    (
        SMALL,
        [Pad("k", 2), Split("k", 2), Interleave("b", "m", ("k.0", "n", "k.1"), 2)],
        "'b' is in order along none of k.0",
    ),
]


@pytest.mark.parametrize(
    ("before", "steps", "reason"), REFUSALS, ids=[f"{s[-1]}" for _, s, _ in REFUSALS]
)
def test_an_illegal_step_is_refused_with_its_reason(
    before: str, steps: list[Step], reason: str
) -> None:
    kernel = replay(parse_kernel(before), steps[:-1])
    with pytest.raises(ScheduleError, match=reason):
        steps[-1].apply(kernel)


def test_what_is_read_under_a_condition_is_not_packed_without_it() -> None:
    text = """
kernel pad(x: float32[5] @0, y: float32[7, 7] @1)
for i < 7:
  for j < 7:
    y[i, j] = guarded((1 <= j) & (j < 6), x[j - 1], {})
"""
    with pytest.raises(ScheduleError, match="under a condition"):
        CacheRead("x", "j", ("j",)).apply(parse_kernel(text.format("1.0")))
    padded = parse_kernel(text.format("0.0"))
    packed = CacheRead("x", "j", ("j",)).apply(padded)
    assert "x_read[j] = guarded((1 <= j) & (j < 6), x[j - 1], 0.0)" in print_kernel(packed)
    same_results(padded, packed)


def test_a_buffer_that_changes_is_not_packed() -> None:
    kernel = parse_kernel("""
kernel twice(x: float32[6] @0)
for i < 6:
  x[i] = x[i] * 2.0
""")
    with pytest.raises(ScheduleError, match="changes inside"):
        CacheRead("x", "i", ("i",)).apply(kernel)
    with pytest.raises(ScheduleError, match="also read"):
        CacheWrite("x", "i", ("i",)).apply(kernel)


def test_a_value_is_not_moved_past_a_change_of_what_it_needs() -> None:
    kernel = parse_kernel("""
kernel late(x: float32[6] @0, y: float32[6] @1)
alloc t: float32[6] local
for i < 6:
  t[i] = x[i] + 1.0
for j < 6:
  x[j] = 0.0
for k < 6:
  y[k] = t[k]
""")
    for step in (Inline("t"), ComputeAt("t", "k")):
        with pytest.raises(ScheduleError, match="changes later"):
            step.apply(kernel)


@pytest.mark.parametrize("text", [LOGSUMEXP, ATTENTION], ids=["logsumexp", "attention"])
def test_one_pass_survives_infinities(text: str) -> None:
    """Rows that begin with -inf, consist of it, or hold +inf or NaN, as in two passes."""
    kernel = parse_kernel(text)
    memory = memory_for(kernel, {})
    for start in range(0, 12, 4):
        values = memory[0].copy()
        values[0, : start + 1] = -np.inf
        values[1, start] = (np.inf, np.nan, -np.inf)[start // 4]
        scheduled = replay(kernel, [Split("c", 4), Online("c.0")])
        same_results(kernel, scheduled, memory={**memory, 0: values}, native=True)
    everything = np.full_like(memory[0], -np.inf)
    same_results(
        kernel, replay(kernel, [Split("c", 4), Online("c.0")]), memory={**memory, 0: everything}
    )


def test_one_pass_needs_terms_relative_to_the_maximum() -> None:
    squares = parse_kernel(LOGSUMEXP.replace("exp(x[r, c] - m[])", "x[r, c] * m[]"))
    with pytest.raises(ScheduleError, match="not relative to"):
        Online("c").apply(squares)


def test_instructions_keep_the_counts() -> None:
    kernel = parse_kernel(SMALL)
    tile = replay(kernel, [Reorder(("k", "m", "n")), Tensorize("m", "fma")])
    assert useful(tile).operations == useful(kernel).operations


NEAREST = """
kernel nearest(places: int32[16] @0, x: float32[8] @1, y: float32[15, 8] @2)
for r < 8:
  for u < 15 carried:
    y[max(min(int64(places[min(u + r, 15)]), 14), 0), r] = x[r]
  for u < 15 carried:
    y[min(u + r, 14), r] = x[r]
"""


def test_minima_of_a_program_do_not_run_an_iteration_again() -> None:
    kernel = parse_kernel(NEAREST.strip() + "\n")
    scheduled = replay(kernel, [Bind("r", "thread")])
    assert "thread" in print_kernel(scheduled)
