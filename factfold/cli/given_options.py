"""Which options of a command stand on the command line, and not only in a variable or in the settings file."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
