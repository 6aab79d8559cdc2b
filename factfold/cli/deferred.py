"""A command or a group of commands whose module is imported when it runs, and not to list its name."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand


class Place(NamedTuple):
    """Where a command or a group is: a module of this package, and a name in it, which may be the command's own."""

    name: str
    help: str
    module: str
    attribute: str | None = None


class Deferred(TyperCommand):
    """What stands for a command in the list. It becomes the command itself once its arguments are parsed."""

    def __init__(self, place: Place) -> None:
        super().__init__(place.name, help=place.help)
        self._place = place

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments as the command itself does; its context runs or completes it."""
        return self.loaded().make_context(info_name, args, parent, **extra)

    def loaded(self) -> Any:
        """Import the module, and return the command or the group."""
        found = getattr(import_module(f"factfold.cli.{self._place.module}"), self._place.attribute or self._place.name)
        around = typer.Typer()
        around.callback()(_nothing)
        if isinstance(found, typer.Typer):
            around.add_typer(found, name=self._place.name)
        else:
            around.command(self._place.name)(found)
        group: Any = typer.main.get_command(around)
        return group.commands[self._place.name]


def _nothing() -> None: ...
