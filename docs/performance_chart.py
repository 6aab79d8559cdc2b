"""The chart of docs/performance.md: `python -m docs.performance_chart` draws the claims in `build/bench` as an SVG.

A bar is how far a ratio is from its target, on a scale of powers of two: to the right it is better.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
RESULTS, CHART = ROOT / "build" / "bench", ROOT / "docs" / "pictures" / "performance.svg"
_NAMES, _HALF, _ROW, _MOST = 250, 220, 22, 4.0  # pixels of the names and of either side; pixels a row; powers of two


def claims(folder: Path = RESULTS) -> list[Mapping[str, Any]]:
    """Every claim that a program has written, by name."""
    found = (json.loads(path.read_text(encoding="utf-8"))["claims"] for path in sorted(folder.glob("*.json")))
    return sorted((claim for written in found for claim in written), key=lambda claim: str(claim["id"]))


def margin(claim: Mapping[str, Any]) -> float:
    """How often a claim reaches its target, as a power of two: 1 is twice as good, -1 half as good."""
    away = min(_MOST, abs(math.log2(float(claim["ratio"]) / float(claim["target"]))))
    return away if claim["met"] else -away


def drawn(claims: Iterable[Mapping[str, Any]]) -> str:
    """The chart as SVG, of one row a claim."""
    rows = [_row(number, claim) for number, claim in enumerate(claims)]
    height, middle = len(rows) * _ROW + 40, _NAMES + _HALF
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{middle + _HALF + 90}" height="{height}"'
        ' font-family="sans-serif" font-size="12" fill="#24292f">',
        "<title>How far each claim is from its target</title>",
        f'<rect width="100%" height="100%" fill="#fff"/><text x="{middle}" y="16" text-anchor="middle">target</text>',
        f'<line x1="{middle}" y1="22" x2="{middle}" y2="{height - 10}" stroke="#24292f"/>',
        *rows,
        "</svg>",
        "",
    ])  # fmt: skip


def _row(number: int, claim: Mapping[str, Any]) -> str:
    top, middle, reach = 26 + number * _ROW, _NAMES + _HALF, margin(claim)
    width, color = abs(reach) / _MOST * _HALF, "#2da44e" if claim["met"] else "#cf222e"
    left = middle if reach >= 0 else middle - width
    said = f"{float(claim['ratio']):,.3g}"
    return (
        f'<text x="{_NAMES - 8}" y="{top + 14}" text-anchor="end">{escape(str(claim["id"]))}</text>'
        f'<rect x="{left:.0f}" y="{top + 3}" width="{max(width, 1):.0f}" height="{_ROW - 6}" fill="{color}"/>'
        f'<text x="{middle + _HALF + 8}" y="{top + 14}">{said} of {claim["target"]:,.3g}</text>'
    )


if __name__ == "__main__":
    CHART.write_text(drawn(claims()), encoding="utf-8")
