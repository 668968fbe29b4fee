"""Parts that many families share: rotations by their several spellings, windows, norms' names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ridgeline.models.parts import Rotary
from ridgeline.models.settings import REQUIRED, CheckedSettings

HIDDEN, HEADS = "hidden_size n_embd n_embed d_model", "num_attention_heads n_head n_heads num_heads"
LAYERS = "num_hidden_layers n_layer n_layers num_layers"
ROPE_KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
MOST = 1 << 16  # of what is made one by one, or laid out before weights are read


def bounded(c: CheckedSettings, names: str, default: Any = REQUIRED) -> int:
    """A number of things that no model has very many of."""
    found: int = c.count(names, default)
    return _few(c, names.split()[0], found)


def _few(c: CheckedSettings, name: str, count: int) -> int:
    if count > MOST:
        raise c.refused(name, count, [f"at most {MOST}"])
    return count


def layers(c: CheckedSettings, default: Any = REQUIRED) -> int:
    """How many blocks there are."""
    return bounded(c, LAYERS, default)


def head_size(c: CheckedSettings) -> int:
    """The elements of a head of queries and keys."""
    found: int = c.count("head_dim", None) or c.count(HIDDEN) // c.count(HEADS)
    return found


def rotary(
    theta: float = 10_000.0,
    share: float = 1.0,
    interleaved: bool = False,
    size: Callable[[CheckedSettings], int] = head_size,
) -> Callable[[CheckedSettings], tuple[Rotary, ...]]:
    """The same rotation in every layer."""

    def read(c: CheckedSettings) -> tuple[Rotary, ...]:
        return (read_rotary(c, rope_settings(c), theta, share, interleaved, size(c)),)

    return read


def rope_settings(c: CheckedSettings) -> CheckedSettings:
    """The settings of the rotation, under today's name or the older one."""
    name = "rope_parameters" if c.values.get("rope_parameters") else "rope_scaling"
    return c.group(name, {})


def read_rotary(
    c: CheckedSettings,
    rope: CheckedSettings,
    theta: float,
    share: float,
    interleaved: bool,
    size: int,
) -> Rotary:
    """A rotation, from its own settings and those beside them."""
    kind = rope.text("rope_type type", "default")
    kind = "longrope" if kind == "su" else kind
    if kind not in ROPE_KINDS:
        raise rope.refused("rope_type", kind, ROPE_KINDS)
    outside = c.real("partial_rotary_factor rotary_pct", share)
    size = _few(c, "head_dim", int(size * rope.real("partial_rotary_factor", outside)))
    theta = rope.real("rope_theta", c.real("rope_theta rotary_emb_base", theta))
    if kind == "default" or kind == "dynamic":
        return Rotary(size, theta, kind, interleaved=interleaved)
    context = c.count("max_position_embeddings")
    original = rope.count("original_max_position_embeddings", context)
    original = c.count("original_max_position_embeddings", original)
    factor = rope.real("factor", context / original if kind != "linear" else 1.0)
    return Rotary(
        size, theta, kind, factor, original,
        low=rope.real("low_freq_factor", 1.0), high=rope.real("high_freq_factor", 4.0),
        fast=rope.real("beta_fast", 32.0), slow=rope.real("beta_slow", 1.0),
        truncate=rope.flag("truncate", True), amplitude=_amplitude(rope, kind, factor, original),
        short=tuple(rope.get("short_factor", "Sequence[float]", ())),
        long=tuple(rope.get("long_factor", "Sequence[float]", ())), interleaved=interleaved,
    )  # fmt: skip


def _amplitude(rope: CheckedSettings, kind: str, factor: float, original: int) -> float:
    """By how much stretched rotations are larger, so that attention stays as sharp."""
    given: float | None = rope.real("attention_factor", None)
    if given is not None or kind not in ("yarn", "longrope") or factor <= 1:
        return 1.0 if given is None else given
    if kind == "longrope":
        return math.sqrt(1 + math.log(factor) / math.log(original))
    own, of_all = rope.real("mscale", 0.0), rope.real("mscale_all_dim", 0.0)
    grown = [0.1 * scale * math.log(factor) + 1.0 for scale in (own, of_all, 1.0)]
    return grown[0] / grown[1] if own and of_all else grown[2]


def layer_types(c: CheckedSettings, pattern: Callable[[int], bool]) -> list[bool]:
    """For each layer whether it sees a window only: as listed, or else by a pattern."""
    count = layers(c)
    listed = c.get("layer_types", "Sequence[str]", None)
    if listed is None:
        return [pattern(n) for n in range(count)]
    known = ("full_attention", "sliding_attention")
    for kind in listed:
        if kind not in known:
            raise c.refused("layer_types", kind, known)
    if len(listed) != count:
        raise c.refused("layer_types", f"{len(listed)} of {count} layers", [count])
    return [kind == "sliding_attention" for kind in listed]


def windows(pattern: Callable[[CheckedSettings], Callable[[int], bool]] | None = None) -> Any:
    """How far back layers see: all of them as `sliding_window` says, or those of a pattern."""

    def read(c: CheckedSettings) -> tuple[int | None, ...]:
        size = c.count("sliding_window", None)
        if size is None or pattern is None:
            return (size,)
        return tuple(size if local else None for local in layer_types(c, pattern(c)))

    return read


def every(name: str, default: int) -> Callable[[CheckedSettings], Callable[[int], bool]]:
    """Windows in all layers but each so-manieth."""

    def read(c: CheckedSettings) -> Callable[[int], bool]:
        period = c.count(f"{name} _{name}", default)
        return lambda layer: (layer + 1) % period != 0

    return read


def late_windows(c: CheckedSettings) -> tuple[int | None, ...]:
    """Windows where they are switched on, from one layer on."""
    if not c.flag("use_sliding_window", False):
        return ()
    first = c.get("max_window_layers", "float", 28)
    found: tuple[int | None, ...] = windows(lambda c: lambda layer: layer >= first)(c)
    return found


def rotary_by_layer(
    pattern: Callable[[CheckedSettings], Callable[[int], bool]],
    theta: float,
    local_theta: float | None = None,
    bare: bool = False,
    interleaved: bool = False,
) -> Callable[[CheckedSettings], tuple[Rotary | None, ...]]:
    """Rotations that differ between layers with a window and those without.

    Where the latter are `bare`, they know no positions. Stretching is for them alone.
    """

    def read(c: CheckedSettings) -> tuple[Rotary | None, ...]:
        joint, size = c.values.get("rope_parameters"), head_size(c)
        if isinstance(joint, dict) and "full_attention" in joint:
            both = c.group("rope_parameters")
            far, near = both.group("full_attention"), both.group("sliding_attention", {})
        else:
            far, near = rope_settings(c), CheckedSettings({}, c.where)
        whole = read_rotary(c, far, theta, 1.0, interleaved, size)
        beside = CheckedSettings({"rope_theta": c.values.get("rope_local_base_freq")}, c.where)
        other = read_rotary(beside, near, local_theta or whole.theta, 1.0, interleaved, size)
        local = layer_types(c, pattern(c)) if c.values.get("sliding_window") else [False]
        if not any(local):
            return (whole,)
        return tuple(other if window else None if bare else whole for window in local)

    return read
