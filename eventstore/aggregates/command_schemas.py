"""The arguments of a command as a JSON Schema, by its annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

Schema = dict[str, Any]


def command_schema(name: str, method: Callable[..., object]) -> tuple[Schema, dict[str, Schema]]:
    """Return the message of a command, and the schemas that it refers to, by their names in the document.

    An argument whose type has no JSON Schema may be anything; its description names the type.
    """
    arguments = list(inspect.signature(method).parameters.values())[1:]  # the first is the state
    hints, schemas, properties = _hints(method), dict[str, Schema](), dict[str, Schema]()
    for argument in arguments:
        properties[argument.name], defined = _schema(hints.get(argument.name, Any), name)
        schemas |= defined
    payload: Schema = {"type": "object", "properties": properties}
    if required := [one.name for one in arguments if one.default is one.empty and one.kind not in _MANY]:
        payload["required"] = required
    described = inspect.getdoc(method)
    summary = {"summary": described.splitlines()[0]} if described else {}
    return {
        "name": name,
        "title": method.__name__,
        **summary,
        "contentType": "application/json",
        "payload": payload,
    }, schemas


_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _hints(method: Callable[..., object]) -> Mapping[str, Any]:
    try:
        return get_type_hints(inspect.unwrap(method), include_extras=True)
    except (NameError, TypeError):
        return {}


def _schema(hint: Any, command: str) -> tuple[Schema, dict[str, Schema]]:
    if hint is Any:
        return {}, {}
    try:
        json_schema = TypeAdapter(hint).json_schema(ref_template=f"#/components/schemas/{command}.{{model}}")
    except (PydanticUserError, TypeError, ValueError):
        return {"description": getattr(hint, "__qualname__", str(hint))}, {}
    defined = json_schema.pop("$defs", {})
    return json_schema, {f"{command}.{model}": schema for model, schema in defined.items()}
