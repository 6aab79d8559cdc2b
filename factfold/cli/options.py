"""Options of commands: those of several, records of those that belong together, and which were given."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from functools import wraps
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer

from eventstore.errors import DeclarationError
from factfold.cli.definitions import completes
from factfold.discovery import Kind

Command = TypeVar("Command", bound=Callable[..., None])

# Variables of settings that stand in a table of factfold.toml.
_TABLED: Final = {"--kafka-bootstrap-servers": "KAFKA__BOOTSTRAP_SERVERS", "--registry-url": "REGISTRY__URL"}
_LONG: Final = re.compile(r"(\d+)([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def option(name: str, help: str, **more: Any) -> Any:
    """Return an option by its name on the command line."""
    return typer.Option(name, help=help, **more)


def argument(help: str, metavar: str | None = None, **more: Any) -> Any:
    """Return an argument, which has its place by its order."""
    return typer.Argument(help=help, metavar=metavar, **more)


def setting(name: str, help: str, **more: Any) -> Any:
    """Return an option that is a setting, too: it has a variable of the same name."""
    named = name.partition("/")[0]
    variable = _TABLED.get(named) or named.removeprefix("--").replace("-", "_").upper()
    return option(name, help, **{"envvar": f"FACTFOLD_{variable}", **more})


def definition(help: str, *kinds: Kind, name: str | None = None, metavar: str | None = None) -> Any:
    """Return an argument, or an option of a name, for a definition of these kinds; a shell completes it."""
    completion = completes(*kinds)
    if name is not None:
        return option(name, help, autocompletion=completion)
    return argument(help, metavar, autocompletion=completion)


Memory = Annotated[str, option("--memory", "Heap of the Spark driver.")]
Views = Annotated[
    str,
    setting(
        "--views-url",
        "Where the views are: SQLAlchemy URL of a database. sqlite:///shop.db holds everything and needs no Kafka.",
    ),
]
Yes = Annotated[bool, option("--yes", "Do not ask.")]


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is done that cannot be undone, unless --yes says so."""
    if not yes:
        typer.confirm(question, abort=True, err=True)


def parse_duration(text: str) -> timedelta:
    """A time such as 90s, 45m, 36h or 30d; DeclarationError."""
    if (match := _LONG.fullmatch(text)) and int(match.group(1)):
        return timedelta(**{_UNITS[match.group(2)]: int(match.group(1))})
    raise DeclarationError(f"{text!r} is no time", remedy="say 36h or 30d: a number, then s, m, h or d")


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


class Commands(typer.Typer):
    """A group of commands, which may take records of options among their parameters."""

    def __init__(self, help: str) -> None:
        super().__init__(help=help, no_args_is_help=True)

    def command(self, name: str | None = None) -> Callable[[Command], Command]:  # type: ignore[override]
        """Add a command, by the name of its function if there is no other."""
        register = super().command(name)

        def decorated(command: Command) -> Command:
            register(with_options(command))
            return command

        return decorated


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the options of each record among its parameters, instead of the record.

    A record may have others among its fields.

    Examples:
        >>> @dataclass(frozen=True)
        ... class Place:
        ...     views_url: Views
        ...     memory: Memory = "2g"
        >>> app = Commands("Views.")
        >>> @app.command()
        ... def verify(group: Group, place: Place) -> None: ...
    """
    hints = get_type_hints(command)
    records = {name: kind for name, kind in hints.items() if _is_record(kind)}

    @wraps(command)
    def flat(**given: Any) -> None:
        made = {name: _taken(kind, given) for name, kind in records.items()}
        command(**given, **made)

    named = list(_flattened(command))
    flat.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    flat.__annotations__ = {one.name: one.annotation for one in named}
    return flat


def _is_record(kind: object) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)


def _flattened(taker: Callable[..., object]) -> Iterator[inspect.Parameter]:
    """Yield parameters without records, by name alone: a required option may stand behind others."""
    hints = get_type_hints(taker, include_extras=True)
    for one in inspect.signature(taker).parameters.values():
        if _is_record(kind := hints[one.name]):
            yield from _flattened(kind)
        else:
            yield one.replace(kind=one.KEYWORD_ONLY, annotation=kind)


def _taken(kind: Any, given: dict[str, Any]) -> Any:
    """Make a record of its options, which are taken out of those that were given."""
    hints = get_type_hints(kind)
    names = [one.name for one in fields(kind)]
    return kind(**{name: _taken(hints[name], given) if _is_record(hints[name]) else given.pop(name) for name in names})
