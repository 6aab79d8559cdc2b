"""Fields that hold one of several types: an Avro union. The type of a value selects its branch.

Types of fields in the words of the Python that declares them, for messages: `list[Decimal] | None`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from eventstore.fields.conversions import Convert

_CLASSES: Final[Mapping[str, type]] = {
    "string": str, "long": int, "double": float, "boolean": bool, "bytes": bytes, "array": list, "decimal": Decimal,
    "uuid": UUID, "timestamp-micros": datetime, "date": date,
}  # fmt: skip


def class_of(avro: Any) -> type:
    """Return the class of a branch's plain values; those of a record are dictionaries."""
    kind = avro.get("logicalType", avro["type"]) if isinstance(avro, Mapping) else avro
    return _CLASSES.get(kind, dict)


def short_name(avro: Any) -> str:
    """Return the name of a record, defined here or only named, without its namespace."""
    name: str = avro.get("name", "") if isinstance(avro, Mapping) else avro
    return name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Branch:
    """One type of a union: the class of its values, its Avro form and conversions, its name where it is a record."""

    cls: type
    avro: Any
    to_plain: Convert | None
    from_plain: Convert | None
    record: str | None = None

    @property
    def looks(self) -> str:
        """What its values look like once read. A reader cannot distinguish two branches that look alike.

        A day is a number of Avro, as a moment is, and Spark makes one number of both. A record is read as a dictionary
        unless its union has several.
        """
        kind = str(self.avro["type"]) if isinstance(self.avro, dict) else self.avro
        if self.record is not None:
            return f"map or {self.record}"
        return {"int": "long", "map": "map or "}.get(kind, kind)


def alike(branches: Sequence[Branch]) -> tuple[Branch, Branch] | None:
    """Return two branches that look alike, or None."""
    for number, branch in enumerate(branches):
        for other in branches[:number]:
            looks = sorted((other.looks, branch.looks))
            if looks[0] == looks[1] or (looks[0] == "map or " and looks[1].startswith("map or ")):
                return other, branch
    return None


def union_to_plain(branches: Sequence[Branch], namespace: Callable[[], str]) -> Convert:
    """Convert a value by the branch of its class; one of several records becomes its full name and its values."""
    by_class = {branch.cls: branch for branch in branches}
    several = sum(branch.record is not None for branch in branches) > 1

    def to_plain(value: Any) -> Any:
        branch = by_class.get(type(value))
        if branch is None:
            raise TypeError(f"{type(value).__name__} is none of {', '.join(cls.__name__ for cls in by_class)}")
        plain = value if branch.to_plain is None else branch.to_plain(value)
        return (f"{namespace()}.{branch.record}", plain) if several and branch.record is not None else plain

    return to_plain


def union_from_plain(branches: Sequence[Branch]) -> Convert:
    """Convert what Avro gives for a branch."""
    records = {branch.record: branch for branch in branches if branch.record is not None}
    by_class = {dict if branch.record is not None else class_of(branch.avro): branch for branch in branches}

    def from_plain(value: Any) -> Any:
        is_record = type(value) is tuple  # one of several records
        branch = records[value[0].rpartition(".")[2]] if is_record else by_class[type(value)]
        inner = value[1] if is_record else value
        return inner if branch.from_plain is None else branch.from_plain(inner)

    return from_plain


_LOGICAL: Final = {
    "decimal": "Decimal", "timestamp-micros": "datetime", "date": "date", "time-micros": "time", "uuid": "UUID",
}  # fmt: skip
_PLAIN: Final = {
    "string": "str", "long": "int", "int": "int", "double": "float", "float": "float", "boolean": "bool",
    "bytes": "bytes", "null": "None",
}  # fmt: skip


def in_python(avro: Any) -> str:
    """Return the Python type that a field's Avro type was declared as."""
    if isinstance(avro, list):
        named = [in_python(branch) for branch in avro]
        return " | ".join([*(name for name in named if name != "None"), *(name for name in named if name == "None")])
    if not isinstance(avro, dict):
        return _PLAIN.get(avro, str(avro).rpartition(".")[2])
    if "logicalType" in avro:
        return _LOGICAL.get(str(avro["logicalType"]), str(avro["logicalType"]))
    match avro["type"]:
        case "array":
            return f"list[{in_python(avro['items'])}]"
        case "map":
            return f"dict[str, {in_python(avro['values'])}]"
        case "record" | "enum":
            return str(avro["name"]).rpartition(".")[2]
        case inner:
            return in_python(inner)
