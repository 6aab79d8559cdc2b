"""A command's arguments as text and back, by the annotations of its parameters: for a command that is sent later."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, get_type_hints

from eventstore.errors import DeclarationError, InvalidEventData
from eventstore.fields.conversions import MISFITS
from eventstore.fields.field_compilation import compile_hints
from eventstore.fields.field_types import Field
from eventstore.fields.plain_json import dump_plain, load_plain

_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def encode_arguments(command: Callable[..., object], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return arguments as JSON; InvalidEventData for one that does not fit, the errors of `parameters_of`."""
    name, given, fields = command.__qualname__, given_arguments(command, args, kwargs), parameters_of(command)
    return dump_plain({key: _converted(fields[key], fields[key].type.plain, v, name) for key, v in given.items()})


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
    name, fields, arguments = command.__qualname__, parameters_of(command), load_plain(text)
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
                f"{command.__qualname__} cannot be sent later: its parameter {parameter} has no name or no type",
                remedy="name and annotate each parameter, for example order_id: str",
                place=command.__qualname__,
            )
    try:
        hints = get_type_hints(command, include_extras=True)
    except NameError as error:
        raise DeclarationError(
            f"{command.__qualname__} cannot be sent later: a type of its parameters cannot be found: {error}",
            remedy="import the type in the module of the command",
            place=command.__qualname__,
        ) from None
    parameter_hints = {parameter.name: hints[parameter.name] for parameter in parameters}
    fields = compile_hints(parameter_hints, owner=command.__qualname__, namespace="command")
    return dict(zip(parameter_hints, fields, strict=True))


def _converted(field: Field, convert: Callable[[Any], Any], value: Any, owner: str) -> Any:
    try:
        return convert(value)
    except (InvalidEventData, *MISFITS) as error:
        raise InvalidEventData(
            f"a {type(value).__name__} does not fit argument {field.name} of {owner}",
            remedy="give the argument a value of its declared type",
            place=f"{owner}.{field.name}",
        ) from error
