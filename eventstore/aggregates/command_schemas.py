"""The arguments of a command as a JSON Schema, by its annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from eventstore.errors import DeclarationError, InvalidEventData, UnsupportedFieldType
from eventstore.fields.field_compilation import compile_hints
from eventstore.fields.field_types import Field, hints_of
from eventstore.fields.plain_json import dump_plain, load_plain
from eventstore.identifiers import check_subject
from eventstore.store import Command, RecordedCommand

if TYPE_CHECKING:
    from eventstore.aggregates.aggregate import Aggregate
    from eventstore.personal.sealing import Personal

Schema = dict[str, Any]
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


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


def encode_arguments(command: Callable[..., object], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return arguments as JSON; InvalidEventData for one that does not fit, the errors of `parameters_of`."""
    if marked := [name for name, field in parameters_of(command).items() if field.personal is not None]:
        raise UnsupportedFieldType(
            f"argument {marked[0]} of {command.__qualname__} is personal, and it would be stored in the clear",
            remedy="schedule a command that takes the id of the person, and read the value when it is sent",
            place=f"{command.__qualname__}.{marked[0]}",
        )
    return dump_plain(_plain(command, given_arguments(command, args, kwargs)))


def _plain(command: Callable[..., object], given: Mapping[str, Any]) -> dict[str, Any]:
    fields, name = parameters_of(command), command.__qualname__
    return {key: _converted(fields[key], fields[key].type.plain, value, name) for key, value in given.items()}


def recorded_command(message: Command, kind: type[Aggregate], emitted: Sequence[object]) -> RecordedCommand:
    """Return a command to be stored with the events that it led to; the errors of `encode_arguments`.

    An argument is personal if it is marked, or has the name of a personal field of the aggregate's events. Its subject
    is another argument, or a field of these events.
    """
    command = kind.commands[message.name.rpartition(".")[2]]
    events = (field for event_type in kind.event_types.values() for field in event_type.personal)
    marks = {field.name: field.personal for field in (*events, *parameters_of(command).values()) if field.personal}
    given = message.arguments
    subjects = {name: _subject(message, marks[name], name, emitted) for name in given if name in marks}
    return RecordedCommand(message.name, _plain(command, given), subjects)


def _subject(message: Command, mark: Personal, name: str, emitted: Sequence[object]) -> str:
    named, subject = mark.subject, message.arguments.get(mark.subject or "")
    if named is None:
        subject = message.stream.partition("-")[2]
    elif subject in (None, ""):
        subject = next((getattr(event, named) for event in emitted if hasattr(event, named)), None)
    if subject in (None, ""):
        raise InvalidEventData(
            f"argument {name} of {message.name} is personal, and neither the command nor its events say {named}",
            remedy=f"give the command an argument {named}, or mark {name} with the subject that it has",
            place=f"{message.name}.{name}",
        )
    return check_subject(str(subject), place=f"{message.name}.{name}")


def given_arguments(command: Callable[..., object], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by the names of the command's parameters; InvalidEventData if the command does not take them."""
    name, signature = command.__qualname__, inspect.signature(command)
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError as error:
        parameters = ", ".join(str(one) for one in list(signature.parameters.values())[1:])
        raise InvalidEventData(
            f"{name} does not take these arguments: {error}", remedy=f"it takes ({parameters})", place=name
        ) from None
    return dict(list(bound.arguments.items())[1:])


def decode_arguments(command: Callable[..., object], text: str) -> dict[str, Any]:
    """Return what `encode_arguments` wrote; InvalidEventData where the command takes it no more."""
    return arguments_of(command, load_plain(text))


def arguments_of(command: Callable[..., object], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain arguments as the command takes them; InvalidEventData where it takes them no more."""
    name, fields = command.__qualname__, parameters_of(command)
    if unknown := arguments.keys() - fields.keys():
        raise InvalidEventData(
            f"{name} takes no argument {min(unknown)!r}, which a stored command has",
            remedy="give the command that parameter again, or discard the stored command",
            place=name,
        )
    return {key: _converted(fields[key], fields[key].type.opened, value, name) for key, value in arguments.items()}


@cache
def parameters_of(command: Callable[..., object]) -> Mapping[str, Field]:
    """Return the parameters of a command behind its state, with their types; DeclarationError."""
    parameters = list(inspect.signature(command).parameters.values())[1:]
    for parameter in parameters:
        if parameter.kind not in _BY_NAME or parameter.annotation is inspect.Parameter.empty:
            raise DeclarationError(
                f"{command.__qualname__} cannot be stored: its parameter {parameter} has no name or no type",
                remedy="name and annotate each parameter, for example order_id: str",
                place=command.__qualname__,
            )
    hints = hints_of(command, {}, f"the parameters of {command.__qualname__}", place=command.__qualname__)
    parameter_hints = {parameter.name: hints[parameter.name] for parameter in parameters}
    fields = compile_hints(parameter_hints, owner=command.__qualname__, namespace="command", personal=True)
    return dict(zip(parameter_hints, fields, strict=True))


def _converted(field: Field, convert: Callable[[Any], Any], value: Any, owner: str) -> Any:
    remedy = "give the argument a value of its declared type"
    return field.converted(convert, value, "argument", owner=owner, remedy=remedy)
