"""The roofline as SVG: attainable rate over intensity, one dot an op with given shapes."""

from __future__ import annotations

import math
from html import escape

from ridgeline.profile.analysis.tables import OpPoint
from ridgeline.profile.gpus import Gpu

_W, _H, _LEFT, _BOTTOM, _TOP, _RIGHT = 720, 360, 56, 36, 14, 14


class _Scale:
    """Logarithmic axes."""

    def __init__(self, low_x: float, high_x: float, low_y: float, high_y: float) -> None:
        self.low_x, self.high_x = math.log10(low_x), math.log10(high_x)
        self.low_y, self.high_y = math.log10(low_y), math.log10(high_y)

    def x(self, value: float) -> float:
        share = (math.log10(value) - self.low_x) / (self.high_x - self.low_x)
        return round(_LEFT + min(1.0, max(0.0, share)) * (_W - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        share = (math.log10(value) - self.low_y) / (self.high_y - self.low_y)
        return round(_H - _BOTTOM - min(1.0, max(0.0, share)) * (_H - _BOTTOM - _TOP), 1)


def _power(value: float) -> str:
    return f"{value:g}" if 0.01 <= value < 1e4 else f"{value:.0e}"


def _grid(scale: _Scale) -> list[str]:
    lines = []
    for exponent in range(math.ceil(scale.low_x), math.floor(scale.high_x) + 1):
        x = scale.x(10.0**exponent)
        lines.append(f'<line class="grid" x1="{x}" y1="{_TOP}" x2="{x}" y2="{_H - _BOTTOM}"/>')
        lines.append(
            f'<text x="{x}" y="{_H - _BOTTOM + 16}" text-anchor="middle">'
            f"{_power(10.0**exponent)}</text>"
        )
    for exponent in range(math.ceil(scale.low_y), math.floor(scale.high_y) + 1):
        y = scale.y(10.0**exponent)
        lines.append(f'<line class="grid" x1="{_LEFT}" y1="{y}" x2="{_W - _RIGHT}" y2="{y}"/>')
        lines.append(
            f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{_power(10.0**exponent)}</text>'
        )
    lines.append(
        f'<text x="{_W - _RIGHT}" y="{_H - 4}" text-anchor="end">FLOP per byte (modelled)</text>'
    )
    lines.append(f'<text x="{_LEFT + 4}" y="{_TOP + 10}">TFLOP/s</text>')
    return lines


def _roof(scale: _Scale, gpu: Gpu, peak: float, label: str, css: str) -> list[str]:
    """The memory slope up to the ridge, then the flat roof."""
    ridge = peak * 1e3 / gpu.bandwidth
    start = 10**scale.low_x
    points = (
        f"{scale.x(start)},{scale.y(start * gpu.bandwidth / 1e3)} "
        f"{scale.x(ridge)},{scale.y(peak)} {scale.x(10**scale.high_x)},{scale.y(peak)}"
    )
    return [
        f'<polyline class="roof {css}" points="{points}"/>',
        f'<text class="{css}" x="{scale.x(ridge) + 6}" y="{scale.y(peak) - 5}">'
        f"{escape(label)} {peak:g}</text>",
    ]


def roofline_svg(dots: list[OpPoint], gpu: Gpu) -> str:
    """The drawing; every dot carries its numbers as a tooltip."""
    shown = [dot for dot in dots if dot.intensity > 0 and dot.tflops > 0]
    if not shown:
        return ""
    top = max(gpu.sixteen_bit, gpu.float32) * 2
    low = min(min(dot.tflops for dot in shown) / 2, 0.1)
    scale = _Scale(
        min(min(dot.intensity for dot in shown) / 2, 0.05),
        max(max(dot.intensity for dot in shown) * 2, 1000),
        max(low, top * 1e-6),
        top,
    )
    parts = [
        f'<svg viewBox="0 0 {_W} {_H}" role="img" aria-label="roofline of {escape(gpu.name)}">',
        *_grid(scale),
        *_roof(scale, gpu, gpu.float32, "float32", "plain"),
        *_roof(scale, gpu, gpu.sixteen_bit or gpu.float32, "16-bit dense", "tensor"),
    ]
    longest = max(dot.seconds for dot in shown)
    for number, dot in enumerate(shown):
        radius = round(3 + 13 * math.sqrt(dot.seconds / longest), 1)
        label = (
            f"{dot.name} {dot.shapes} {dot.dtype}\n{dot.seconds * 1e3:.3f} ms a step, "
            f"{dot.calls:g} calls\n{dot.tflops:.3g} TFLOP/s, {dot.gbs:.0f} GB/s, "
            f"{dot.intensity:.3g} FLOP/byte\n{dot.floor / dot.seconds:.0%} of its roof (modelled)"
        )
        css = "tensor" if dot.tensor_cores else "plain"
        parts.append(
            f'<circle class="dot {css}" tabindex="0" data-dot="{number}" '
            f'cx="{scale.x(dot.intensity)}" cy="{scale.y(dot.tflops)}" r="{radius}">'
            f"<title>{escape(label)}</title></circle>"
        )
    return "".join((*parts, "</svg>"))
