"""Pages as HTML: one Jinja environment that escapes everything, and how figures, times and trends look."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from eventstore.fields.plain_json import load_plain
from eventstore.personal.sealing import Erased
from factfold.cli.show import as_json, as_utc, printable
from factfold.console.drawing import chart

NOTHING: Final = "–"
_CELL: Final = 300
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))
_SIZES: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


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
    if value is None:
        return NOTHING
    for unit, name in _SIZES:
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.0f} B"


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
