"""The arguments of a command as a JSON Schema, by its annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

Schema = dict[str, Any]


def command_schema(name: str, method: Callable[..., object]) -> tuple[Schema, dict[str, Schema]]:
    """Return the message of a command, and the schemas that it refers to, by their names in the document.

    An argument whose type has no JSON Schema, or cannot be found, may be anything; its description names the type.
    Arguments of any number are an array (`*args`), or properties of any name (`**kwargs`).
    """
    arguments = list(inspect.signature(method).parameters.values())[1:]  # the first is the state
    schemas, properties = dict[str, Schema](), dict[str, Schema]()
    payload: Schema = {"type": "object", "properties": properties}
    for argument in arguments:
        schema, defined = _schema(_hint(method, argument), name)
        schemas |= defined
        if argument.kind is argument.VAR_KEYWORD:
            payload["additionalProperties"] = schema
        else:
            many = argument.kind is argument.VAR_POSITIONAL
            properties[argument.name] = {"type": "array", "items": schema} if many else schema
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


def _hint(method: Callable[..., object], argument: inspect.Parameter) -> Any:
    """The type of one argument; its text where that cannot be found."""
    if argument.annotation is argument.empty:
        return Any
    function: Any = inspect.unwrap(method)
    alone = SimpleNamespace(__annotations__={argument.name: argument.annotation})
    try:
        return get_type_hints(alone, globalns=function.__globals__, include_extras=True)[argument.name]
    except (NameError, TypeError):
        return argument.annotation


def _schema(hint: Any, command: str) -> tuple[Schema, dict[str, Schema]]:
    if hint is Any:
        return {}, {}
    if isinstance(hint, str):
        return {"description": hint}, {}
    try:
        json_schema = TypeAdapter(hint).json_schema(ref_template=f"#/components/schemas/{command}.{{model}}")
    except (PydanticUserError, TypeError, ValueError):
        return {"description": getattr(hint, "__qualname__", str(hint))}, {}
    defined = json_schema.pop("$defs", {})
    return json_schema, {f"{command}.{model}": schema for model, schema in defined.items()}
