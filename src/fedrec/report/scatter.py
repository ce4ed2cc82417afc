"""Points with names on a logarithmic scale, as SVG that is the same on every machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 420, 60, 170, 40, 50
COLOURS = {"sums only": "#1b6ca8", "every upload": "#c2571a", "all data": "#6b6b6b", "nothing": "#9a9a9a"}


@dataclass(frozen=True)
class Point:
    """One named point; ``kind`` gives its colour."""

    name: str
    x: float
    y: float
    kind: str


def scatter(panels: Mapping[str, Sequence[Point]], x_title: str, y_title: str) -> str:
    """One panel below the other; x of 0 stands at the left edge."""
    height = HEIGHT * max(1, len(panels)) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for number, (title, points) in enumerate(panels.items()):
        parts.append(f'<g transform="translate(0 {number * HEIGHT})">')
        parts += _panel(title, points, x_title, y_title)
        parts.append("</g>")
    for number, (kind, colour) in enumerate(COLOURS.items()):
        x, y = LEFT + 160 * number, height - 12
        parts.append(
            f'<circle cx="{x}" cy="{y - 4}" r="5" fill="{colour}"/><text x="{x + 10}" y="{y}">{escape(kind)}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(title: str, points: Sequence[Point], x_title: str, y_title: str) -> list[str]:
    logs = [math.log10(point.x) for point in points if point.x > 0]
    first, last = (math.floor(min(logs)) - 1, math.ceil(max(logs))) if logs else (0, 1)
    top = max(point.y for point in points) * 1.08 or 1.0
    inner, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(point: Point) -> tuple[float, float]:
        share = (math.log10(point.x) - first) / max(1, last - first) if point.x > 0 else 0.0
        return LEFT + inner * share, TOP + tall * (1 - point.y / top)

    parts = [f'<text x="{LEFT}" y="22" font-size="15" font-weight="bold">{escape(title)}</text>']
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 12}">{escape(x_title)} (left edge: none)</text>')
    parts.append(f'<text x="{LEFT + 120}" y="22">{escape(y_title)}</text>')
    for power in range(first + 1, last + 1):
        x = LEFT + inner * (power - first) / max(1, last - first)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{TOP + tall}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{x:.1f}" y="{TOP + tall + 16}" text-anchor="middle">{_bytes(power)}</text>')
    for step in range(5):
        y = TOP + tall * (1 - step / 4)
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + inner}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{top * step / 4:.3f}</text>')
    lowest = -math.inf
    for point in sorted(points, key=lambda point: (-point.y, point.name)):
        x, y = place(point)
        label = max(y + 4, lowest + 12) if point.x == 0 else y + 4
        lowest = label if point.x == 0 else lowest
        colour = COLOURS.get(point.kind, "black")
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 7:.1f}" y="{label:.1f}" fill="{colour}">{escape(point.name)}</text>')
    return parts


def _bytes(power: int) -> str:
    names = {0: "B", 3: "kB", 6: "MB", 9: "GB", 12: "TB"}
    base = max(key for key in names if key <= max(0, power))
    return f"{10 ** (power - base)} {names[base]}" if power >= 0 else f"1e{power} B"
