"""Names the branch of each union value for the Avro library.

The library would take the first branch that a value can be converted to: an int becomes a double, a text a day and
bytes a list of numbers. Here the class of the value decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eventstore.fields.conversions import Convert, each, each_value, unless_none
from eventstore.fields.unions import class_of, short_name


def branch_names(avro: Any) -> Convert | None:
    """Return what puts a branch's name before each union value of a parsed schema; None where it has no such union."""
    return _of(avro, {})


def _of(avro: Any, records: dict[str, Convert | None]) -> Convert | None:
    if isinstance(avro, str):
        return records.get(avro)
    if isinstance(avro, list):
        return _of_union([member for member in avro if member != "null"], records)
    match avro["type"]:
        case "array":
            return each(_of(avro["items"], records))
        case "map":
            return each_value(_of(avro["values"], records))
        case "record":
            return records.setdefault(avro["name"], _of_record(avro["fields"], records))
    return None


def _of_record(fields: Sequence[Mapping[str, Any]], records: dict[str, Convert | None]) -> Convert | None:
    by_name = {field["name"]: _of(field["type"], records) for field in fields}
    converts = {name: convert for name, convert in by_name.items() if convert is not None}
    if not converts:
        return None
    # The Avro library reports a missing name, with the whole record at hand.
    return lambda values: {n: converts[n](v) if n in converts else v for n, v in values.items()}


def _of_union(members: Sequence[Any], records: dict[str, Convert | None]) -> Convert | None:
    converts = [_of(member, records) for member in members]
    if len(members) == 1 and converts[0] is None:
        return None
    # A value that contains a named one needs a name itself: the library would take the names for values.
    names = [_name(member) for member in members]
    by_class = {class_of(member): number for number, member in enumerate(members)}
    by_record = {short_name(name): number for number, name in enumerate(names)}

    def named(value: Any) -> Any:
        is_record = type(value) is tuple  # one of several records
        number = by_record[short_name(value[0])] if is_record else by_class[type(value)]
        inner, convert = value[1] if is_record else value, converts[number]
        return names[number], inner if convert is None else convert(inner)

    return unless_none(named)


def _name(member: Any) -> str:
    """The name that the Avro library knows a branch by: that of a record, else its plain type."""
    if isinstance(member, Mapping):
        return str(member["name"] if "name" in member else member["type"])
    return str(member)
