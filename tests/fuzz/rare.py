"""Statements over element types that few functions take: complex numbers, floats of one byte."""

from __future__ import annotations

from tests.fuzz.generate import Maker, Statement


def paired(m: Maker) -> Statement | None:
    """Complex numbers from reals, and reals from complex numbers."""
    a = m.pick(lambda v: v.dtype == "float32" and not v.tracked)
    z = m.pick(lambda v: v.dtype == "complex64", rare=True)
    if a is not None and (z is None or m.rng.random() < 0.3):
        return m.let(f"rl.complex({a.name} * 1, {a.name} % 3)")
    if z is None:
        return None
    n = z.name
    forms = [f"{n}.real", f"{n}.imag", f"rl.view_as_real({n})", f"{n}.imag - {n}.real"]
    return m.let(m.rng.choice(forms))


def complex_arithmetic(m: Maker) -> Statement | None:
    """Sums and products of complex numbers that stay whole."""
    z = m.pick(lambda v: v.dtype == "complex64", rare=True)
    if z is None:
        return None
    n = z.name
    # torch's `conj()` is a view that some functions refuse, ours a new tensor
    forms = [f"{n}.conj().resolve_conj()", f"{n} + {n}.conj()", f"{n} * 1j", f"-{n}", f"{n} - 2",
             f"{n} == {n}.conj()", f"rl.where({n}.real > 0, {n}, {n} * 2)", f"{n}.sum()",
             f"{n} / 2"]  # fmt: skip
    if z.rank >= 1 and z.size:
        forms += [f"{n}.sum({m.axis(z)})", f"rl.cumsum({n}, {m.axis(z)})"]
    if z.rank == 2:
        forms.append(f"{n} @ {n}.mH")
    return m.let(m.rng.choice(forms))


def complex_write(m: Maker) -> list[Statement] | None:
    """A complex tensor changes, whole or by a part."""
    z = m.pick(lambda v: v.dtype == "complex64" and v.rank >= 1 and v.size > 0, rare=True)
    if z is None:
        return None
    copy = m.let(f"{z.name}.clone()")
    n = copy.target
    forms = [f"{n}[0] = 2", f"{n}.add_(1j)", f"{n}.mul_(1j)", f"{n}.real.add_(1)",
             f"rl.view_as_real({n})[..., 1] = 3"]  # fmt: skip
    return [copy, Statement(m.rng.choice(forms))]


def one_byte(m: Maker) -> Statement | None:
    """To floats of one byte and back; torch has them only on some devices."""
    stored = m.pick(lambda v: v.dtype.startswith("float8"), rare=True)
    if stored is not None and m.rng.random() < 0.7:
        wide = m.rng.choice(("f32", "f32", "bf16", "f16"))
        return m.let(f"{stored.name}.to({wide})", portable=False)
    a = m.pick(lambda v: v.floating)
    if a is None:
        return None
    kind = m.rng.choice(("float8_e4m3fn", "float8_e5m2"))
    return m.let(f"rl.clamp(rl.nan_to_num({a.name}), -4, 4).to(rl.{kind})", portable=False)


RARE = {paired: 2, complex_arithmetic: 3, complex_write: 1, one_byte: 2}
