"""Pages as HTML: one Jinja environment that escapes everything, and how figures, times and trends look.

Pictures drawn on the server: the points of a trend, and a layered graph with its edges, as numbers for SVG.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from cdc import findings
from eventstore.fields.plain_json import load_plain
from eventstore.personal.sealing import Erased
from factfold.cli.show import as_json, as_utc, printable

WIDTH: Final = 156
HEIGHT: Final = 58
_GAP_X: Final = 54  # six columns fit a window of 1,280 pixels
_GAP_Y: Final = 18
_SWEEPS: Final = 4
CHART_WIDTH: Final = 420
CHART_HEIGHT: Final = 130
_AXIS: Final = 60  # the room for values at the left


@dataclass(frozen=True, slots=True)
class Chart:
    """A trend with its axes: the points of a polyline, and where the values and the times of the axes stand."""

    points: str
    values: tuple[tuple[float, float], ...]
    times: tuple[tuple[float, datetime], ...]
    width: int = CHART_WIDTH
    height: int = CHART_HEIGHT


def chart(samples: Sequence[float], times: Sequence[datetime]) -> Chart | None:
    """Lay a trend out over axes from 0 to a round value and from the first to the last time; None for one sample."""
    if len(samples) < 2:
        return None
    first, span = times[0], (times[-1] - times[0]).total_seconds() or 1.0
    top, right, bottom = _round_above(max(samples)), CHART_WIDTH - 12, CHART_HEIGHT - 20

    def across(moment: datetime) -> float:
        return round(_AXIS + (right - _AXIS) * (moment - first).total_seconds() / span, 1)

    def down(value: float) -> float:
        return round(bottom - (bottom - 10) * value / top, 1)

    points = " ".join(f"{across(at)},{down(value)}" for at, value in zip(times, samples, strict=True))
    middle = first + (times[-1] - first) / 2
    ticks = tuple((down(value), value) for value in (0.0, top / 2, top))
    return Chart(points, ticks, tuple((across(at), at) for at in (first, middle, times[-1])))


def _round_above(value: float) -> float:
    """Return the next of 1, 2, 5, 10, 20 and so on; 1 for nothing."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a node is drawn: the upper left corner of its box."""

    x: int
    y: int

    @property
    def middle(self) -> int:
        """The height at which edges arrive and leave."""
        return self.y + HEIGHT // 2


@dataclass(frozen=True, slots=True)
class Curve:
    """An edge: the path of an SVG, and where its label stands."""

    source: str
    target: str
    path: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Drawing:
    """Every node's spot, every edge's curve, and the size of the whole."""

    spots: Mapping[str, Spot]
    curves: Sequence[Curve]
    width: int
    height: int


