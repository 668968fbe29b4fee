"""Statements out of networks: convolutions of every kind, pooling, embeddings, resampling."""

from __future__ import annotations

from math import prod

from tests.fuzz.generate import Maker, Statement, Var
from tests.fuzz.views import places


def weight(shape: tuple[int, ...], like: Var) -> str:
    """Small whole numbers of a shape, of a variable's type."""
    count = prod(shape)
    return f"(rl.arange({count}, device=D).reshape({shape}) % 4 - 1).to({like.name}.dtype)"


def _image(v: Var) -> bool:
    return v.rank >= 2 and v.dtype in ("float32", "float64") and v.size > 0


def convolution(m: Maker) -> Statement | None:
    """Along one axis or two, with strides, margins, holes, groups, and a bias."""
    a = m.pick(_image)
    if a is None:
        return None
    planar = a.rank == 4 and m.rng.random() < 0.8
    n, channels, size = _as_image(a, 2 if planar else 1)
    groups = m.rng.choice([g for g in (1, 1, 2, 3, channels) if channels % g == 0])
    taps = tuple(m.rng.randint(1, min(3, s)) for s in size)
    holes = max(1, min(2, *((s - 1) // max(t - 1, 1) for s, t in zip(size, taps))))
    dilation = m.rng.randint(1, holes)
    out = groups * m.rng.randint(1, 3)
    options = f"stride={m.rng.randint(1, 2)}, padding={m.rng.randint(0, 1)}"
    options += f", groups={groups}, dilation={dilation}"
    if m.rng.random() < 0.3:
        options += f", bias={weight((out,), a)}"
    kernel = weight((out, channels // groups, *taps), a)
    return m.let(f"rl.conv{len(size)}d({n}, {kernel}, {options})")


def transposed(m: Maker) -> Statement | None:
    """A convolution the other way round."""
    a = m.pick(_image)
    if a is None:
        return None
    planar = a.rank == 4 and m.rng.random() < 0.6
    n, channels, size = _as_image(a, 2 if planar else 1)
    groups = m.rng.choice([g for g in (1, 1, 2, channels) if channels % g == 0])
    taps = tuple(m.rng.randint(1, 3) for _ in size)
    stride = m.rng.randint(1, 2)
    kernel = weight((channels, m.rng.randint(1, 2), *taps), a)
    options = f"stride={stride}, groups={groups}, output_padding={m.rng.randint(0, stride - 1)}"
    return m.let(f"rl.conv_transpose{len(size)}d({n}, {kernel}, {options})")


def _as_image(a: Var, axes: int) -> tuple[str, int, tuple[int, ...]]:
    """A variable as a batch of channels, with so many axes of places."""
    if a.rank == axes + 2:
        return a.name, a.shape[1], a.shape[2:]
    rows = a.size // a.shape[-1]
    channels = next(c for c in (4, 3, 2, 1) if rows % c == 0)
    shape = (rows // channels, channels, a.shape[-1])
    return f"{a.name}.reshape({shape})", channels, shape[2:]


def pool(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank in (3, 4) and _image(v) and min(v.shape[-2:]) >= 2)
    if a is None:
        return None
    n, f = a.name, "rl.nn.functional"
    tall, wide = (size // 2 * 2 for size in a.shape[-2:])
    forms = [f"{f}.avg_pool2d({n}, 2, padding={m.rng.randint(0, 1)})",
             f"{f}.avg_pool2d({n}, (1, 2))",
             f"{f}.pixel_unshuffle({n}[..., :{tall}, :{wide}], 2)"]  # fmt: skip
    if a.rank == 4:
        mode = m.rng.choice(("reflect", "replicate"))
        forms += [f"{f}.interpolate({n}, scale_factor=2, mode='nearest')",
                  f"{f}.unfold({n}, 2, padding=1)",
                  f"{f}.pad({n}, (1, 1, 1, 0), mode='{mode}')"]  # fmt: skip
        if m.flavour == "smooth":
            forms += [f"{f}.interpolate({n}, scale_factor=1.5, mode='bilinear')",
                      f"{f}.adaptive_avg_pool2d({n}, 1)"]  # fmt: skip
    if not a.tracked:
        stride, margin = m.rng.randint(1, 2), m.rng.randint(0, 1)
        forms += [f"{f}.max_pool2d({n}, 2, stride={stride}, padding={margin})"] * 2
    chosen = m.rng.choice(forms)
    # torch computes places in float32, and a third of a place is not one of its numbers
    return m.let(chosen, portable="scale_factor=1.5" not in chosen)


def embedding(m: Maker) -> Statement | None:
    """Rows of a table, some of them twice."""
    a = m.pick(lambda v: v.floating and v.rank == 2 and v.size > 0)
    if a is None:
        return None
    picks = places(m, a.shape[0], m.rng.randint(1, 9))
    padding = m.rng.choice(("", f", padding_idx={m.rng.randrange(a.shape[0])}"))
    return m.let(f"rl.nn.functional.embedding({picks}, {a.name}{padding})")


LAYERS = {convolution: 4, transposed: 1, pool: 2, embedding: 1}
