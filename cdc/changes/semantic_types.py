"""What the schema of a record says of a field: Kafka Connect's type, and the semantic type that Debezium gives it.

A field whose meaning is in its schema (a number of days, a decimal's digits) is opened to a Python value; one that says
by itself what it is (text, most of them) is left to the reader of its column. Names and encodings: Debezium's "Data
type mappings" of each connector, Kafka Connect's logical types, and tests/recordings for what the pages leave out.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

Open = Callable[[Any], Any]

_CONNECT = "org.apache.kafka.connect.data."
_DEBEZIUM = "io.debezium.time."

DECIMAL: Final = f"{_CONNECT}Decimal"
VARIABLE_SCALE: Final = "io.debezium.data.VariableScaleDecimal"
DURATION: Final = f"{_DEBEZIUM}MicroDuration"
DAYS: Final = frozenset({f"{_CONNECT}Date", f"{_DEBEZIUM}Date"})
# How many of its units a second has, by the semantic type of a time of day or of a time without zone.
TIMES: Final = {
    f"{_CONNECT}Time": 1_000,
    f"{_DEBEZIUM}Time": 1_000,
    f"{_DEBEZIUM}MicroTime": 1_000_000,
    f"{_DEBEZIUM}NanoTime": 1_000_000_000,
}
TIMESTAMPS: Final = {
    f"{_CONNECT}Timestamp": 1_000,
    f"{_DEBEZIUM}Timestamp": 1_000,
    f"{_DEBEZIUM}MicroTimestamp": 1_000_000,
    f"{_DEBEZIUM}NanoTimestamp": 1_000_000_000,
}
DOUBLES: Final = frozenset({"double", "float", "float64", "float32"})

# PostgreSQL's infinity and -infinity, as each encoding writes them. A date that a snapshot reads passes through fewer
# bits than the driver's constant for it has, and comes out as another.
ENDLESS_DAYS: Final = (2_146_033_979, -622_191_234)
BEGINLESS_DAYS: Final = (-2_147_472_691, -625_821_272)
ENDLESS: Final = (9_223_372_036_854_775_807, 9_223_372_036_825_200_000)
BEGINLESS: Final = (-9_223_372_036_854_775_808, -9_223_372_036_832_400_000)
ENDLESS_TEXTS: Final = ("infinity", "+5877611-06-21Z", "+292278994-08-16Z", "+292278994-08-16T23:00:00Z")
BEGINLESS_TEXTS: Final = ("-infinity", "-5877611-06-22Z", "+292269055-12-02Z", "-292275055-05-16T23:00:00Z")

_EPOCH: Final = datetime(1970, 1, 1)  # of times without zone
_FIRST_DAY: Final = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class Form:
    """How a field's values are written, in Connect's words or in Avro's; ``items`` is the form of an array's items.

    ``scale`` is that of a Decimal, ``fields`` are a struct's, by name. In JSON, bytes are base64 text.
    """

    type: str
    name: str | None = None
    scale: int | None = None
    items: Form | None = None
    fields: tuple[tuple[str, Form], ...] = ()

    @classmethod
    def of_connect(cls, schema: Mapping[str, Any]) -> Form:
        """The form that a schema of Connect's JSON converter describes."""
        items, parameters = schema.get("items"), schema.get("parameters") or {}
        return cls(
            schema["type"],
            schema.get("name"),
            int(parameters["scale"]) if "scale" in parameters else None,
            cls.of_connect(items) if items else None,
            tuple((field["field"], cls.of_connect(field)) for field in schema.get("fields", ())),
        )

    @classmethod
    def of_avro(cls, schema: Any) -> Form:
        """The form that an Avro schema of Connect's converters describes (`connect.name`); null is looked through."""
        return _of_avro(schema, known={}, namespace="")


def _of_avro(schema: Any, *, known: dict[str, Form], namespace: str) -> Form:
    if isinstance(schema, list):
        members = [member for member in schema if member != "null"]
        if len(members) != 1:
            return Form("union")  # none of Connect's; only a reader of the field fails
        (schema,) = members
    if isinstance(schema, str):
        return known.get(schema) or known.get(f"{namespace}.{schema}") or Form(schema)
    if isinstance(schema["type"], Mapping | list):
        return _of_avro(schema["type"], known=known, namespace=namespace)
    space = schema.get("namespace", namespace)
    items = schema.get("items")
    form = Form(
        schema["type"],
        schema.get("connect.name"),
        schema.get("scale"),
        None if items is None else _of_avro(items, known=known, namespace=space),
        tuple((f["name"], _of_avro(f["type"], known=known, namespace=space)) for f in schema.get("fields", ())),
    )
    if "name" in schema:
        known[f"{space}.{schema['name']}"] = form
    return form


@lru_cache(maxsize=512)
def opener(form: Form) -> Open | None:
    """Return what makes a Python value of a field's raw one; None where it says by itself what it is."""
    if form.items is not None:
        return _each(opener(form.items))
    if form.type == "bytes" and form.name != DECIMAL:
        return _bytes
    return _opener_of(form)


def _opener_of(form: Form) -> Open | None:
    name, scale = form.name or "", form.scale
    if name == DECIMAL:
        return lambda value: _unscaled(value, scale or 0)
    if name in TIMESTAMPS:
        return lambda value: _moment(value, TIMESTAMPS[name])
    if name in TIMES:
        return lambda value: _time_of_day(value, TIMES[name])
    if name in DAYS:
        return _day
    return _OTHERS.get(name)


def _each(open_item: Open | None) -> Open | None:
    if open_item is None:
        return None
    return lambda values: [None if value is None else open_item(value) for value in values]


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else base64.b64decode(value, validate=True)


def _unscaled(value: Any, scale: int) -> Decimal:
    # By its text: arithmetic would round to the digits of the thread's context.
    return Decimal(f"{int.from_bytes(_bytes(value), 'big', signed=True)}E{-scale}")


def _variable_scale(value: Mapping[str, Any]) -> Decimal:
    return _unscaled(value["value"], value["scale"])


def _day(value: int) -> date:
    if value in ENDLESS_DAYS:
        return date.max
    if value in BEGINLESS_DAYS:
        return date.min
    return date.fromordinal(_FIRST_DAY + value)


def _moment(value: int, units: int) -> datetime:
    if value in ENDLESS:
        return datetime.max
    if value in BEGINLESS:
        return datetime.min
    return _EPOCH + _micros(value, units)


def _time_of_day(value: int, units: int) -> time:
    past = _micros(value, units)
    if not timedelta() <= past < timedelta(days=1):
        raise ValueError("a time of day has 24 hours or more")
    return (_EPOCH + past).time()


def _micros(value: int, units: int) -> timedelta:
    # Whole numbers all the way: a double has too few digits for the microseconds of this century.
    return timedelta(microseconds=value * 1_000_000 // units)


def _duration(value: int) -> timedelta:
    return timedelta(microseconds=value)


_OTHERS: Final[Mapping[str, Open]] = {VARIABLE_SCALE: _variable_scale, DURATION: _duration}
