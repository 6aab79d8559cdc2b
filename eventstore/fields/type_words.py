"""Types of fields in the words of the Python that declares them, for messages: `list[Decimal] | None`."""

from __future__ import annotations

from typing import Any, Final

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
