"""Connectors declared in a TOML file: `[[connector]]` tables whose keys are the fields of the Python declarations.

    [[connector]]
    type = "postgres"
    name = "shop"
    tables = ["public.customers"]
    password = "${file:/run/secrets/shop.properties:password}"

Nothing is substituted here: a reference to a secret is resolved by the Connect worker.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_type_hints

from pydantic import TypeAdapter, ValidationError

from cdc.connectors.declared import Connector
from cdc.errors import InvalidConnector
from eventstore.errors import FactfoldError
from eventstore.identifiers import require_type

_CONNECTORS: Final = {
    "custom": "cdc.connectors.debezium:CustomSource",
    "mariadb": "cdc.connectors.binlog:MariaDbSource",
    "mirror-checkpoint": "cdc.connectors.mirror:MirrorCheckpoint",
    "mirror-heartbeat": "cdc.connectors.mirror:MirrorHeartbeat",
    "mirror-source": "cdc.connectors.mirror:MirrorSource",
    "mysql": "cdc.connectors.binlog:MySqlSource",
    "outbox": "cdc.connectors.postgres:OutboxSource",
    "postgres": "cdc.connectors.postgres:PostgresSource",
}
_ENCODINGS: Final = {
    "apicurio-avro": "cdc.connectors.encodings:ApicurioAvro",
    "json": "cdc.connectors.encodings:PlainJson",
    "json-with-schemas": "cdc.connectors.encodings:JsonWithSchemas",
}
_PREDICATES: Final = {
    "has-header": "cdc.transforms:HasHeader",
    "is-tombstone": "cdc.transforms:IsTombstone",
    "topic-matches": "cdc.transforms:TopicMatches",
}
_TRANSFORMS: Final = {
    "custom": "cdc.transforms:Custom",
    "filter": "cdc.transforms:Filter",
    "flatten": "cdc.transforms:Flatten",
    "insert-field": "cdc.transforms:InsertField",
    "insert-header": "cdc.transforms:InsertHeader",
    "mask": "cdc.transforms:Mask",
    "outbox": "cdc.transforms:EventRouter",
    "route-by-regex": "cdc.transforms:RouteByRegex",
}
# Fields whose values are tables with a `type` of their own.
_NESTED: Final = {"encoding": _ENCODINGS, "when": _PREDICATES, "transforms": _TRANSFORMS}


def load_connectors(path: str | Path) -> tuple[Connector, ...]:
    """Return the connectors that a TOML file declares, in its order.

    Raises:
        InvalidConnector: A field is wrong. The place names the file, the connector and the field.
        InvalidIdentifier: A name is wrong.

    Examples:
        >>> for connector in load_connectors("connectors.toml"):
        ...     apply_connector(client, connector)
    """
    require_type(path, (str, Path), "path", takes="the path of a TOML file")
    file = Path(path)
    document = _read(file)
    if unknown := [key for key in document if key != "connector"]:
        raise _refusal(f"the file says {unknown[0]!r}", "declare connectors, each as a table [[connector]]", str(file))
    tables = document.get("connector", [])
    if not isinstance(tables, list):
        raise _refusal("connector is one table", "write [[connector]], which begins a list", str(file))
    connectors = tuple(_made(table, _CONNECTORS, f"{file}: connector[{number}]") for number, table in enumerate(tables))
    _refuse_repeated([connector.name for connector in connectors], file)
    return connectors


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _refusal("there is no such file", "check the path", str(file)) from error
    except (ValueError, OSError) as error:  # ValueError: no TOML, no UTF-8, or no path at all
        raise _refusal(f"the file cannot be read: {error}", "write it as TOML, in UTF-8", str(file)) from error


def _refuse_repeated(names: list[str], file: Path) -> None:
    for number, name in enumerate(names):
        if name in names[:number]:
            raise _refusal(
                f"two connectors are called {name!r}", "give each a name of its own", f"{file}: connector[{number}]"
            )


def _made(table: Any, kinds: Mapping[str, str], place: str) -> Any:
    """Make what a table describes: its `type` says the class, its other keys are the class's fields."""
    if not isinstance(table, dict):
        raise _refusal(f"the entry is no table but {type(table).__name__}", "write a table with a type", place)
    if "type" not in table and (misspelt := difflib.get_close_matches("type", table, n=1)):
        raise _refusal("the table says no type", f"write type instead of {misspelt[0]}", f"{place}.{misspelt[0]}")
    kind = _one_of(table.get("type"), kinds, "type", place)
    declared = _class_at(kinds[kind])
    given = {key: value for key, value in table.items() if key != "type"}
    known = {field.name: field for field in fields(declared)}
    for key in given:
        _one_of(key, known, "field", place)
    _refuse_missing(known.values(), given, place)
    hints = _hints(declared)
    values = {key: _value(key, value, hints[key], f"{place}.{key}") for key, value in given.items()}
    return _constructed(declared, values, place)


def _value(key: str, value: Any, hint: Any, place: str) -> Any:
    if key not in _NESTED:
        return _checked(value, hint, place)
    if key != "transforms":
        return _made(value, _NESTED[key], place)
    if not isinstance(value, list):
        raise _refusal("transforms is no list", "write [[connector.transforms]]", place)
    return tuple(_made(item, _NESTED[key], f"{place}[{number}]") for number, item in enumerate(value))


def _checked(value: Any, hint: Any, place: str) -> Any:
    """Return a value as a field's type has it: text stays text, and 1 is no "1"; a list becomes a tuple."""
    try:
        # A list is a tuple to strict JSON, and not to strict Python.
        return TypeAdapter(hint).validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
        # The cause's own text would show the value.
        raise _refusal(_lowered(problem["msg"]), "see the field's type in the declaration", place) from None


def _constructed(declared: Any, values: Mapping[str, Any], place: str) -> Any:
    try:
        return declared(**values)
    except FactfoldError as error:
        inner = f"{place}.{error.place}" if error.place else place
        raise type(error)(error.message, remedy=error.remedy, place=inner, code=error.code) from error


def _one_of(value: Any, known: Iterable[str], what: str, place: str) -> str:
    names = sorted(known)
    if isinstance(value, str) and value in names:
        return value
    close = difflib.get_close_matches(str(value), names, n=1)
    remedy = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(names)}"
    if value is None:
        raise _refusal(f"the table says no {what}", remedy, place)
    raise _refusal(f"there is no {what} {str(value)[:80]!r}", remedy, f"{place}.{str(value)[:80]}")


def _refuse_missing(known: Iterable[Field[Any]], given: Mapping[str, Any], place: str) -> None:
    for field in known:
        has_default = field.default is not MISSING or field.default_factory is not MISSING
        if not has_default and field.name not in given:
            raise _refusal(f"the table lacks {field.name}", f"add {field.name} = …", f"{place}.{field.name}")


def _refusal(message: str, remedy: str, place: str) -> InvalidConnector:
    return InvalidConnector(message, remedy=remedy, place=place)


def _lowered(message: str) -> str:
    return message[:1].lower() + message[1:]


def _class_at(home: str) -> Any:
    module, _, name = home.partition(":")
    return getattr(import_module(module), name)


@cache
def _hints(declared: Any) -> dict[str, Any]:
    return get_type_hints(declared)
