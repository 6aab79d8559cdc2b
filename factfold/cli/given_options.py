"""Options of commands: records of those that belong together, and which of them stand on the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

import typer


def chosen_by(options: Mapping[str, str], *, otherwise: str) -> Callable[[typer.Context, str | None], str]:
    """Return a callback of an option that says which of several places is meant.

    If the option is missing, a place is meant by its URL on the command line: ``options`` maps the parameter of each
    URL to its place. A URL of a variable chooses nothing.
    """

    def choose(context: typer.Context, value: str | None) -> str:
        if value is not None or context.resilient_parsing:
            return value or otherwise
        # Options that are given come first, whatever the order of their declaration.
        given = {place for name, place in options.items() if _is_given(context, name)}
        if len(given) > 1:
            raise typer.BadParameter(f"the URLs name two places, {' and '.join(sorted(given))}: give one of them")
        return given.pop() if given else otherwise

    return choose


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the options of each record among its parameters, instead of the record.

    Examples:
        >>> @dataclass(frozen=True)
        ... class Place:
        ...     views_url: Views
        ...     memory: Memory = "2g"
        >>> @app.command()
        ... @with_options
        ... def verify(group: Group, place: Place) -> None: ...
    """
    records: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if isinstance(kind, type) and is_dataclass(kind):
            records[parameter.name] = kind
            parameters += inspect.signature(kind).parameters.values()
            hints |= get_type_hints(kind, include_extras=True)
        else:
            parameters.append(parameter)

    @wraps(command)
    def flat(**given: Any) -> None:
        made = {name: kind(**{one.name: given.pop(one.name) for one in fields(kind)}) for name, kind in records.items()}
        command(**given, **made)

    # By name alone: a required option may stand behind others.
    named = [one.replace(kind=one.KEYWORD_ONLY, annotation=hints[one.name]) for one in parameters]
    flat.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    flat.__annotations__ = {one.name: one.annotation for one in named}
    return flat
