"""One text for one value, as SQL: of a column of a PostgreSQL source, and of a state in PostgreSQL made from it.

Equal texts are equal values, whatever the two types are: `numeric(12,4)` 1.5000 and a state's 1.50 are both `1.5`.
A pair of types that is not listed here has no text, and is reported as not compared. The texts need a session with
`SESSION` (time zone and date style), and stand for a state whose types are those of the table store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal[
    "integer", "double", "boolean", "decimal", "moment", "local moment", "date", "bytes", "text", "time", "zoned time",
    "interval", "uuid", "bits", "list", "map", "shaped",
]  # fmt: skip

SESSION: Final = (
    "SET TimeZone TO 'UTC'",
    "SET DateStyle TO 'ISO, MDY'",
    "SET extra_float_digits TO 1",
    "SET default_transaction_read_only TO on",
)

# What a changelog's reader makes of PostgreSQL's infinite times: the last and the first that it can hold.
_LAST_DAY, _FIRST_DAY = "9999-12-31", "0001-01-01"
_LAST, _FIRST = f"{_LAST_DAY} 23:59:59.999999", f"{_FIRST_DAY} 00:00:00"

_PLAIN: Final = "{0}::text"
# The text that the type's output function writes; a cast would strip char(n) and add a mask to addresses.
_WRITTEN: Final = "CASE WHEN {0} IS NOT NULL THEN concat({0}) END"
_SECONDS: Final = (
    "extract(day FROM {0}) * 86400 + extract(hour FROM {0}) * 3600 + extract(minute FROM {0}) * 60"
    " + extract(second FROM {0})"
)


@dataclass(frozen=True)
class ColumnForm:
    """What the values of a state's column stand for; ``items`` is the form of a list's items, ``scale`` a decimal's."""

    kind: Kind
    items: ColumnForm | None = None
    scale: int = 0


@dataclass(frozen=True)
class SourceType:
    """The type of a source's column: its name in pg_type (a domain's base type), whether it is an enum or an array."""

    name: str
    is_enum: bool = False
    is_array: bool = False

    @property
    def item(self) -> SourceType:
        """The type of an array's items."""
        return SourceType(self.name, self.is_enum)


def _finite(text: str, last: str, first: str) -> str:
    return (
        "CASE WHEN {0} IS NULL THEN NULL WHEN isfinite({0}) THEN "
        f"{text} WHEN {{0}} > 'epoch' THEN '{last}' ELSE '{first}' END"
    )


_WHOLE: Final = dict.fromkeys(("int2", "int4", "int8"), _PLAIN)
_AS_DOUBLE: Final = dict.fromkeys(("int2", "int4", "int8", "numeric", "float8"), "{0}::float8::text")
_SOURCE: Final[Mapping[Kind, Mapping[str, str]]] = {
    "integer": {**_WHOLE, "oid": _PLAIN, "numeric": "trim_scale({0})::text"},
    # A real's shortest digits, read as a double: that is how its JSON is read.
    "double": {**_AS_DOUBLE, "float4": "{0}::text::float8::text"},
    "boolean": {"bool": _PLAIN},
    "decimal": {**_WHOLE, "numeric": "trim_scale({0})::text", "money": "trim_scale({0}::numeric)::text"},
    "moment": {"timestamptz": _finite("({0} AT TIME ZONE 'UTC')::text", _LAST, _FIRST)},
    "local moment": {"timestamp": _finite("{0}::text", _LAST, _FIRST)},
    "date": {"date": _finite("{0}::text", _LAST_DAY, _FIRST_DAY)},
    "bytes": {"bytea": "encode({0}, 'hex')"},
    "text": {
        **dict.fromkeys(("text", "varchar", "name", "citext", "json", "jsonb", "uuid"), _PLAIN),
        **dict.fromkeys(("bpchar", "inet", "cidr", "macaddr", "macaddr8", "tsvector", "xml"), _WRITTEN),
        **dict.fromkeys(("int4range", "int8range", "numrange", "daterange"), _WRITTEN),
    },
    "time": {"time": "to_char({0}, 'HH24:MI:SS.US')"},
    "zoned time": {"timetz": "to_char(({0} AT TIME ZONE 'UTC')::time, 'HH24:MI:SS.US') || 'Z'"},
    "interval": {
        "interval": "'P' || extract(year FROM {0}) || 'Y' || extract(month FROM {0}) || 'M0DT0H0M' || "
        f"({_SECONDS})::numeric(26,6) || 'S'"
    },
    "uuid": {"uuid": _PLAIN},
    "bits": {"bit": _PLAIN},
}
_STATE: Final[Mapping[Kind, str]] = {
    **dict.fromkeys(("text", "uuid", "bits", "time", "zoned time", "interval"), "{0}"),
    **dict.fromkeys(("integer", "double", "boolean", "date"), _PLAIN),
    **dict.fromkeys(("moment", "local moment"), "({0} AT TIME ZONE 'UTC')::text"),
    "decimal": "trim_scale({0})::text",
    "bytes": "encode({0}, 'hex')",
}
# Of an item of a state's list: text, out of JSON.
_STATE_ITEM: Final[Mapping[Kind, str]] = {
    **dict.fromkeys(("text", "uuid", "bits", "time", "zoned time", "interval", "integer", "boolean", "date"), "{0}"),
    **dict.fromkeys(("moment", "local moment"), "({0}::timestamptz AT TIME ZONE 'UTC')::text"),
    "decimal": "trim_scale({0}::numeric)::text",
    "double": "{0}::float8::text",
    "bytes": "encode(decode({0}, 'base64'), 'hex')",
}


def source_text(form: ColumnForm, kind: SourceType, column: str) -> str | None:
    """Return SQL of the canonical text of a source's column; None for a pair of types without one."""
    if form.kind == "list":
        if form.items is None or not kind.is_array:
            return None
        item = source_text(form.items, kind.item, "i.v")
        return None if item is None else _listed(column, f"unnest({column})", item)
    if kind.is_array:
        return None
    template = _PLAIN if form.kind == "text" and kind.is_enum else _SOURCE.get(form.kind, {}).get(kind.name)
    return None if template is None else template.format(column)


def state_text(form: ColumnForm, column: str) -> str | None:
    """Return SQL of the canonical text of a state's column; None for a form without one."""
    if form.kind == "list":
        item = _STATE_ITEM.get(form.items.kind) if form.items else None
        opened = f"jsonb_array_elements_text({column}::jsonb)"
        return None if item is None else _listed(column, opened, item.format("i.v"))
    template = _STATE.get(form.kind)
    return None if template is None else template.format(column)


def _listed(column: str, opened: str, item: str) -> str:
    """The items in their order, each quoted; an empty list is not null."""
    items = f"SELECT string_agg(quote_nullable({item}), ',' ORDER BY i.n) FROM {opened} WITH ORDINALITY AS i(v, n)"  # noqa: S608
    return f"CASE WHEN {column} IS NOT NULL THEN '[' || coalesce(({items}), '') || ']' END"
