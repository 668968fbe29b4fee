"""Kernels, as text, that tests of schedule steps rewrite."""

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
