"""Schemas that turn a few bytes into endless values: the reader would build them before a check could refuse them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

# More types than this in a schema, each use of a named one counted, are no event's.
_MOST: Final = 100_000


def endless(avro: Any) -> str | None:
    """Return why a value of a parsed schema might have no end, None where each part of it takes bytes.

    A record within itself ends the process, where each of its values holds another. An array may say that it has 2^60
    items that take no bytes. Records that hold others twice double with each level.
    """
    types = _Types(avro)
    try:
        if types.width(avro) > _MOST:
            return f"has more than {_MOST:,} types"
    except _WithinItself as error:
        return f"has a record within itself: {error}"
    arrays = (part for part in types.parts if part["type"] == "array")
    return "has an array whose items take no bytes" if any(types.is_empty(a["items"]) for a in arrays) else None


class _WithinItself(Exception):
    """A record holds itself."""


class _Types:
    """The types of a schema: its named ones by their names, the widths of those that are known."""

    def __init__(self, avro: Any) -> None:
        self.parts = list(_parts(avro))
        self._named: dict[str, Any] = {part["name"]: part for part in self.parts if "name" in part}
        self._widths: dict[str, int | None] = {}

    def width(self, avro: Any) -> int:
        """Return how many types a type holds, itself included; _WithinItself."""
        if isinstance(avro, str):
            return self._width_of(avro) if avro in self._named else 1
        if isinstance(avro, Mapping) and "name" in avro:
            return self._width_of(avro["name"])
        return 1 + sum(map(self.width, _inner(avro)))

    def _width_of(self, name: str) -> int:
        if name not in self._widths:
            self._widths[name] = None
            self._widths[name] = 1 + sum(map(self.width, _inner(self._named[name])))
        if (known := self._widths[name]) is None:
            raise _WithinItself(name)
        return known

    def is_empty(self, avro: Any) -> bool:
        """Say whether values of a type take no bytes."""
        if isinstance(avro, str):
            return avro == "null" or (avro in self._named and self.is_empty(self._named[avro]))
        if not isinstance(avro, Mapping) or avro["type"] in ("array", "map"):
            return False  # they say where they end, and a union which of its types a value has
        if avro["type"] == "fixed":
            return bool(avro["size"] == 0)
        return all(map(self.is_empty, _inner(avro))) if avro["type"] == "record" else self.is_empty(avro["type"])


def _parts(avro: Any) -> Iterator[Mapping[str, Any]]:
    """Every type of a schema that has others in it, or a name."""
    if isinstance(avro, Mapping):
        yield avro
    for inner in _inner(avro):
        yield from _parts(inner)


def _inner(avro: Any) -> list[Any]:
    """The types that stand directly in a type."""
    if isinstance(avro, list):
        return avro
    if not isinstance(avro, Mapping):
        return []
    others = [avro[key] for key in ("items", "values") if key in avro]
    nested = [] if isinstance(avro["type"], str) else [avro["type"]]
    return [*(field["type"] for field in avro.get("fields", ())), *others, *nested]