def draw(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> Drawing:
    """Lay a graph out from left to right: a node stands one layer behind the last of those before it."""
    known = set(nodes)
    lines = [(a, b) for a, b in dict.fromkeys(edges) if a in known and b in known and a != b]
    layers = _layers(nodes, lines)
    rows = _ordered(layers, lines)
    spots = {
        name: Spot(depth * (WIDTH + _GAP_X), place * (HEIGHT + _GAP_Y))
        for depth, row in enumerate(rows)
        for place, name in enumerate(row)
    }
    tallest = max((len(row) for row in rows), default=0)
    curves = [_curve(a, b, spots) for a, b in lines]
    return Drawing(spots, curves, len(rows) * (WIDTH + _GAP_X) - _GAP_X, tallest * (HEIGHT + _GAP_Y))


def _layers(nodes: Sequence[str], lines: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The longest path to each node; an edge that closes a circle counts for nothing."""
    before: dict[str, list[str]] = {name: [] for name in nodes}
    for a, b in lines:
        before[b].append(a)
    depth: dict[str, int] = {}
    for name in nodes:
        _settle(name, before, depth)
    return depth


def _settle(start: str, before: Mapping[str, Sequence[str]], depth: dict[str, int]) -> None:
    """Depth first, without recursion: a chain of topics may be longer than Python's stack."""
    open_, path = [start], set[str]()
    while open_:
        name = open_[-1]
        waiting = [one for one in before[name] if one not in depth and one not in path and one != name]
        if name not in depth and name not in path and waiting:
            path.add(name)
            open_ += waiting
            continue
        depth.setdefault(name, 1 + max((depth.get(one, -1) for one in before[name]), default=-1))
        path.discard(name)
        open_.pop()


def _ordered(layers: Mapping[str, int], lines: Sequence[tuple[str, str]]) -> list[list[str]]:
    """The nodes of each layer, moved towards the middle of their neighbours: fewer lines cross."""
    rows: list[list[str]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for name, depth in layers.items():
        rows[depth].append(name)
    neighbours: dict[str, list[str]] = {name: [] for name in layers}
    for a, b in lines:
        neighbours[a].append(b)
        neighbours[b].append(a)
    for sweep in range(_SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            places = {name: place for each in rows for place, name in enumerate(each)}
            row.sort(key=lambda name: _middle(name, neighbours, places))
    return rows


def _middle(name: str, neighbours: Mapping[str, Sequence[str]], places: Mapping[str, int]) -> float:
    near = [places[one] for one in neighbours[name]]
    return sum(near) / len(near) if near else float(places[name])


def _curve(source: str, target: str, spots: Mapping[str, Spot]) -> Curve:
    a, b = spots[source], spots[target]
    x1, y1, x2, y2 = a.x + WIDTH, a.middle, b.x, b.middle
    bend = (x1 + x2) // 2
    return Curve(source, target, f"M{x1} {y1}C{bend} {y1} {bend} {y2} {x2} {y2}", bend, (y1 + y2) // 2)


NOTHING: Final = "–"
_CELL: Final = 300
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


def environment() -> Environment:
    """Build the environment of the templates."""
    environment = Environment(
        loader=PackageLoader("factfold.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number, "seconds": seconds, "bytes": size, "moment": moment, "ago": ago, "address": address,
        "line": line, "pairs": pairs, "plain": load_plain, "pretty": pretty, "cell": cell, "cut": cut,
    }  # fmt: skip
    environment.globals |= {"chart": chart}
    return environment


def number(value: float | None) -> str:
    """Write a count with its thousands apart."""
    return NOTHING if value is None else f"{value:,.0f}"


def seconds(value: float | timedelta | None) -> str:
    """Write a duration by its largest unit: `0.4 s`, `12 s`, `3 min`, `2.5 h`, `4 d`."""
    if value is None:
        return NOTHING
    given = value.total_seconds() if isinstance(value, timedelta) else value
    for unit, name in _UNITS:
        if given >= unit:
            return f"{given / unit:{'.3g' if given < 100 * unit else ',.0f'}} {name}"
    return f"{given:.1f} s" if given < 10 else f"{given:.0f} s"


def size(value: float | None) -> str:
    """Write a number of bytes by its largest unit."""
    return NOTHING if value is None else findings.size(round(value))


def moment(value: datetime | str | None) -> str:
    """Write a time, or one that is written as ISO 8601, as `2026-11-26 12:00:00.123Z`."""
    if value is None:
        return NOTHING
    return as_utc(_aware(datetime.fromisoformat(value) if isinstance(value, str) else value))


def cut(text: str) -> str:
    """Shorten a text to what a cell takes."""
    return text if len(text) <= _CELL else f"{text[:_CELL]}…"


def ago(value: datetime | None) -> str:
    """Write how long ago a time was."""
    return NOTHING if value is None else f"{seconds(max(0.0, (datetime.now(UTC) - _aware(value)).total_seconds()))} ago"


def _aware(value: datetime) -> datetime:
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def address(path: str, query: Mapping[str, object] | None = None) -> str:
    """Write an address of the console with parameters; those without a value are left out."""
    given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def pretty(value: Any) -> str:
    """Write a value as indented JSON, personal values masked."""
    return _written(value, "\n")


def line(value: Any) -> str:
    """Write a value as JSON on one line."""
    return printable(_written(value, ""))


def cell(value: Any) -> str:
    """Write a value of a table's column: texts and times without quotes."""
    return value if isinstance(value, str) else moment(value) if isinstance(value, datetime) else line(value)


def pairs(values: Mapping[str, Any]) -> str:
    """Write fields as `amount=3.50 by="Post"`."""
    return " ".join(f"{printable(str(name))}={line(value)}" for name, value in values.items())


def _written(value: Any, margin: str) -> str:
    """Write JSON with times as people read them and decimals with all digits; on lines if there is a margin."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return json.dumps(moment(value))
    if isinstance(value, Erased):
        return _written(value.placeholder, margin)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    deeper = margin and f"{margin}  "
    if isinstance(value, Mapping):
        inner = [f"{json.dumps(str(name), ensure_ascii=False)}: {_written(one, deeper)}" for name, one in value.items()]
    elif isinstance(value, list | tuple):
        inner = [_written(one, deeper) for one in value]
    else:
        return json.dumps(as_json(value), ensure_ascii=False)
    opening, closing = "{}" if isinstance(value, Mapping) else "[]"
    return f"{opening}{deeper}{f',{deeper or chr(32)}'.join(inner)}{margin}{closing}" if inner else opening + closing
